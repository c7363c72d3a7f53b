//! The front end: clients' connections, from the listener to the last byte of a reply.
//!
//! | stage | file |
//! |---|---|
//! | accept | `accept`, `startup`, `login` (with `credentials`), `session`, `simple`, `extended` |
//! | parse, classify | `parsing`, `demand`, `statement` (with the crate `sql`) |
//! | order, place | `session::place` asks the hub; `course` foresees, `roaming` reads away from home, `definitions` keeps schema changes apart |
//! | execute | `statement`, `special`, `routing`, `ddl`, `passwords`, `rewritten`, `control`; `relay`, `notices`, `signals`, `stand_ins`, `writeset`, `copy_in`, `work`, `servers`, `opening` (shared: `pools`, `sharing`, `handing`, `dress`, `cached`); `pins`, `look`, `state`, `carried` |
//! | propagate, acknowledge | `transaction`, `commit`, `captured`, `chains`, `claims` |

mod accept;
mod admin;
mod alone;
mod cached;
mod cancel;
mod canonical;
mod captured;
mod carried;
mod chains;
pub(crate) mod check;
mod claims;
mod client;
mod commit;
mod control;
mod copy_in;
mod course;
mod credentials;
mod ddl;
mod definitions;
mod demand;
mod dress;
mod extended;
mod fault;
mod forbidden;
mod foresight;
mod guard;
mod handing;
mod homes;
mod leases;
mod line;
mod login;
mod look;
mod membership;
mod needs;
mod noted;
mod notices;
mod opening;
mod parsing;
mod passwords;
pub(crate) mod pins;
mod pools;
mod position;
mod prepared;
mod reasons;
mod relay;
mod residue;
mod rewritten;
mod rival;
mod roaming;
mod routing;
mod sent;
mod sequences;
mod servers;
mod session;
mod settings;
mod sharing;
mod signals;
mod simple;
mod special;
mod stand_ins;
mod startup;
mod state;
mod statement;
mod strain;
mod timeouts;
mod transaction;
pub(crate) mod verify;
mod wait;
mod work;
mod writeset;

pub(crate) use accept::Workers;
pub(crate) use cached::{Cached, name_of};
pub(crate) use cancel::{CancelTarget, Doing, Running, pid_of};
pub(crate) use client::Client;
pub(crate) use fault::{Fault, Refusal};
pub(crate) use forbidden::FORBIDDEN;
pub(crate) use leases::SEQUENCES_LENT;
pub(crate) use look::HidingCode;
pub(crate) use parsing::too_complex;
pub(crate) use pools::{POOL_MODE_TRANSACTION, Pooling, Pools, Usage};
pub(crate) use prepared::fresh_generation;
pub(crate) use rival::key_of;
pub(crate) use session::Worker;
pub(crate) use settings::Settings;
pub(crate) use startup::{ADMIN_DATABASE, DEFAULTS_SQL, WAITING_MAX, welcome};
pub(crate) use timeouts::{lifted, lifted_for_readers};
