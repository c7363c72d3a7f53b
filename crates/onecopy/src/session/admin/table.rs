//! An answer on its way to a client: the columns, once and before the first row, then the rows.

use wire::{encode, sqlstate};

use crate::error::Refusal;

/// The answer to one command.
pub(super) struct Table {
    columns: Vec<&'static str>,
    /// The client has the columns, or does not want them.
    is_described: bool,
}

impl Table {
    /// `describe`: the client wants the columns with the answer.
    pub(super) fn new(columns: Vec<&'static str>, describe: bool) -> Self {
        let is_described = !describe || columns.is_empty();
        Self { columns, is_described }
    }

    /// Appends rows. Those of a node of another release may have other columns; then nothing is appended.
    pub(super) fn add(&mut self, rows: &[Vec<String>], out: &mut Vec<u8>) -> Result<(), Refusal> {
        if rows.iter().any(|row| row.len() != self.columns.len()) {
            return Err(Refusal::new(
                sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                "the answer of the other node has other columns: it runs another release",
                "Say the command at that node, or run the same release at all nodes.",
            ));
        }
        self.end(out);
        for row in rows {
            let values: Vec<_> = row.iter().map(|value| Some(value.as_bytes())).collect();
            encode::data_row(out, &values);
        }
        Ok(())
    }

    /// Appends the columns, if there was no row before them.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.is_described, true) {
            encode::row_description(out, &self.columns);
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::backend::tag;

    use super::*;

    #[test]
    fn the_columns_come_once_and_rows_with_others_are_refused() {
        let (mut table, mut out) = (Table::new(vec!["a", "b"], true), Vec::new());
        let row = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>();
        assert_eq!(table.add(&[row(&["1"])], &mut out).unwrap_err().sqlstate, "55000");
        assert!(out.is_empty());
        table.add(&[row(&["1", "2"])], &mut out).unwrap();
        table.add(&[row(&["3", "4"])], &mut out).unwrap();
        table.end(&mut out);
        let (mut kinds, mut rest) = (Vec::new(), &out[..]);
        while let Some(frame) = wire::next_frame(rest).unwrap() {
            kinds.push(frame.tag);
            rest = &rest[frame.bytes.len()..];
        }
        assert_eq!(kinds, [tag::ROW_DESCRIPTION, tag::DATA_ROW, tag::DATA_ROW]);
    }
}
