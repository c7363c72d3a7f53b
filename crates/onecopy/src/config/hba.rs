//! Which clients may connect, from where, and how they authenticate: rules as in pg_hba.conf.
//!
//! A rule is a line of five words: `host shop app,report 10.0.0.0/8 scram-sha-256`. The first rule that fits decides.
//! If none fits, the client is rejected. The words mean the same as in pg_hba.conf, and an unknown word is an error.
//! Lists of roles say separately which roles may use the admin database.

use std::net::IpAddr;

use super::value_error::ValueError;

/// How a client authenticates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// Without proof.
    Trust,
    /// By SCRAM-SHA-256.
    Scram,
    /// The client is rejected.
    Reject,
}

/// The connections that a rule is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Any,
    Encrypted,
    Plain,
}

/// A list of names, or `all`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Names {
    All,
    These(Vec<String>),
}

/// The addresses of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Network {
    All,
    Prefix(IpAddr, u8),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    transport: Transport,
    databases: Names,
    roles: Names,
    network: Network,
    method: Method,
}

/// A client that wants to log in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoginAttempt<'a> {
    /// The database in its start-up message.
    pub(crate) database: &'a str,
    /// The role in its start-up message.
    pub(crate) role: &'a str,
    /// Its address.
    pub(crate) address: IpAddr,
    pub(crate) is_encrypted: bool,
}

/// The rights of a role in the admin database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Right {
    /// Inquiry.
    See,
    /// All commands.
    Command,
}

/// The rules and rights of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    /// The first rule that fits decides.
    pub(crate) rules: Vec<Rule>,
    /// Roles that may run all commands of the admin database.
    pub(crate) admins: Vec<String>,
    /// Roles that may only run SHOW there.
    pub(crate) readers: Vec<String>,
    /// Every role may run all commands there.
    pub(crate) is_open: bool,
}

impl Access {
    /// Admits every client: for a node that only accounts of its own machine can reach.
    pub(crate) fn open() -> Self {
        let rule = Rule {
            transport: Transport::Any,
            databases: Names::All,
            roles: Names::All,
            network: Network::All,
            method: Method::Trust,
        };
        Self { rules: vec![rule], admins: Vec::new(), readers: Vec::new(), is_open: true }
    }

    /// The method of the first rule that fits; `None` if none fits.
    pub(crate) fn method(&self, visitor: LoginAttempt<'_>) -> Option<Method> {
        self.rules.iter().find(|rule| rule.fits(visitor)).map(|rule| rule.method)
    }

    pub(crate) fn right(&self, role: &str) -> Option<Right> {
        let has = |list: &[String]| list.iter().any(|name| name == role);
        if self.is_open || has(&self.admins) {
            return Some(Right::Command);
        }
        has(&self.readers).then_some(Right::See)
    }
}

impl Rule {
    /// Parses a rule.
    pub(crate) fn parse(line: &str) -> Result<Self, ValueError> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [transport, databases, roles, network, method] = words.as_slice() else {
            return Err(ValueError::NoRule { text: line.to_owned() });
        };
        let transport = match *transport {
            "host" => Transport::Any,
            "hostssl" => Transport::Encrypted,
            "hostnossl" => Transport::Plain,
            other => {
                let allowed = vec!["host", "hostssl", "hostnossl"];
                return Err(ValueError::UnknownWord { text: other.to_owned(), allowed });
            }
        };
        let network =
            Network::parse(network).ok_or_else(|| ValueError::NoNetwork { text: (*network).to_owned() })?;
        let method = match *method {
            "trust" => Method::Trust,
            "scram-sha-256" => Method::Scram,
            "reject" => Method::Reject,
            other => {
                let allowed = vec!["scram-sha-256", "trust", "reject"];
                return Err(ValueError::UnknownMethod { text: other.to_owned(), allowed });
            }
        };
        let (databases, roles) = (Names::parse(databases), Names::parse(roles));
        Ok(Self { transport, databases, roles, network, method })
    }

    /// Whether the rule admits clients from any address without proof of their role.
    pub(crate) fn trusts_anybody(&self) -> bool {
        let is_anywhere = matches!(self.network, Network::All | Network::Prefix(_, 0));
        self.method == Method::Trust && is_anywhere
    }

    fn fits(&self, visitor: LoginAttempt<'_>) -> bool {
        let transport = match self.transport {
            Transport::Any => true,
            Transport::Encrypted => visitor.is_encrypted,
            Transport::Plain => !visitor.is_encrypted,
        };
        transport
            && self.databases.has(visitor.database)
            && self.roles.has(visitor.role)
            && self.network.has(visitor.address)
    }
}

