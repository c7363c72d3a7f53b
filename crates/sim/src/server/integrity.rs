//! The constraints of the schema, checked over everything that a server shows.

use super::Server;
use crate::schema::{self, Key};

impl Server {
    /// The constraints that visible rows violate, as far as the server holds all that they are about.
    pub(super) fn integrity(&self) -> Option<String> {
        let is_held = |key: &Key| schema::is_held(&self.holdings, *key);
        if schema::rows_of(schema::ACCOUNTS).all(|key| is_held(&key)) {
            let total: i64 = schema::rows_of(schema::ACCOUNTS).map(|key| self.newest(key).balance).sum();
            if total != 0 {
                return Some(format!("the accounts hold {total} together"));
            }
        }
        let is_there = |key: &Key| is_held(key) && self.newest(*key).present;
        for key in schema::keys().filter(is_there) {
            if let Some(twin) = key.twin().filter(is_there) {
                return Some(format!("duplicate unique value: {key:?} and {twin:?}"));
            }
            if let Some(parent) = key.parent().filter(|parent| is_held(parent) && !is_there(parent)) {
                return Some(format!("orphan: {key:?} without {parent:?}"));
            }
        }
        None
    }
}
