//! Which replicas there are, and how one gets the data it lacks.
//!
//! [`members`] lets replicas join, drain and leave. [`adoption`] recognises servers of this cluster,
//! [`initial_copy`] fills an empty server, [`resync`] gives a replica the data of another one, and [`checkpoint`] that of an
//! earlier moment; [`base_backup`] copies the files for both. [`supervisor`] keeps a server of ours running. [`verify`] and [`check`] compare what replicas hold, by the sums of [`checksum`] ([`comparison`]).
//!
//! Invariant: a replica serves only after it holds the effect of every record up to the version where it joins.

pub(crate) mod adoption;
pub(crate) mod base_backup;
pub(crate) mod check;
pub(crate) mod checkpoint;
pub(crate) mod checksum;
pub(crate) mod cluster_file;
pub(crate) mod comparison;
pub(crate) mod initial_copy;
pub(crate) mod member_error;
pub(crate) mod members;
pub(crate) mod place_table;
pub(crate) mod reach;
pub(crate) mod resync;
pub(crate) mod supervisor;
pub(crate) mod verify;
