//! When calls are due, where a rate is set.
//!
//! Each call takes the next place of one fixed schedule. A place that comes up while all slots are busy is
//! taken late, and the latency counts from when it was due: a server that stalls is charged for all the
//! calls that its stall held up, not only for those that were under way.

use super::mix::{Mix, Step};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use tokio::sync::Semaphore;

/// Sleeps are no shorter: places that come up meanwhile are given out together.
const SLEEP_MIN: Duration = Duration::from_micros(100);

pub(super) struct Pace {
    begun: Instant,
    interval: Duration,
    /// Places that are due and not yet taken.
    due: Semaphore,
    taken: AtomicU64,
}

/// The time between two calls for this many ops a second; none: no schedule.
pub(super) fn interval(mix: Mix, ops_per_second: u32) -> Option<Duration> {
    let steps = mix.steps();
    let ops: u64 = steps.iter().map(|step: &Step| step.ops()).sum();
    #[expect(clippy::cast_precision_loss, reason = "a cycle has a few")]
    let ops_per_call = ops as f64 / steps.len() as f64;
    (ops_per_second > 0).then(|| Duration::from_secs_f64(ops_per_call / f64::from(ops_per_second)))
}

impl Pace {
    /// Starts the schedule. A thread of its own keeps it: the runtime's timers are only good to a millisecond.
    pub fn start(interval: Duration) -> Arc<Self> {
        let pace = Arc::new(Self {
            begun: Instant::now(),
            interval,
            due: Semaphore::new(0),
            taken: AtomicU64::new(0),
        });
        let given = Arc::clone(&pace);
        thread::spawn(move || given.give());
        pace
    }

    fn give(&self) {
        let mut given = 0_u64;
        while !self.due.is_closed() {
            let passed = self.begun.elapsed();
            #[expect(clippy::cast_possible_truncation, reason = "a run has less than 2^64 places")]
            let due = (passed.as_nanos() / self.interval.as_nanos().max(1)) as u64 + 1;
            let new = usize::try_from(due.saturating_sub(given)).unwrap_or(usize::MAX);
            self.due.add_permits(new.min(Semaphore::MAX_PERMITS - self.due.available_permits()));
            given = due;
            thread::sleep(self.place(due).saturating_duration_since(Instant::now()).max(SLEEP_MIN));
        }
    }

    fn place(&self, number: u64) -> Instant {
        let nanos = self.interval.as_nanos().saturating_mul(u128::from(number));
        self.begun + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Waits for the next place and takes it: when the call was due. None where the schedule has ended.
    pub async fn turn(&self) -> Option<Instant> {
        self.due.acquire().await.ok()?.forget();
        Some(self.place(self.taken.fetch_add(1, Ordering::Relaxed)))
    }

    /// Ends the schedule; answers how many places had come up and were not taken.
    pub fn end(&self) -> u64 {
        let missed = self.due.available_permits() as u64;
        self.due.close();
        missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn places_are_given_when_due_and_late_takers_learn_when_that_was() {
        let pace = Pace::start(Duration::from_millis(10));
        let first = pace.turn().await.unwrap();
        let second = pace.turn().await.unwrap();
        assert_eq!(second - first, Duration::from_millis(10));
        assert!(Instant::now() >= second, "not before it is due");
        tokio::time::sleep(Duration::from_millis(55)).await;
        let third = pace.turn().await.unwrap();
        assert!(third.elapsed() >= Duration::from_millis(40), "counted from when it was due");
        assert!((2..=60).contains(&pace.end()));
        assert!(pace.turn().await.is_none());
    }

    #[test]
    fn the_rate_counts_ops_and_not_calls() {
        assert_eq!(interval(Mix::Lifecycle, 0), None);
        assert_eq!(interval(Mix::Lifecycle, 1000), Some(Duration::from_millis(1)));
        assert_eq!(interval(Mix::Short, 1000), Some(Duration::from_micros(1500)));
    }
}
