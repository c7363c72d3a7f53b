//! The check that statements of Onecopy's own mean the same under every search path.
//!
//! On a connection that logged in as a client's role that client has chosen the search path, and another role may own a
//! schema of it. A statement of ours with a bare `=` could call that role's operator with the client's rights. So every
//! such statement passes here before it is sent: [`super::Connection::simple`] is for Onecopy's own connections, which
//! begin with the path `pg_catalog, pg_temp`, and `cargo xtask tidy` holds the front end to that.
//!
//! Debug builds parse the statement, so each test on real servers checks what it makes Onecopy send.

/// A statement of Onecopy's own is about to be sent where a client's settings are in force.
pub(crate) fn assert_qualified(sql: &str) {
    #[cfg(debug_assertions)]
    {
        let found = checked::unqualified(sql);
        assert!(found.is_empty(), "a search path could change the meaning of {sql:?}: {found:?}");
    }
    #[cfg(not(debug_assertions))]
    let _ = sql;
}

#[cfg(debug_assertions)]
mod checked {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    /// So many texts are remembered by each thread.
    const REMEMBERED_MAX: usize = 1_000;

    thread_local! {
        static GOOD: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
    }

    pub(super) fn unqualified(sql: &str) -> Vec<String> {
        if GOOD.with_borrow(|good| good.contains(sql)) {
            return Vec::new();
        }
        let found = sql::unqualified(sql);
        if found.is_empty() {
            GOOD.with_borrow_mut(|good| {
                if good.len() == REMEMBERED_MAX {
                    good.clear();
                }
                good.insert(sql.to_owned())
            });
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "name =")]
    fn a_bare_operator_is_not_sent() {
        assert_qualified("SELECT 1 WHERE 1 = 1");
    }
}
