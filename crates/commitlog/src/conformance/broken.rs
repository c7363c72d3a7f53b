//! The file engine with one fault at a time: each test of conformance must fail on the engine that has its fault.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cluster::ids::Version;
use cluster::record::Record;

use super::{
    Subject, a_closed_log_takes_nothing, a_full_log_refuses_until_there_is_room, readers_follow_the_writer,
    records_are_read_in_order, records_outlive_the_engine, spilled_rows_live_as_long_as_their_record,
    trimming_keeps_what_is_needed,
};
use crate::file::tests::Files;
use crate::{BoxFuture, InMemory, LogEngine, LogError, LogRefusal, Notices, Recovered, SpillStore};

/// A way in which an engine can be wrong.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Fault {
    ReadsOutOfOrder,
    LosesTheLastRecord,
    TakesRecordsAfterTheClose,
    ReportsDurableTooEarly,
    TrimsTooMuch,
    NeverRefuses,
    LosesSpilledRows,
}

/// The file engine with a fault.
struct Broken {
    inner: Box<dyn LogEngine>,
    fault: Fault,
    appended: Mutex<Version>,
    /// The last record, which is said to be durable, and is appended with the next one.
    kept_back: Mutex<Option<Arc<Record>>>,
    is_closed: AtomicBool,
}

impl Broken {
    fn has(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    /// What the faulty engine takes for the last durable version.
    fn last(&self) -> Version {
        let appended = *self.appended.lock().unwrap();
        let is_early = self.has(Fault::ReportsDurableTooEarly)
            || (self.has(Fault::TakesRecordsAfterTheClose) && self.is_closed.load(Ordering::Relaxed));
        if is_early { appended.max(self.inner.durable()) } else { self.inner.durable() }
    }
}

impl LogEngine for Broken {
    fn start(&self, notices: Notices) -> Result<(), LogError> {
        self.inner.start(notices)
    }

    fn append(&self, record: Arc<Record>) {
        *self.appended.lock().unwrap() = record.header().last;
        if !self.has(Fault::ReportsDurableTooEarly) {
            self.inner.append(record);
        } else if let Some(before) = self.kept_back.lock().unwrap().replace(record) {
            self.inner.append(before);
        }
    }

    fn has_room(&self) -> bool {
        self.inner.has_room()
    }

    fn refusal(&self) -> Option<LogRefusal> {
        self.inner.refusal().filter(|_| !self.has(Fault::NeverRefuses))
    }

    fn durable(&self) -> Version {
        self.last()
    }

    fn first_retained(&self) -> Version {
        self.inner.first_retained()
    }

    fn read_from(
        &self,
        version: Version,
        max_bytes: usize,
    ) -> BoxFuture<'_, Result<Vec<Arc<Record>>, LogError>> {
        Box::pin(async move {
            let mut records = self.inner.read_from(version, max_bytes).await?;
            if self.has(Fault::ReadsOutOfOrder) {
                records.reverse();
            }
            Ok(records)
        })
    }

    fn spills(&self) -> Arc<dyn SpillStore> {
        self.inner.spills()
    }

    fn shrink(&self, upto: Version, max_bytes: u64) -> BoxFuture<'_, Result<Version, LogError>> {
        let upto =
            if self.has(Fault::TrimsTooMuch) && upto > Version::ZERO { Version(upto.0 + 25) } else { upto };
        self.inner.shrink(upto, max_bytes)
    }

    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn in_memory(&self) -> InMemory {
        self.inner.in_memory()
    }

    fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.inner.close();
    }
}

/// The file engine with the fault of that number.
#[derive(Default)]
struct BrokenFiles<const FAULT: usize>(Files);

impl<const FAULT: usize> Subject for BrokenFiles<FAULT> {
    const PATIENCE: Duration = Duration::from_secs(2);

    fn open(&self) -> (Box<dyn LogEngine>, Recovered) {
        let fault = FAULTS[FAULT];
        if fault == Fault::LosesSpilledRows {
            self.0.lose_spilled_rows();
        }
        let (inner, mut recovered) = self.0.open();
        if fault == Fault::LosesTheLastRecord && recovered.last > Version::ZERO {
            recovered.last = Version(recovered.last.0 - 1);
        }
        let (appended, is_closed) = (Mutex::new(recovered.last), AtomicBool::new(false));
        let kept_back = Mutex::new(None);
        (Box::new(Broken { inner, fault, appended, kept_back, is_closed }), recovered)
    }

    fn set_full(&self, is_full: bool) {
        self.0.set_full(is_full);
    }
}

const FAULTS: [Fault; 7] = [
    Fault::ReadsOutOfOrder,
    Fault::LosesTheLastRecord,
    Fault::TakesRecordsAfterTheClose,
    Fault::ReportsDurableTooEarly,
    Fault::TrimsTooMuch,
    Fault::NeverRefuses,
    Fault::LosesSpilledRows,
];

#[test]
#[should_panic(expected = "is as it was appended")]
fn reading_out_of_order_is_noticed() {
    records_are_read_in_order::<BrokenFiles<0>>();
}

#[test]
#[should_panic(expected = "Version(50)")]
fn losing_the_last_record_is_noticed() {
    records_outlive_the_engine::<BrokenFiles<1>>();
}

#[test]
#[should_panic(expected = "Version(3)")]
fn taking_records_after_the_close_is_noticed() {
    a_closed_log_takes_nothing::<BrokenFiles<2>>();
}

#[test]
#[should_panic(expected = "Any")]
fn reporting_durable_too_early_is_noticed() {
    readers_follow_the_writer::<BrokenFiles<3>>();
}

#[test]
#[should_panic(expected = "version 31 is not kept")]
fn trimming_too_much_is_noticed() {
    trimming_keeps_what_is_needed::<BrokenFiles<4>>();
}

#[test]
#[should_panic(expected = "a full log refuses")]
fn a_log_that_never_refuses_is_noticed() {
    a_full_log_refuses_until_there_is_room::<BrokenFiles<5>>();
}

#[test]
#[should_panic(expected = "SpillMissing")]
fn losing_spilled_rows_is_noticed() {
    spilled_rows_live_as_long_as_their_record::<BrokenFiles<6>>();
}
