//! The kinds of settings, and how a text becomes a value.

use std::net::SocketAddr;
use std::time::Duration;

use pgserver::MAX_REPLICAS;

use super::hba::Rule;
use super::units;
use super::value_error::ValueError;

/// The kind of a setting.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// A text that is not empty.
    Text,
    /// A text that may be empty.
    OptionalText,
    /// Names of roles. The list may be empty.
    Roles,
    /// Rules of `hba`.
    Rules,
    /// Addresses of HTTP servers. The list may be empty.
    Urls,
    /// Nodes, each with its name and its address. The list may be empty.
    Nodes,
    /// One of these.
    Word(&'static [&'static str]),
    /// Addresses to listen on. The list may be empty if `may_be_none`.
    Addresses { may_be_none: bool },
    /// An IPv4 multicast group with a port, or nothing.
    Group,
    /// A length of time between two limits, in milliseconds.
    Duration(u64, u64),
    /// A size between two limits, in bytes.
    Size(u64, u64),
    /// A number between two limits.
    Count(u64, u64),
    /// A decimal number between two limits, in millionths.
    Decimal(u64, u64),
    /// Two numbers of replicas, such as `2..6`. It may be empty.
    Replicas,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    Addresses(Vec<SocketAddr>),
    Roles(Vec<String>),
    Rules(Vec<Rule>),
    Urls(Vec<String>),
    Nodes(Vec<(String, String)>),
    Duration(Duration),
    Number(u64),
    Range(Option<(u16, u16)>),
}

/// A decimal number is kept as so many millionths.
pub(super) const MILLIONTHS: u64 = 1_000_000;

impl Kind {
    /// Parses a value.
    pub(super) fn parse(self, text: &str) -> Result<Value, ValueError> {
        match self {
            Self::Text if text.trim().is_empty() => Err(ValueError::Empty),
            Self::Text | Self::OptionalText => Ok(Value::Text(text.to_owned())),
            Self::Roles => Ok(Value::Roles(listed(text, ',').map(str::to_owned).collect())),
            Self::Rules => {
                // A variable or a flag holds several rules in one text.
                let rules: Result<Vec<Rule>, ValueError> = listed(text, ';').map(Rule::parse).collect();
                Ok(Value::Rules(rules?))
            }
            Self::Urls => {
                let urls: Result<Vec<String>, ValueError> = listed(text, ',').map(url).collect();
                Ok(Value::Urls(urls?))
            }
            Self::Nodes => {
                let nodes: Result<Vec<_>, ValueError> = listed(text, ',').map(node).collect();
                Ok(Value::Nodes(nodes?))
            }
            Self::Word(words) if words.contains(&text) => Ok(Value::Text(text.to_owned())),
            Self::Word(words) => {
                Err(ValueError::UnknownWord { text: text.to_owned(), allowed: words.to_vec() })
            }
            Self::Addresses { may_be_none: true } | Self::Group if text.is_empty() => {
                Ok(Value::Addresses(Vec::new()))
            }
            Self::Addresses { .. } => {
                let each = |address: &str| address.trim().parse::<SocketAddr>();
                let addresses: Result<Vec<SocketAddr>, _> = text.split(',').map(each).collect();
                addresses.map(Value::Addresses).map_err(|_| ValueError::NoAddress { text: text.to_owned() })
            }
            Self::Group => group(text),
            Self::Duration(least_ms, most_ms) => {
                let duration = units::duration(text)?;
                let (least, most) = (Duration::from_millis(least_ms), Duration::from_millis(most_ms));
                if (least..=most).contains(&duration) {
                    return Ok(Value::Duration(duration));
                }
                Err(out_of_range(text, &units::show_duration(least), &units::show_duration(most)))
            }
            Self::Size(least, most) => {
                let bytes = units::size(text)?;
                if (least..=most).contains(&bytes) {
                    return Ok(Value::Number(bytes));
                }
                Err(out_of_range(text, &units::show_size(least), &units::show_size(most)))
            }
            Self::Count(least, most) => match text.trim().parse::<u64>() {
                Ok(number) if (least..=most).contains(&number) => Ok(Value::Number(number)),
                Ok(_) => Err(out_of_range(text, &least.to_string(), &most.to_string())),
                Err(_) => Err(ValueError::NoNumber { text: text.to_owned(), least, most }),
            },
            Self::Decimal(least, most) => match millionths(text.trim()) {
                Some(number) if (least..=most).contains(&number) => Ok(Value::Number(number)),
                _ => Err(out_of_range(text, &decimal(least), &decimal(most))),
            },
            Self::Replicas if text.trim().is_empty() => Ok(Value::Range(None)),
            Self::Replicas => {
                let bounds = text.split_once("..").and_then(|(least, most)| {
                    Some((least.trim().parse::<u16>().ok()?, most.trim().parse::<u16>().ok()?))
                });
                match bounds {
                    Some((least, most)) if (1..=most).contains(&least) && most <= MAX_REPLICAS => {
                        Ok(Value::Range(Some((least, most))))
                    }
                    _ => Err(ValueError::NoRange { text: text.to_owned(), most: MAX_REPLICAS }),
                }
            }
        }
    }

