//! As much of DER, in which certificates are written, as is asked of ours: elements one after another, each with a tag.

/// The tag of an object identifier.
pub(super) const OBJECT_ID: u8 = 6;
/// The tag of a time whose year has two digits.
pub(super) const UTC_TIME: u8 = 0x17;
/// The tag of a time whose year has four.
pub(super) const GENERALIZED_TIME: u8 = 0x18;
/// The tag of the first element of a certificate's inside where it says its version.
pub(super) const VERSION: u8 = 0xa0;

/// The first element of some bytes: its tag, what is in it, and what follows it.
pub(super) fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let mut length = usize::from(first);
    if first & 0x80 != 0 {
        let (digits, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
        (length, rest) = (0, after);
        for digit in digits {
            length = length.checked_mul(256)?.checked_add(usize::from(*digit))?;
        }
    }
    let (inside, after) = rest.split_at_checked(length)?;
    Some((tag, inside, after))
}
