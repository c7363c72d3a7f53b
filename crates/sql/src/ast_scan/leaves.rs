//! The strings and numbers inside a small part of a tree.
//!
//! A dotted name is a list of nodes that each hold a string. [`strings_in`] gathers the strings of such a list, at any
//! depth; [`number_in`] reads a field that is one number, an enum's value or a truth value.

use std::fmt;

use serde::ser::{self, Serialize};

use super::TooDeep;

impl fmt::Display for TooDeep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the syntax tree is too deep")
    }
}

impl std::error::Error for TooDeep {}

impl ser::Error for TooDeep {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

/// The parts of a dotted name; none if the value is anything but strings.
pub(crate) fn names_in<T: Serialize + ?Sized>(value: &T) -> Vec<String> {
    let mut leaves = Leaves { names_only: true, ..Leaves::default() };
    if value.serialize(&mut leaves).is_err() {
        leaves.strings.clear();
    }
    leaves.strings
}

/// All strings in a value, in order; none if it is nested beyond reason.
pub(crate) fn strings_in<T: Serialize + ?Sized>(value: &T) -> Vec<String> {
    let mut leaves = Leaves::default();
    if value.serialize(&mut leaves).is_err() {
        leaves.strings.clear();
    }
    leaves.strings
}

/// The one number in a value; 0 if there is none.
pub(crate) fn number_in<T: Serialize + ?Sized>(value: &T) -> i64 {
    let mut leaves = Leaves::default();
    match value.serialize(&mut leaves) {
        Ok(()) => leaves.number,
        Err(TooDeep) => 0,
    }
}

/// The kinds of the first two nodes in a value: the first node itself, and the first one in it or after it.
pub(crate) fn kinds_in<T: Serialize + ?Sized>(value: &T) -> [Option<&'static str>; 2] {
    let mut leaves = Leaves::default();
    match value.serialize(&mut leaves) {
        Ok(()) => leaves.kinds,
        Err(TooDeep) => [None; 2],
    }
}

#[derive(Default)]
struct Leaves {
    strings: Vec<String>,
    number: i64,
    kinds: [Option<&'static str>; 2],
    names_only: bool,
}

/// The methods of a serializer for values without parts, all of them doing nothing.
macro_rules! ignore_leaves {
    ($error:ty) => {
        $crate::ast_scan::leaves::ignore_leaves!(@each $error;
            serialize_bool bool, serialize_i8 i8, serialize_i16 i16, serialize_i32 i32, serialize_i64 i64,
            serialize_u8 u8, serialize_u16 u16, serialize_u32 u32, serialize_u64 u64, serialize_f32 f32,
            serialize_f64 f64, serialize_char char, serialize_str &str, serialize_bytes &[u8],
            serialize_unit_struct &'static str);
        $crate::ast_scan::leaves::ignore_leaves!(@shapes $error);
    };
    (@each $error:ty; $($method:ident $value:ty),*) => {
        $(fn $method(self, _: $value) -> Result<(), $error> {
            Ok(())
        })*
    };
    (@shapes $error:ty) => {
        fn serialize_none(self) -> Result<(), $error> {
            Ok(())
        }

        fn serialize_unit(self) -> Result<(), $error> {
            Ok(())
        }

        $crate::ast_scan::leaves::ignore_leaves!(@foreign $error);
    };
    (@foreign $error:ty) => {
        fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Result<(), $error> {
            Ok(())
        }

        fn serialize_tuple(self, _: usize) -> Result<Self::SerializeTuple, $error> {
            Err(TooDeep)
        }

        fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self::SerializeTupleStruct, $error> {
            Err(TooDeep)
        }

        fn serialize_tuple_variant(
            self,
            _: &'static str,
            _: u32,
            _: &'static str,
            _: usize,
        ) -> Result<Self::SerializeTupleVariant, $error> {
            Err(TooDeep)
        }

        fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, $error> {
            Err(TooDeep)
        }

        fn serialize_struct_variant(
            self,
            _: &'static str,
            _: u32,
            _: &'static str,
            _: usize,
        ) -> Result<Self::SerializeStructVariant, $error> {
            Err(TooDeep)
        }
    };
}

pub(super) use ignore_leaves;

impl ser::Serializer for &mut Leaves {
    type Ok = ();
    type Error = TooDeep;
    type SerializeSeq = Self;
    type SerializeTuple = ser::Impossible<(), TooDeep>;
    type SerializeTupleStruct = ser::Impossible<(), TooDeep>;
    type SerializeTupleVariant = ser::Impossible<(), TooDeep>;
    type SerializeMap = ser::Impossible<(), TooDeep>;
    type SerializeStruct = Self;
    type SerializeStructVariant = ser::Impossible<(), TooDeep>;

    fn serialize_bool(self, value: bool) -> Result<(), TooDeep> {
        self.number = value.into();
        Ok(())
    }

    fn serialize_i32(self, value: i32) -> Result<(), TooDeep> {
        self.number = value.into();
        Ok(())
    }

    fn serialize_str(self, value: &str) -> Result<(), TooDeep> {
        self.strings.push(value.to_owned());
        Ok(())
    }

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
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), TooDeep> {
        if let Some(free) = self.kinds.iter_mut().find(|kind| kind.is_none()) {
            *free = Some(variant);
        }
        // The strings of a subscript are values, not names.
        if variant == "AIndices" { Ok(()) } else { value.serialize(self) }
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self, TooDeep> {
        Ok(self)
    }

    fn serialize_struct(self, node: &'static str, _: usize) -> Result<Self, TooDeep> {
        let name = matches!(node, "Node" | "String" | "List");
        if self.names_only && !name { Err(TooDeep) } else { Ok(self) }
    }

    ignore_leaves!(@each TooDeep;
        serialize_i8 i8, serialize_i16 i16, serialize_i64 i64, serialize_u8 u8, serialize_u16 u16, serialize_u32 u32,
        serialize_u64 u64, serialize_f32 f32, serialize_f64 f64, serialize_char char, serialize_bytes &[u8],
        serialize_unit_struct &'static str);
    ignore_leaves!(@shapes TooDeep);
}

impl ser::SerializeSeq for &mut Leaves {
    type Ok = ();
    type Error = TooDeep;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), TooDeep> {
        value.serialize(&mut **self)
    }

    fn end(self) -> Result<(), TooDeep> {
        Ok(())
    }
}

impl ser::SerializeStruct for &mut Leaves {
    type Ok = ();
    type Error = TooDeep;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, _: &'static str, value: &T) -> Result<(), TooDeep> {
        value.serialize(&mut **self)
    }

    fn end(self) -> Result<(), TooDeep> {
        Ok(())
    }
}