    /// The permitted values, for the reference page.
    #[cfg(test)]
    pub(super) fn describe(self) -> String {
        match self {
            Self::Text => "text".to_owned(),
            Self::OptionalText => "text, or empty".to_owned(),
            Self::Roles => "name of a role, or a list of them, or empty".to_owned(),
            Self::Rules => "rule, or a list of them".to_owned(),
            Self::Urls => "URL, or a list of them, or empty".to_owned(),
            Self::Nodes => "name=host:port, or a list of them, or empty".to_owned(),
            Self::Word(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
            Self::Addresses { may_be_none } => {
                format!("address:port, or a list of them{}", if may_be_none { ", or empty" } else { "" })
            }
            Self::Group => "IPv4 multicast address:port, or empty".to_owned(),
            Self::Duration(least_ms, most_ms) => {
                let show = |ms| units::show_duration(Duration::from_millis(ms));
                format!("time, {} to {}", show(least_ms), show(most_ms))
            }
            Self::Size(least, most) => {
                format!("size, {} to {}", units::show_size(least), units::show_size(most))
            }
            Self::Count(least, most) => format!("number, {least} to {most}"),
            Self::Decimal(least, most) => format!("number, {} to {}", decimal(least), decimal(most)),
            Self::Replicas => "two numbers of replicas, such as `2..6`, or empty".to_owned(),
        }
    }
}

/// A multicast group with a port.
fn group(text: &str) -> Result<Value, ValueError> {
    let group = text.trim().parse::<SocketAddr>().ok();
    let group = group.filter(|group| group.is_ipv4() && group.ip().is_multicast() && group.port() != 0);
    let group = group.ok_or_else(|| ValueError::NoGroup { text: text.to_owned() })?;
    Ok(Value::Addresses(vec![group]))
}

/// The address of an HTTP server: a scheme, a host, a port, and no path.
fn url(text: &str) -> Result<String, ValueError> {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let port = rest.and_then(|rest| rest.trim_end_matches('/').rsplit_once(':'));
    let is_one = port.is_some_and(|(host, port)| {
        !host.is_empty() && !host.contains(['/', '@', ' ']) && port.parse::<u16>().is_ok()
    });
    if is_one { Ok(text.to_owned()) } else { Err(ValueError::NoUrl { text: text.to_owned() }) }
}

/// A node: its name, and its address.
fn node(text: &str) -> Result<(String, String), ValueError> {
    let named = text.split_once('=').map(|(name, address)| (name.trim(), address.trim()));
    let is_one = |(name, address): &(&str, &str)| {
        let port = address.rsplit_once(':').filter(|(host, _)| !host.is_empty());
        !name.is_empty() && port.is_some_and(|(_, port)| port.parse::<u16>().is_ok())
    };
    let found = named.filter(is_one).map(|(name, address)| (name.to_owned(), address.to_owned()));
    found.ok_or_else(|| ValueError::NoNode { text: text.to_owned() })
}

/// A decimal number of at most six decimals, in millionths.
fn millionths(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    if part.is_empty() || part.len() > 6 || !part.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let part = format!("{part:0<6}").parse::<u64>().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(MILLIONTHS)?.checked_add(part)
}

/// A number of millionths as people write it.
fn decimal(number: u64) -> String {
    let text = format!("{}.{:06}", number / MILLIONTHS, number % MILLIONTHS);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn listed(text: &str, separator: char) -> impl Iterator<Item = &str> {
    text.split(separator).map(str::trim).filter(|item| !item.is_empty())
}

fn out_of_range(text: &str, least: &str, most: &str) -> ValueError {
    ValueError::OutOfRange { text: text.to_owned(), least: least.to_owned(), most: most.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_kept_in_millionths() {
        for (text, number) in [("0.7", 700_000), ("1", 1_000_000), ("0.000001", 1), (" 12.50 ", 12_500_000)] {
            assert_eq!(Kind::Decimal(0, u64::MAX).parse(text), Ok(Value::Number(number)), "{text}");
        }
        for wrong in ["", ".5", "1.", "-1", "0.0000001", "1e3", "much", "99999999999999999999"] {
            assert!(Kind::Decimal(0, u64::MAX).parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!([1, 700_000, 1_000_000, 0].map(decimal), ["0.000001", "0.7", "1", "0"]);
    }

    #[test]
    fn bounds_of_replicas_are_two_numbers() {
        assert_eq!(Kind::Replicas.parse("2..6"), Ok(Value::Range(Some((2, 6)))));
        assert_eq!(Kind::Replicas.parse(" "), Ok(Value::Range(None)));
        for wrong in ["2", "6..2", "0..3", "1..17", "a..b", "..", "1..2..3"] {
            assert!(Kind::Replicas.parse(wrong).is_err_and(|error| error.help().contains("2..6")), "{wrong}");
        }
    }
}
