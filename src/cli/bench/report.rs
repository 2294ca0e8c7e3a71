//! Tells what was measured.

use super::{
    BenchArgs,
    load::Ended,
    meter::{Counts, Latencies, latencies},
    mix::Step,
};
use crate::cli::{
    json,
    output::{self, BAD, FAINT, STRONG, styled},
    table,
};
use serde::Serialize;
use std::collections::BTreeMap;

/// The numbers, with the names that `--json` gives them.
#[derive(Serialize)]
pub(super) struct Report {
    mix: String,
    target: String,
    namespace: String,
    in_flight: u32,
    connections: u32,
    rate: u32,
    payload_bytes: u32,
    result_bytes: u32,
    duration_s: f64,
    /// Durable changes while it was measured; calls, where the mix changes nothing.
    ops: u64,
    ops_per_s: f64,
    calls: u64,
    calls_per_s: f64,
    #[serde(flatten)]
    latency: Latency,
    by_call: BTreeMap<&'static str, Latency>,
    /// With those before and after, and those of calls that make what the others work on left out.
    ops_total: u64,
    /// Calls that were due by the rate and never made, for want of a free slot.
    missed: u64,
    errors: u64,
    errors_by_code: BTreeMap<&'static str, u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_error: Option<String>,
}

/// Latencies of calls that ended well, in milliseconds.
#[derive(Serialize)]
struct Latency {
    count: u64,
    mean_ms: f64,
    p50_ms: f64,
    p90_ms: f64,
    p99_ms: f64,
    p999_ms: f64,
    max_ms: f64,
}

impl Latency {
    fn of(latencies: &Latencies) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "microseconds up to an hour")]
        let quantile = |q: f64| latencies.value_at_quantile(q) as f64 / 1000.0;
        Self {
            count: latencies.len(),
            mean_ms: rounded(latencies.mean() / 1000.0),
            p50_ms: quantile(0.5),
            p90_ms: quantile(0.9),
            p99_ms: quantile(0.99),
            p999_ms: quantile(0.999),
            max_ms: quantile(1.0),
        }
    }
}

impl Report {
    pub fn new(args: &BenchArgs, ended: &Ended) -> Self {
        let counts = ended.meter.counts();
        let mut all = latencies();
        let mut by_call = BTreeMap::new();
        let mut ops = 0;
        for (step, measured) in measured(&counts) {
            all.add(measured).expect("all have the same limits");
            ops += measured.len() * step.ops();
            by_call.insert(step.name(), Latency::of(measured));
        }
        let duration_s = ended.meter.measured_for().as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a count of calls")]
        let per_second = |count: u64| if duration_s > 0.0 { rounded(count as f64 / duration_s) } else { 0.0 };
        Self {
            mix: args.mix.name(),
            target: args.target.clone(),
            namespace: args.namespace.clone(),
            in_flight: args.in_flight,
            connections: args.connections(),
            rate: args.rate,
            payload_bytes: args.payload_bytes,
            result_bytes: args.result_bytes,
            duration_s: rounded(duration_s),
            ops,
            ops_per_s: per_second(ops),
            calls: all.len(),
            calls_per_s: per_second(all.len()),
            latency: Latency::of(&all),
            by_call,
            ops_total: counts.ops_total,
            missed: ended.missed,
            errors: counts.errors.values().sum(),
            errors_by_code: counts.errors,
            first_error: counts.first_error,
        }
    }

    pub fn has_failures(&self) -> bool {
        self.errors > 0
    }

    pub fn print(&self, as_json: bool) {
        if as_json {
            return output::line(json::text(self));
        }
        output::line(format!(
            "{} {} ops/s  ({}, {} in flight, {} connections, {} s)",
            styled(STRONG, &self.mix),
            styled(STRONG, format!("{:.0}", self.ops_per_s)),
            format_args!("{} ops in {} calls", self.ops, self.calls),
            self.in_flight,
            self.connections,
            self.duration_s
        ));
        let head = ["call", "calls", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "max ms"];
        let mut rows = table::table(&head);
        for (name, latency) in &self.by_call {
            rows.add_row(latency.row(name));
        }
        if self.by_call.len() > 1 {
            rows.add_row(self.latency.row("all"));
        }
        table::print(rows, &[0]);
        if self.rate > 0 {
            let note = "latencies count from the moment that a call was due";
            output::line(styled(FAINT, note));
        }
        if self.missed > 0 {
            let text =
                format!("{} calls were due and never made: the rate is more than was answered", self.missed);
            output::line(styled(BAD, text));
        }
        for (code, count) in &self.errors_by_code {
            output::line(format!("{} {count}", styled(BAD, code)));
        }
        if let Some(first) = &self.first_error {
            output::line(format!("first error: {}", output::harmless(first)));
        }
    }
}

impl Latency {
    fn row(&self, name: &str) -> Vec<String> {
        let times = [self.p50_ms, self.p90_ms, self.p99_ms, self.p999_ms, self.max_ms];
        [name.to_owned(), self.count.to_string()]
            .into_iter()
            .chain(times.iter().map(|ms| format!("{ms:.2}")))
            .collect()
    }
}

fn measured(counts: &Counts) -> impl Iterator<Item = (Step, &Latencies)> {
    Step::ALL
        .into_iter()
        .zip(&counts.measured)
        .filter_map(|(step, measured)| Some((step, measured.as_ref()?)))
}

/// Three digits after the point.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
