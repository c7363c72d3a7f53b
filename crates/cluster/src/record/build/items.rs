//! The items of a record that are no row changes: statements, marks of sequences, fences, and the origin.
//!
//! Example: a schema change is a statement; the rows that it has written follow it as row changes of their own.

use super::{ITEM_HEAD_BYTES, RecordBuilder, TooLarge};
use crate::record::read::kind;
use crate::record::{Origin, Sequence, Shipped, Statement};

impl RecordBuilder {
    /// Adds a statement that every replica runs as it stands.
    pub fn push_statement(&mut self, statement: &Statement) -> Result<(), TooLarge> {
        let texts = [&statement.text, &statement.role, &statement.search_path];
        let settings = statement.settings.iter().flat_map(|(name, value)| [name, value]);
        let need = ITEM_HEAD_BYTES
            + 4
            + texts.into_iter().chain(settings.clone()).map(|t| 4 + t.len()).sum::<usize>();
        self.start_item(kind::STATEMENT, need)?;
        for text in texts {
            self.put_sized(text.as_bytes());
        }
        self.put_u32(statement.settings.len() as u32);
        for text in settings {
            self.put_sized(text.as_bytes());
        }
        self.statements += 1;
        self.elements += 1;
        Ok(())
    }

    /// Adds a client's statement. Without holders, every replica runs it.
    pub fn push_shipped(&mut self, shipped: &Shipped) -> Result<(), TooLarge> {
        let Shipped { role, settings, text, is_extended, types, values, holders } = shipped;
        let parts = [role.as_bytes(), settings.as_bytes(), text, types, values];
        // Earlier releases do not read a statement with holders, so they cannot run it where it is not held.
        let holders = holders.map(|holders| holders.bits().to_le_bytes());
        let sized = parts.iter().map(|part| 4 + part.len()).sum::<usize>();
        let need = ITEM_HEAD_BYTES + 1 + sized + holders.map_or(0, |holders| holders.len());
        self.start_item(kind::SHIPPED, need)?;
        let (before, after) = parts.split_at(3);
        for part in before {
            self.put_sized(part);
        }
        self.bytes.push(u8::from(*is_extended));
        for part in after {
            self.put_sized(part);
        }
        self.bytes.extend(holders.into_iter().flatten());
        self.statements += 1;
        self.elements += 1;
        Ok(())
    }

    /// Adds a mark of a sequence.
    pub fn push_sequence(&mut self, sequence: &Sequence) -> Result<(), TooLarge> {
        const SEQUENCE_BYTES: usize = 4 + 2 + 8 + 8 + 1 + 1;
        assert_eq!(sequence.id.database, self.database, "a transaction runs in one database");
        self.start_item(kind::SEQUENCE, ITEM_HEAD_BYTES + SEQUENCE_BYTES)?;
        self.put_u32(sequence.id.number);
        self.bytes.extend_from_slice(&sequence.holder.0.to_le_bytes());
        self.bytes.extend_from_slice(&sequence.generation.to_le_bytes());
        self.bytes.extend_from_slice(&sequence.value.to_le_bytes());
        self.bytes.push(u8::from(sequence.called));
        self.bytes.push(u8::from(sequence.descends));
        self.sequences += 1;
        self.elements += 1;
        Ok(())
    }

    /// Adds the sign that a new leader's term begins here.
    pub fn push_fence(&mut self) -> Result<(), TooLarge> {
        self.start_item(kind::FENCE, ITEM_HEAD_BYTES)?;
        self.fences += 1;
        self.elements += 1;
        Ok(())
    }

    /// Tells where the transaction ran and what it claimed. Added once, after all else.
    pub fn push_origin(&mut self, origin: &Origin) -> Result<(), TooLarge> {
        let bytes = origin.encode();
        self.start_item(kind::ORIGIN, ITEM_HEAD_BYTES + bytes.len())?;
        self.bytes.extend_from_slice(&bytes);
        self.has_origin = true;
        self.elements += 1;
        Ok(())
    }
}
