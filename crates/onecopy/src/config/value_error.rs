//! The error for a text that is no value of its setting.

use std::fmt;

/// A text is not a value of its setting. The place of the error is added later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ValueError {
    /// The value is empty, but the setting needs one.
    Empty,
    /// The text is not one of the words that are allowed here.
    UnknownWord { text: String, allowed: Vec<&'static str> },
    /// A rule names a method of authentication that Onecopy does not have.
    UnknownMethod { text: String, allowed: Vec<&'static str> },
    /// The text is not an address to listen on.
    NoAddress { text: String },
    /// It is no multicast group.
    NoGroup { text: String },
    /// The text is not the address of an HTTP server.
    NoUrl { text: String },
    /// The text is not a node's name and address.
    NoNode { text: String },
    /// The text is not the rule of five words that `hba` wants.
    NoRule { text: String },
    /// The text is not an address or a network.
    NoNetwork { text: String },
    /// The text is not a number.
    NoNumber { text: String, least: u64, most: u64 },
    /// The text is not two numbers of replicas.
    NoRange { text: String, most: u16 },
    /// The value lies outside the permitted range.
    OutOfRange { text: String, least: String, most: String },
    /// The text does not begin with a number.
    NoMeasure { text: String, kind: Measure },
    /// The number stands alone.
    NoUnit { number: u64, kind: Measure },
    /// The unit is not known.
    UnknownUnit { unit: String, number: u64, kind: Measure },
    /// The number is larger than 64 bits hold in the smallest unit.
    TooMuch { text: String, kind: Measure },
}

/// A number with a unit: its name, an example, and its units with their factors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Measure {
    pub(super) name: &'static str,
    pub(super) example: &'static str,
    pub(super) units: &'static [(&'static str, u64)],
}

impl Measure {
    fn unit_names(&self) -> String {
        let names: Vec<&str> = self.units.iter().map(|(name, _)| *name).collect();
        names.join(", ")
    }
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("an empty value"),
            Self::UnknownWord { text, .. } => write!(f, "\"{text}\" is not known"),
            Self::UnknownMethod { text, .. } => write!(f, "the method \"{text}\" is not offered"),
            Self::NoAddress { text } => write!(f, "\"{text}\" is no address to listen on"),
            Self::NoGroup { text } => write!(f, "\"{text}\" is no multicast group"),
            Self::NoUrl { text } => write!(f, "\"{text}\" is no URL"),
            Self::NoNode { text } => write!(f, "\"{text}\" is no node"),
            Self::NoRule { text } => write!(f, "\"{text}\" is no rule"),
            Self::NoNetwork { text } => write!(f, "\"{text}\" is no network"),
            Self::NoNumber { text, .. } => write!(f, "\"{text}\" is not a number"),
            Self::NoRange { text, .. } => write!(f, "\"{text}\" is not two numbers of replicas"),
            Self::OutOfRange { text, .. } => write!(f, "\"{text}\" is out of range"),
            Self::NoMeasure { text, kind } => write!(f, "\"{text}\" is not {}", kind.name),
            Self::NoUnit { kind, .. } => write!(f, "{} needs a unit", kind.name),
            Self::UnknownUnit { unit, kind, .. } => write!(f, "\"{unit}\" is no unit of {}", kind.name),
            Self::TooMuch { text, .. } => write!(f, "\"{text}\" is too much"),
        }
    }
}

impl std::error::Error for ValueError {}

impl ValueError {
    /// Advice for the operator.
    pub(super) fn help(&self) -> String {
        match self {
            Self::Empty => "leave the line out for the default".to_owned(),
            Self::UnknownWord { allowed, .. } | Self::UnknownMethod { allowed, .. } => {
                format!("it is one of {}", allowed.join(", "))
            }
            Self::NoAddress { .. } => {
                "write an address and a port, such as \"127.0.0.1:6432\" or \"0.0.0.0:6432\"".to_owned()
            }
            Self::NoGroup { .. } => {
                "write an IPv4 address from 224.0.0.0 to 239.255.255.255 and a port, such as \"239.255.64.32:6431\"".to_owned()
            }
            Self::NoUrl { .. } => "write one such as \"https://10.0.0.1:2379\"".to_owned(),
            Self::NoNode { .. } => "write its name and its address, such as \"a=10.0.0.1:6433\"".to_owned(),
            Self::NoRule { .. } => {
                "write five words, such as \"host all all 10.0.0.0/8 scram-sha-256\"".to_owned()
            }
            Self::NoNetwork { .. } => "write all, an address, or a network such as 10.0.0.0/8".to_owned(),
            Self::NoNumber { least, most, .. } => format!("write one from {least} to {most}"),
            Self::NoRange { most, .. } => {
                format!("write the least and the largest number, such as \"2..6\", from 1 to {most}")
            }
            Self::OutOfRange { least, most, .. } => format!("it is from {least} to {most}"),
            Self::NoMeasure { kind, .. } => {
                format!("write it as \"{}\"; units are {}", kind.example, kind.unit_names())
            }
            Self::NoUnit { number, kind } => {
                let unit = kind.example.trim_start_matches(|c: char| c.is_ascii_digit());
                format!("write \"{number}{unit}\"; units are {}", kind.unit_names())
            }
            Self::UnknownUnit { unit, number, kind } => {
                match kind.units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)) {
                    Some((name, _)) => {
                        format!("write \"{number}{name}\": large and small letters differ")
                    }
                    None => format!("units are {}", kind.unit_names()),
                }
            }
            Self::TooMuch { kind, .. } => format!("units are {}", kind.unit_names()),
        }
    }
}
