//! What the result cache's audit has found: with `ONECOPY_TEST_CACHE_AUDIT=all` Onecopy has each kept answer that it gives
//! executed as well, and compares the two.
//!
//! Example: 5,210 answers compared, one differs: the check fails, and the node's log has both answers. A check that compared none
//! shows nothing, so it fails, too.

/// The variable that turns the audit on. The nodes that are started here inherit it.
const VARIABLE: &str = "ONECOPY_TEST_CACHE_AUDIT";

/// Whether kept answers are compared.
pub(crate) fn is_on() -> bool {
    std::env::var(VARIABLE).is_ok_and(|which| which == "all")
}

/// Counters of SHOW CACHE.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct CacheAudit {
    compared: u64,
    differences: u64,
}

impl CacheAudit {
    /// From the rows of SHOW CACHE: name, value.
    pub(crate) fn of_rows(rows: &[Vec<String>]) -> Option<Self> {
        let count = |name: &str| {
            let row = rows.iter().find(|row| row.first().is_some_and(|first| first == name))?;
            row.get(1)?.parse().ok()
        };
        Some(Self { compared: count("audited")?, differences: count("differences")? })
    }

    /// Adds what was counted in another life of the node.
    pub(crate) fn add(&mut self, other: Self) {
        self.compared += other.compared;
        self.differences += other.differences;
    }

    /// A line for the report; an error if the promise is broken, or was not looked at.
    pub(crate) fn conclude(self) -> Result<String, String> {
        match self {
            Self { compared: 0, .. } => Err("no kept answer was compared with a replica's".to_owned()),
            Self { compared, differences: 0 } => {
                Ok(format!("{compared} kept answers are those of a replica at that moment"))
            }
            Self { compared, differences } => Err(format!(
                "{differences} of {compared} kept answers differ from a replica's; see the node's log"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::CacheAudit;

    fn shown(audited: &str, differences: &str) -> Option<CacheAudit> {
        let rows = [["hits", "7"], ["audited", audited], ["differences", differences]];
        CacheAudit::of_rows(&rows.map(|row| row.map(str::to_owned).to_vec()))
    }

    #[test]
    fn differences_and_no_comparison_are_errors() {
        assert!(shown("5", "0").is_some_and(|audit| audit.conclude().is_ok()));
        assert!(shown("5", "1").is_some_and(|audit| audit.conclude().is_err()));
        assert!(shown("0", "0").is_some_and(|audit| audit.conclude().is_err()));
        assert_eq!(shown("", "0"), None);
    }

    #[test]
    fn lives_add_up() {
        let (Some(mut audit), Some(other)) = (shown("5", "0"), shown("3", "1")) else {
            panic!("no counters")
        };
        audit.add(other);
        assert_eq!(shown("8", "1"), Some(audit));
    }
}
