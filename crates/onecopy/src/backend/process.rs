//! The server process at the other end of a connection: how to cancel its statement, and what it reported at log-in.

/// One server process.
#[derive(Debug, Default)]
pub(crate) struct Process {
    /// Its id.
    pub(crate) pid: i32,
    /// Its key for cancel requests.
    pub(crate) secret: Vec<u8>,
    /// The settings that it reported at log-in, in its order.
    pub(crate) parameters: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Process {
    /// The major version of the server; 0 if it is not reported.
    pub(crate) fn version(&self) -> u32 {
        let reported = self.parameters.iter().find(|(name, _)| name == b"server_version");
        let digits = reported.map_or(&b""[..], |(_, version)| version);
        let digits = digits.split(|byte| !byte.is_ascii_digit()).next().unwrap_or_default();
        std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_number_before_the_dot() {
        for (reported, version) in
            [("16.4", 16), ("17.2 (Debian 17.2-1.pgdg120+1)", 17), ("18beta1", 18), ("", 0), ("devel", 0)]
        {
            let parameters = vec![(b"server_version".to_vec(), reported.as_bytes().to_vec())];
            assert_eq!(Process { parameters, ..Process::default() }.version(), version, "{reported}");
        }
        assert_eq!(Process::default().version(), 0);
    }
}
