//! The walk itself: a serializer that writes nothing, and shows each field to the scan before it goes into it.

use serde::ser::{self, Serialize};

use super::{AstScan, Place, Relation, TooDeep, kinds_in, leaves, strings_in};
use crate::name::SYSTEM_SCHEMA;

/// The walk through the fields of one node.
pub(crate) struct Fields<'a> {
    scan: &'a mut AstScan,
    node: &'static str,
    relation: Relation,
    /// What is cast is no constant.
    casts_value: bool,
}

impl ser::SerializeStruct for Fields<'_> {
    type Ok = ();
    type Error = TooDeep;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        field: &'static str,
        value: &T,
    ) -> Result<(), TooDeep> {
        self.scan.inspect(self.node, field, value);
        if self.node == "RangeVar" {
            let slot = match field {
                "catalogname" => &mut self.relation.database,
                "schemaname" => &mut self.relation.schema,
                "relname" => &mut self.relation.name,
                _ => return Ok(()),
            };
            *slot = strings_in(value).pop().unwrap_or_default();
            return Ok(());
        }
        // FOR UPDATE OF names aliases, not relations.
        if (self.node, field) == ("LockingClause", "locked_rels") {
            return Ok(());
        }
        match (self.node, field) {
            ("TypeCast", "arg") => {
                self.casts_value = !matches!(kinds_in(value)[0], Some("AConst" | "ParamRef"));
            }
            ("TypeCast", "type_name") if self.casts_value => {
                let names = strings_in(value).into_iter().filter(|name| name != SYSTEM_SCHEMA);
                self.scan.fleeting.casts.extend(names);
            }
            _ => {}
        }
        value.serialize(&mut *self.scan)?;
        // A target clause without a relation must not mark the next one.
        if matches!(field, "relation" | "rel") {
            self.scan.place = Place::Read;
        }
        Ok(())
    }

    fn end(self) -> Result<(), TooDeep> {
        if self.node == "RangeVar" {
            self.scan.take_relation(self.relation);
        }
        self.scan.depth -= 1;
        Ok(())
    }
}

/// The walk through the items of a list.
pub(crate) struct Items<'a>(&'a mut AstScan);

impl ser::SerializeSeq for Items<'_> {
    type Ok = ();
    type Error = TooDeep;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), TooDeep> {
        value.serialize(&mut *self.0)
    }

    fn end(self) -> Result<(), TooDeep> {
        Ok(())
    }
}

impl<'a> ser::Serializer for &'a mut AstScan {
    type Ok = ();
    type Error = TooDeep;
    type SerializeSeq = Items<'a>;
    type SerializeTuple = ser::Impossible<(), TooDeep>;
    type SerializeTupleStruct = ser::Impossible<(), TooDeep>;
    type SerializeTupleVariant = ser::Impossible<(), TooDeep>;
    type SerializeMap = ser::Impossible<(), TooDeep>;
    type SerializeStruct = Fields<'a>;
    type SerializeStructVariant = ser::Impossible<(), TooDeep>;

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), TooDeep> {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), TooDeep> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        of: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), TooDeep> {
        if of == "Node" && !matches!(variant, "String" | "AStar" | "Integer") {
            self.nodes += 1;
        }
        value.serialize(self)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Items<'a>, TooDeep> {
        Ok(Items(self))
    }

    fn serialize_struct(self, node: &'static str, _: usize) -> Result<Fields<'a>, TooDeep> {
        self.enter(node)?;
        Ok(Fields { scan: self, node, relation: Relation::default(), casts_value: false })
    }

    leaves::ignore_leaves!(TooDeep);
}
