//! From when to when the certificate that we show is valid.
//!
//! Clients look at each certificate of the file, so what counts is what all of them have in common. Nothing is refused for it:
//! a client that asks for no proof comes in as before, but whoever runs the node hears of it in time.

use super::der::{GENERALIZED_TIME, UTC_TIME, VERSION, element};
use crate::calendar::{DAY_S, days, shown};

/// How long before its end a certificate is worth a word, in seconds: 30 days.
const NOTICE_S: i64 = 30 * DAY_S;

/// When a certificate begins to be valid, and when it ends, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validity {
    begins_s: i64,
    ends_s: i64,
}

impl Validity {
    /// That of some certificates together; none if one cannot be read.
    pub(super) fn of<'a>(certificates: impl IntoIterator<Item = &'a [u8]>) -> Option<Self> {
        let mut all = Self { begins_s: i64::MIN, ends_s: i64::MAX };
        for certificate in certificates {
            let one = Self::read(certificate)?;
            all.begins_s = all.begins_s.max(one.begins_s);
            all.ends_s = all.ends_s.min(one.ends_s);
        }
        Some(all)
    }

    fn read(certificate: &[u8]) -> Option<Self> {
        let (_, signed, _) = element(certificate)?;
        let (_, mut rest, _) = element(signed)?;
        if rest.first() == Some(&VERSION) {
            rest = element(rest)?.2;
        }
        // The serial number, the algorithm and who signed it come before.
        for _ in 0..3 {
            rest = element(rest)?.2;
        }
        let (_, times, _) = element(rest)?;
        let (begins_tag, begins, rest) = element(times)?;
        let (ends_tag, ends, _) = element(rest)?;
        Some(Self { begins_s: seconds(begins_tag, begins)?, ends_s: seconds(ends_tag, ends)? })
    }

    /// When it ends, in seconds since 1970.
    pub(super) fn ends_s(self) -> i64 {
        self.ends_s
    }

    /// What is wrong with it, or will soon be, at a time in seconds since 1970.
    pub(super) fn concern(self, now_s: i64) -> Option<String> {
        let (begins, ends) = (shown(self.begins_s), shown(self.ends_s));
        if now_s > self.ends_s {
            Some(format!("has expired at {ends}: clients that check it do not come in"))
        } else if now_s < self.begins_s {
            Some(format!("is not valid before {begins}: clients that check it do not come in"))
        } else if self.ends_s - now_s < NOTICE_S {
            Some(format!("expires in {} days, at {ends}", (self.ends_s - now_s) / DAY_S))
        } else {
            None
        }
    }
}

/// A time as certificates have it, always in UTC: `YYMMDDhhmmssZ`, or with four digits of the year.
fn seconds(tag: u8, text: &[u8]) -> Option<i64> {
    let digits = text.strip_suffix(b"Z").filter(|text| text.iter().all(u8::is_ascii_digit))?;
    let number = |digits: &[u8]| digits.iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = digits.split_at_checked(2)?;
            let year = number(year);
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = digits.split_at_checked(4)?;
            (number(year), rest)
        }
        _ => return None,
    };
    let parts: Vec<i64> = rest.chunks(2).map(number).collect();
    let [month @ 1..=12, day @ 1..=31, hour, minute, second] = parts[..] else { return None };
    Some(days(year, month, day) * DAY_S + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(from: (i32, u8, u8), to: (i32, u8, u8)) -> Vec<u8> {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        parameters.not_before = rcgen::date_time_ymd(from.0, from.1, from.2);
        parameters.not_after = rcgen::date_time_ymd(to.0, to.1, to.2);
        parameters.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn what_is_read_is_what_was_written() {
        for (from, to) in [
            ((1970, 1, 1), (2000, 2, 29)),
            ((1999, 12, 31), (2049, 12, 31)),
            ((2000, 3, 1), (2050, 1, 1)),
            ((2024, 2, 29), (2100, 3, 1)),
            ((1951, 7, 4), (9999, 12, 31)),
        ] {
            let read = Validity::of([certificate(from, to).as_slice()]).unwrap();
            let date = |(year, month, day)| {
                let date = rcgen::date_time_ymd(year, month, day);
                (date.unix_timestamp(), format!("{year:04}-{month:02}-{day:02} 00:00:00 UTC"))
            };
            assert_eq!((read.begins_s, shown(read.begins_s)), date(from));
            assert_eq!((read.ends_s(), shown(read.ends_s)), date(to));
        }
        assert_eq!(seconds(UTC_TIME, b"700101010203Z"), Some(3723));
        assert_eq!(shown(3723 - DAY_S), "1969-12-31 01:02:03 UTC");
    }

    #[test]
    fn of_several_what_they_have_in_common_counts() {
        let (long, late) = (certificate((2000, 1, 1), (2030, 1, 1)), certificate((2020, 1, 1), (2040, 1, 1)));
        let both = Validity::of([long.as_slice(), late.as_slice()]).unwrap();
        assert_eq!(both, Validity { begins_s: days(2020, 1, 1) * DAY_S, ends_s: days(2030, 1, 1) * DAY_S });
        assert_eq!(Validity::of([long.as_slice(), &late[..60]]), None, "one is broken");
        for text in [&b"7001010102Z"[..], b"700101010203", b"701301010203Z", b"70010101020xZ", b""] {
            assert_eq!(seconds(UTC_TIME, text), None);
        }
    }

    #[test]
    fn it_is_worth_a_word_from_thirty_days_before_its_end() {
        let validity = Validity { begins_s: 1000 * DAY_S, ends_s: 2000 * DAY_S };
        let said = |day: i64| validity.concern(day * DAY_S).unwrap_or_default();
        assert_eq!(
            said(999),
            "is not valid before 1972-09-27 00:00:00 UTC: clients that check it do not come in"
        );
        assert_eq!(said(1970), "");
        assert_eq!(said(1971), "expires in 29 days, at 1975-06-24 00:00:00 UTC");
        assert_eq!(said(2000), "expires in 0 days, at 1975-06-24 00:00:00 UTC");
        assert_eq!(
            said(2001),
            "has expired at 1975-06-24 00:00:00 UTC: clients that check it do not come in"
        );
    }
}