impl Names {
    fn parse(word: &str) -> Self {
        let names = || word.split(',').map(|name| name.trim_matches('"').to_owned()).collect();
        if word == "all" { Self::All } else { Self::These(names()) }
    }

    fn has(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::These(names) => names.iter().any(|known| known == name),
        }
    }
}

impl Network {
    fn parse(word: &str) -> Option<Self> {
        if word == "all" {
            return Some(Self::All);
        }
        let (address, length) = word.split_once('/').map_or((word, None), |(a, b)| (a, Some(b)));
        let address: IpAddr = address.parse().ok()?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let length = length.map_or(Some(bits), |text| text.parse().ok())?;
        (length <= bits).then_some(Self::Prefix(address, length))
    }

    fn has(self, address: IpAddr) -> bool {
        let Self::Prefix(network, length) = self else { return true };
        let bits = |address: IpAddr, shift: u32| match address {
            IpAddr::V4(v4) => u128::from(v4.to_bits().checked_shr(shift).unwrap_or_default()),
            IpAddr::V6(v6) => v6.to_bits().checked_shr(shift).unwrap_or_default(),
        };
        // A listener of IPv6 shows the addresses of IPv4 clients in this form.
        let address = address.to_canonical();
        let width: u32 = if network.is_ipv4() { 32 } else { 128 };
        let shift = width - u32::from(length);
        address.is_ipv4() == network.is_ipv4() && bits(address, shift) == bits(network, shift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(lines: &[&str]) -> Access {
        let rules = lines.iter().map(|line| Rule::parse(line).unwrap()).collect();
        Access { rules, admins: vec!["boss".to_owned()], readers: vec!["eye".to_owned()], is_open: false }
    }

    fn method(
        access: &Access,
        database: &str,
        role: &str,
        address: &str,
        is_encrypted: bool,
    ) -> Option<Method> {
        access.method(LoginAttempt { database, role, address: address.parse().unwrap(), is_encrypted })
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let access = access(&[
            "host all all 127.0.0.1/32 trust",
            "hostnossl shop all all reject",
            "hostssl shop app,\"Odd\" 10.1.0.0/16 scram-sha-256",
            "host other all ::1 scram-sha-256",
        ]);
        assert_eq!(method(&access, "shop", "joe", "127.0.0.1", false), Some(Method::Trust));
        assert_eq!(method(&access, "shop", "joe", "::ffff:127.0.0.1", false), Some(Method::Trust));
        assert_eq!(method(&access, "shop", "app", "10.1.2.3", false), Some(Method::Reject));
        assert_eq!(method(&access, "shop", "app", "10.1.2.3", true), Some(Method::Scram));
        assert_eq!(method(&access, "shop", "Odd", "10.1.2.3", true), Some(Method::Scram));
        assert_eq!(method(&access, "shop", "odd", "10.1.2.3", true), None);
        assert_eq!(method(&access, "shop", "app", "10.2.2.3", true), None);
        assert_eq!(method(&access, "other", "app", "::1", false), Some(Method::Scram));
        assert_eq!(method(&access, "other", "app", "::2", false), None);
        assert_eq!(method(&access, "other", "app", "0.0.0.1", false), None);
        assert_eq!(method(&Access::open(), "any", "any", "1.2.3.4", false), Some(Method::Trust));
    }

    #[test]
    fn rights_in_the_admin_database_are_of_their_own() {
        let access = access(&[]);
        assert_eq!(access.right("boss"), Some(Right::Command));
        assert_eq!(access.right("eye"), Some(Right::See));
        assert_eq!(access.right("joe"), None);
    }

    #[test]
    fn what_is_not_known_is_a_mistake() {
        for (line, what) in [
            ("host all all", "is no rule"),
            ("local all all all trust", "\"local\" is not known"),
            ("host all all 10.0.0.0/33 trust", "is no network"),
            ("host all all example.org trust", "is no network"),
            ("host all all all md5", "\"md5\" is not offered"),
        ] {
            let found = Rule::parse(line).unwrap_err().to_string();
            assert!(found.contains(what), "{line}: {found}");
        }
        assert!(Rule::parse("host all all 0.0.0.0/0 trust").unwrap().trusts_anybody());
        assert!(!Rule::parse("host all all 10.0.0.0/8 trust").unwrap().trusts_anybody());
    }
}
