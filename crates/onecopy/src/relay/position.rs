//! Corrects the position in an error: a server counts in the text that it got, the client in the text that it sent.

use wire::backend::{Fields, tag};
use wire::encode;

/// An ErrorResponse whose position is moved by this many characters.
pub(crate) fn shift_position(body: &[u8], offset: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len() + 16);
    encode::message(&mut out, tag::ERROR_RESPONSE, |b| {
        for (code, value) in Fields::new(body).iter() {
            b.push(code);
            let position = (code == b'P').then(|| std::str::from_utf8(value).ok()?.parse::<usize>().ok());
            match position.flatten() {
                Some(position) => b.extend_from_slice((position + offset).to_string().as_bytes()),
                None => b.extend_from_slice(value),
            }
            b.push(0);
        }
        b.push(0);
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_move_and_the_rest_stays() {
        let body = b"SERROR\0C42601\0P7\0\0";
        let shifted = shift_position(body, 10);
        let frame = wire::next_frame(&shifted).unwrap().unwrap();
        let fields = Fields::new(frame.body());
        assert_eq!(fields.get(b'P'), Some(&b"17"[..]));
        assert_eq!(fields.sqlstate(), b"42601");
    }
}
