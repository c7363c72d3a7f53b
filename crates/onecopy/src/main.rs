//! Onecopy: unmodified PostgreSQL servers behind one address, as one copy of the database.

mod backend;

fn main() {}
