//! What is under way and what was finished, as metrics.
//!
//! | metric | type | from |
//! | --- | --- | --- |
//! | `opledger_operations{status,action_type}` | gauge | database: `in_progress`, `unknown`, `pending_delivery` |
//! | `opledger_reviews_waiting{action_type}` | gauge | database |
//! | `opledger_checks_due` | gauge | database |
//! | `opledger_oldest_unknown_age_seconds` | gauge | database; 0: none |
//! | `opledger_oldest_review_age_seconds` | gauge | database; 0: none |
//! | `opledger_figures_read_timestamp_seconds` | gauge | when the gauges above were read, on this machine's clock |
//! | `opledger_operations_finished_total{status,action_type}` | counter | this replica's own writes |
//!
//! Finished operations are counted as they are written, not in the database: `count(*)` over ten million
//! rows reads all of them, every time, and pushes what the calls need out of the cache. The sum over all
//! replicas is what was finished since they started; an outcome whose write was answered with a lost
//! connection is found again as a repeat and is missing in it. Exact counts are a query on a standby.

use super::{Registry, register};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError, RwLock, atomic::AtomicU64},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Action types are the callers' own words: beyond so many, the rest is shown as [`OTHER`].
const ACTION_TYPES_MAX: usize = 200;
/// The label of the rest.
const OTHER: &str = "other";

/// Labels of the operations of one status.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabels {
    status: &'static str,
    action_type: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ActionLabels {
    action_type: String,
}

/// What the database says about unfinished work at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkFigures {
    /// How many operations, by action type and status.
    pub operations: BTreeMap<(String, &'static str), u64>,
    /// How many wait for a person, by action type.
    pub reviews: BTreeMap<String, u64>,
    /// Checks that a checker may take now.
    pub checks_due: u64,
    /// How long the oldest unknown outcome has been unknown.
    pub oldest_unknown: Option<Duration>,
    /// How long the oldest review has waited.
    pub oldest_review: Option<Duration>,
}

/// The metrics of this module.
pub(super) struct Work {
    operations: Family<StatusLabels, Gauge>,
    reviews: Family<ActionLabels, Gauge>,
    checks_due: Gauge,
    oldest_unknown: Gauge<f64, AtomicU64>,
    oldest_review: Gauge<f64, AtomicU64>,
    read_at: Gauge<f64, AtomicU64>,
    /// What the two families show now: what is gone is taken out.
    shown: Mutex<(HashSet<StatusLabels>, HashSet<ActionLabels>)>,
    finished: Family<StatusLabels, Counter>,
    /// The counters by action type, first succeeded, then finally failed: counting formats and allocates nothing.
    finished_by: RwLock<HashMap<Arc<str>, [Counter; 2]>>,
}

