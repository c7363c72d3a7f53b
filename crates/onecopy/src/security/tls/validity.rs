//! The validity period of the certificate for clients.
//!
//! Clients check each certificate of the file, so the period is the intersection of all. An expired certificate stops
//! nothing here: clients that do not check it connect as before. The log warns in time.

use time::{Duration, OffsetDateTime, PrimitiveDateTime};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::calendar::shown;

/// The log warns this long before the end.
const NOTICE: Duration = Duration::days(30);

/// The period for which a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validity {
    begins: OffsetDateTime,
    ends: OffsetDateTime,
}

impl Validity {
    /// Intersects the periods of some certificates; `None` if one cannot be read.
    pub(super) fn of<'a>(certificates: impl IntoIterator<Item = &'a [u8]>) -> Option<Self> {
        let mut all =
            Self { begins: PrimitiveDateTime::MIN.assume_utc(), ends: PrimitiveDateTime::MAX.assume_utc() };
        for certificate in certificates {
            let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
            let period = certificate.validity();
            all.begins = all.begins.max(period.not_before.to_datetime());
            all.ends = all.ends.min(period.not_after.to_datetime());
        }
        Some(all)
    }

    /// The end of the period, in seconds since 1970.
    pub(super) fn ends_s(self) -> i64 {
        self.ends.unix_timestamp()
    }

    /// The warning about the certificate at a time, if there is one.
    pub(super) fn concern(self, now: OffsetDateTime) -> Option<String> {
        let (begins, ends) = (shown(self.begins), shown(self.ends));
        if now > self.ends {
            Some(format!("has expired at {ends}: clients that check it cannot connect"))
        } else if now < self.begins {
            Some(format!("is not valid before {begins}: clients that check it cannot connect"))
        } else if self.ends - now < NOTICE {
            Some(format!("expires in {} days, at {ends}", (self.ends - now).whole_days()))
        } else {
            None
        }
    }
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
                (date, format!("{year:04}-{month:02}-{day:02} 00:00:00 UTC"))
            };
            assert_eq!((read.begins, shown(read.begins)), date(from));
            assert_eq!((read.ends, shown(read.ends)), date(to));
            assert_eq!(read.ends_s(), read.ends.unix_timestamp());
        }
    }

    #[test]
    fn of_several_what_they_have_in_common_counts() {
        let (long, late) = (certificate((2000, 1, 1), (2030, 1, 1)), certificate((2020, 1, 1), (2040, 1, 1)));
        let both = Validity::of([long.as_slice(), late.as_slice()]).unwrap();
        let (begins, ends) = (rcgen::date_time_ymd(2020, 1, 1), rcgen::date_time_ymd(2030, 1, 1));
        assert_eq!(both, Validity { begins, ends });
        assert_eq!(Validity::of([long.as_slice(), &late[..60]]), None, "one is broken");
    }

    #[test]
    fn it_is_worth_a_word_from_thirty_days_before_its_end() {
        let time = |day: i64| OffsetDateTime::UNIX_EPOCH + Duration::days(day);
        let validity = Validity { begins: time(1000), ends: time(2000) };
        let said = |day: i64| validity.concern(time(day)).unwrap_or_default();
        assert_eq!(
            said(999),
            "is not valid before 1972-09-27 00:00:00 UTC: clients that check it cannot connect"
        );
        assert_eq!(said(1970), "");
        assert_eq!(said(1971), "expires in 29 days, at 1975-06-24 00:00:00 UTC");
        assert_eq!(said(2000), "expires in 0 days, at 1975-06-24 00:00:00 UTC");
        assert_eq!(
            said(2001),
            "has expired at 1975-06-24 00:00:00 UTC: clients that check it cannot connect"
        );
    }
}
