//! The heart of Onecopy: order, placement, visibility and records. Pure: inputs and time go in, effects come out.

pub mod ids;
pub mod record;