impl Work {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let mut age = |name, help: &str| register(registry, name, help, Gauge::<f64, AtomicU64>::default());
        Self {
            oldest_unknown: age("oldest_unknown_age_seconds", "Age of the oldest unknown outcome; 0: none"),
            oldest_review: age("oldest_review_age_seconds", "Age of the oldest waiting review; 0: none"),
            read_at: age(
                "figures_read_timestamp_seconds",
                "When the figures of unfinished work were read from the database",
            ),
            operations: register(
                registry,
                "operations",
                "Unfinished operations that are held, unknown, or wait for a deliverer",
                Family::default(),
            ),
            reviews: register(
                registry,
                "reviews_waiting",
                "Operations that wait for a person",
                Family::default(),
            ),
            checks_due: register(
                registry,
                "checks_due",
                "Checks that nobody has taken yet",
                Gauge::default(),
            ),
            finished: register(
                registry,
                "operations_finished",
                "Operations that this replica finished",
                Family::default(),
            ),
            shown: Mutex::default(),
            finished_by: RwLock::default(),
        }
    }

    pub(super) fn show(&self, figures: &WorkFigures) {
        let named = named(figures);
        let label = |action_type: &String| {
            if named.contains(action_type) { action_type.clone() } else { OTHER.to_owned() }
        };
        let mut operations: HashMap<StatusLabels, u64> = HashMap::new();
        for ((action_type, status), count) in &figures.operations {
            let labels = StatusLabels { status, action_type: label(action_type) };
            *operations.entry(labels).or_default() += count;
        }
        let mut reviews: HashMap<ActionLabels, u64> = HashMap::new();
        for (action_type, count) in &figures.reviews {
            *reviews.entry(ActionLabels { action_type: label(action_type) }).or_default() += count;
        }
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        shown.0 = replace(&self.operations, &shown.0, operations);
        shown.1 = replace(&self.reviews, &shown.1, reviews);
        drop(shown);
        self.checks_due.set(gauge(figures.checks_due));
        self.oldest_unknown.set(figures.oldest_unknown.unwrap_or_default().as_secs_f64());
        self.oldest_review.set(figures.oldest_review.unwrap_or_default().as_secs_f64());
        self.read_at.set(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64());
    }

    pub(super) fn finished(&self, action_type: &Arc<str>, succeeded: bool) {
        let place = usize::from(!succeeded);
        let known = self.finished_by.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(counters) = known.get(action_type).or_else(|| {
            // Full: no more names, and no lock that excludes others.
            known.get(OTHER).filter(|_| known.len() > ACTION_TYPES_MAX)
        }) {
            counters[place].inc();
            return;
        }
        drop(known);
        let mut known = self.finished_by.write().unwrap_or_else(PoisonError::into_inner);
        let name = if known.len() < ACTION_TYPES_MAX { action_type.clone() } else { OTHER.into() };
        let counters = known.entry(name.clone()).or_insert_with(|| {
            ["succeeded", "failed_final"].map(|status| {
                let labels = StatusLabels { status, action_type: name.to_string() };
                self.finished.get_or_create_owned(&labels)
            })
        });
        counters[place].inc();
    }
}

/// The action types with the most work: those that get a label of their own.
fn named(figures: &WorkFigures) -> HashSet<String> {
    let mut totals: HashMap<&String, u64> = HashMap::new();
    let operations = figures.operations.iter().map(|((action_type, _), count)| (action_type, count));
    for (action_type, count) in operations.chain(&figures.reviews) {
        *totals.entry(action_type).or_default() += count;
    }
    let mut totals: Vec<_> = totals.into_iter().collect();
    totals.sort_by_key(|(action_type, count)| (std::cmp::Reverse(*count), *action_type));
    totals.into_iter().take(ACTION_TYPES_MAX).map(|(action_type, _)| action_type.clone()).collect()
}

/// Shows these values and no others, without a moment at which those that stay are missing.
fn replace<L>(family: &Family<L, Gauge>, before: &HashSet<L>, values: HashMap<L, u64>) -> HashSet<L>
where
    L: Clone + std::hash::Hash + Eq,
{
    for gone in before.iter().filter(|labels| !values.contains_key(*labels)) {
        family.remove(gone);
    }
    values
        .into_iter()
        .map(|(labels, count)| {
            family.get_or_create(&labels).set(gauge(count));
            labels
        })
        .collect()
}

fn gauge(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Metrics;

    #[test]
    fn action_types_are_bounded() {
        let metrics = Metrics::new();
        let many = || (0..ACTION_TYPES_MAX + 50).map(|number| format!("tool-{number:03}"));
        for action_type in many() {
            metrics.operation_finished(&action_type.as_str().into(), true);
            metrics.operation_finished(&action_type.as_str().into(), false);
        }
        let mut figures = WorkFigures::default();
        figures.operations.extend(many().map(|action_type| ((action_type, "unknown"), 1)));
        figures.operations.insert(("tool-249".to_owned(), "unknown"), 7);
        metrics.show_work(&figures);
        let text = metrics.encode();
        for line in [
            "opledger_operations_finished_total{status=\"succeeded\",action_type=\"tool-000\"} 1",
            "opledger_operations_finished_total{status=\"succeeded\",action_type=\"other\"} 50",
            "opledger_operations_finished_total{status=\"failed_final\",action_type=\"other\"} 50",
            "opledger_operations{status=\"unknown\",action_type=\"tool-249\"} 7",
            "opledger_operations{status=\"unknown\",action_type=\"other\"} 50",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
        assert!(text.matches("action_type=").count() <= 3 * (ACTION_TYPES_MAX + 1));

        metrics.show_work(&WorkFigures::default());
        assert!(!metrics.encode().contains("opledger_operations{"), "what is gone is shown no more");
    }
}
