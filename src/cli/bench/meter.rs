//! Counts calls. Each connection's calls go into a part of their own, so that slots seldom meet at a lock.

use super::mix::Step;
use hdrhistogram::Histogram;
use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
    time::{Duration, Instant},
};

/// Latencies are kept in microseconds with three digits, up to this.
const LATENCY_MAX_US: u64 = 3_600_000_000;
const DIGITS: u8 = 3;

/// Whether calls that end now count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Warming = 0,
    Measuring = 1,
    Over = 2,
}

/// Latencies, in microseconds.
pub(super) type Latencies = Histogram<u64>;

pub(super) fn latencies() -> Latencies {
    Histogram::new_with_max(LATENCY_MAX_US, DIGITS).expect("the limits are constants")
}

/// Why a call failed.
pub(super) struct Fault {
    /// The status code's name, or a name for an answer that was not the one expected.
    pub code: &'static str,
    pub message: String,
}

/// What was counted.
pub(super) struct Counts {
    /// Latencies of the calls that ended well while it was measured, by step.
    pub measured: [Option<Latencies>; Step::ALL.len()],
    /// Ops that ended well, measured or not.
    pub ops_total: u64,
    pub errors: BTreeMap<&'static str, u64>,
    pub first_error: Option<String>,
}

impl Counts {
    fn new() -> Self {
        Self {
            measured: [const { None }; Step::ALL.len()],
            ops_total: 0,
            errors: BTreeMap::new(),
            first_error: None,
        }
    }

    fn add(&mut self, other: &Counts) {
        for (sum, part) in self.measured.iter_mut().zip(&other.measured) {
            if let Some(part) = part {
                sum.get_or_insert_with(latencies).add(part).expect("all have the same limits");
            }
        }
        self.ops_total += other.ops_total;
        for (code, count) in &other.errors {
            *self.errors.entry(code).or_default() += count;
        }
        if self.first_error.is_none() {
            self.first_error.clone_from(&other.first_error);
        }
    }
}

pub(super) struct Meter {
    phase: AtomicU8,
    entered: Mutex<[Option<Instant>; 3]>,
    parts: Vec<Mutex<Counts>>,
}

impl Meter {
    pub fn new(parts: usize) -> Self {
        Self {
            phase: AtomicU8::new(Phase::Warming as u8),
            entered: Mutex::new([Some(Instant::now()), None, None]),
            parts: (0..parts.max(1)).map(|_| Mutex::new(Counts::new())).collect(),
        }
    }

    pub fn enter(&self, phase: Phase) {
        lock(&self.entered)[phase as usize] = Some(Instant::now());
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    pub fn is_over(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == Phase::Over as u8
    }

    /// How long it was measured.
    pub fn measured_for(&self) -> Duration {
        match *lock(&self.entered) {
            [_, Some(begun), Some(over)] => over - begun,
            _ => Duration::ZERO,
        }
    }

    pub fn succeeded(&self, part: usize, step: Step, took: Duration) {
        let measured = self.phase.load(Ordering::Relaxed) == Phase::Measuring as u8;
        let mut counts = lock(&self.parts[part % self.parts.len()]);
        counts.ops_total += step.ops();
        if measured {
            let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
            counts.measured[step as usize].get_or_insert_with(latencies).saturating_record(micros);
        }
    }

    pub fn failed(&self, part: usize, fault: Fault) {
        let mut counts = lock(&self.parts[part % self.parts.len()]);
        *counts.errors.entry(fault.code).or_default() += 1;
        counts.first_error.get_or_insert(fault.message);
    }

    /// Ops that ended well so far.
    pub fn ops(&self) -> u64 {
        self.parts.iter().map(|part| lock(part).ops_total).sum()
    }

    /// Calls that failed so far.
    pub fn errors(&self) -> u64 {
        self.parts.iter().map(|part| lock(part).errors.values().sum::<u64>()).sum()
    }

    /// All parts together.
    pub fn counts(&self) -> Counts {
        let mut sum = Counts::new();
        for part in &self.parts {
            sum.add(&lock(part));
        }
        sum
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
