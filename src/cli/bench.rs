//! `opledger bench`: a load generator whose numbers can be trusted.
//!
//! Layout: `mix` says which calls make one cycle and what they send, `pace` when a call is due, `load`
//! makes the calls, `meter` counts them, `report` tells.

use super::{
    Exit,
    client::{self, Failure},
    output,
};
use crate::{config::units, proto::ledger_client::LedgerClient};
use clap::Args;
use load::{Load, Numbers};
use meter::Phase;
use mix::{Messages, Mix};
use report::Report;
use std::{
    io::{IsTerminal, Write},
    sync::Arc,
    time::{Duration, Instant},
};
use tonic::transport::Channel;

mod load;
mod meter;
mod mix;
mod pace;
mod report;
mod socket;

/// Shown below the help.
pub const AFTER_HELP: &str = "\
What counts as one op is one durable change with its event: Register, Claim and Complete are one each, a \
Register that claims is two. The mixes that change nothing count each call.

Mixes:
  lifecycle       Register, Claim, Complete: three calls for each operation
  short           Register with a claim, Complete: two calls for each operation
  register        Register alone; the operations stay pending
  claim-complete  Claim, Complete, of operations that were registered before the clock starts
  replay          Register again what is finished long since
  get             Get what is finished

It writes into the ledger that it is pointed at, in a namespace of its own (--namespace). A cycle that was \
begun is finished after the time is over, so nothing is left half way. Exit code 1: a call failed.";

/// How many finished operations `replay` and `get` go round in.
const POOL: u64 = 1024;
/// Calls that are still unanswered so long after the end are given up, and counted as errors.
const GRACE: Duration = Duration::from_secs(20);

/// Options of `opledger bench`.
#[derive(Args)]
pub struct BenchArgs {
    /// Where the service is
    #[arg(long, env = "OPLEDGER_TARGET", value_name = "URL", default_value = "http://127.0.0.1:50051")]
    target: String,
    /// The namespace to write to
    #[arg(long, value_name = "NAME", default_value = "bench")]
    namespace: String,
    /// Which calls to make; see below
    #[arg(long, value_enum, default_value_t = Mix::Lifecycle)]
    mix: Mix,
    /// Calls under way at the same time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    in_flight: u32,
    /// Connections that they share [default: one for each 32 in flight, at most 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    connections: Option<u32>,
    /// How long to measure
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = units::duration)]
    duration: Duration,
    /// How long to run before, uncounted
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = units::duration)]
    warmup: Duration,
    /// Ops that are begun each second; latencies then count from the moment that a call was due. 0: as
    /// many as are answered
    #[arg(long, value_name = "OPS", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=10_000_000))]
    rate: u32,
    /// Length of the request that is registered, a JSON text
    #[arg(long, value_name = "BYTES", default_value_t = 256, value_parser = clap::value_parser!(u32).range(2..=4_194_304))]
    payload_bytes: u32,
    /// Length of the result that is reported, a JSON text
    #[arg(long, value_name = "BYTES", default_value_t = 230, value_parser = clap::value_parser!(u32).range(2..=4_194_304))]
    result_bytes: u32,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

impl BenchArgs {
    /// One HTTP/2 connection is one task at both ends: a single one would keep to one core.
    fn connections(&self) -> u32 {
        self.connections.unwrap_or_else(|| self.in_flight.div_ceil(32).min(8)).min(self.in_flight)
    }
}

/// Runs the load.
#[must_use]
pub fn run(args: &BenchArgs) -> Exit {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    // One call at a time needs one thread: a second one would only have to be woken.
    let threads = cores.min(args.connections() as usize);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            output::error(format!("cannot start: {error}"));
            return Exit::Failed;
        }
    };
    match runtime.block_on(measure(args)) {
        Ok(report) => {
            report.print(args.json);
            if report.has_failures() { Exit::Failed } else { Exit::Ok }
        }
        Err(failure) => failure.report(args.json),
    }
}

async fn measure(args: &BenchArgs) -> Result<Report, Failure> {
    let mut clients = Vec::new();
    for _ in 0..args.connections() {
        clients.push(connect(&args.target).await?);
    }
    let messages = Arc::new(Messages::new(&args.namespace, args.payload_bytes, args.result_bytes));
    let start =
        |steps, numbers, interval| Load::start(&clients, args.in_flight, &messages, steps, numbers, interval);
    let progress = Progress::new();

    let numbers = match args.mix {
        Mix::Lifecycle | Mix::Short | Mix::Register => Numbers::New,
        Mix::Replay | Mix::Get => Numbers::Round(POOL),
        Mix::ClaimComplete => Numbers::Once(u64::MAX),
    };
    let numbers = if args.mix.before().is_empty() {
        numbers
    } else {
        let limit = if args.mix.goes_round() { Numbers::Once(POOL) } else { Numbers::New };
        let mut load = start(args.mix.before(), limit, None);
        // As many as can be used up: a Claim and a Complete take longer than a Register.
        let time =
            if args.mix.goes_round() { Duration::MAX } else { (args.warmup + args.duration).mul_f64(0.8) };
        progress.follow(&mut load, time, "preparing").await;
        let made = load.finish(GRACE).await;
        if made.meter.errors() > 0 {
            return Ok(Report::new(args, &made));
        }
        if args.mix.goes_round() { numbers } else { Numbers::Once(made.begun) }
    };

    let mut load = start(args.mix.steps(), numbers, pace::interval(args.mix, args.rate));
    progress.follow(&mut load, args.warmup, "warming up").await;
    load.meter.enter(Phase::Measuring);
    progress.follow(&mut load, args.duration, "").await;
    let ended = load.finish(GRACE).await;
    progress.clear();
    Ok(Report::new(args, &ended))
}

/// A connection with windows that never stop the load.
async fn connect(target: &str) -> Result<LedgerClient<Channel>, Failure> {
    let url = client::url(target);
    let endpoint =
        client::endpoint(&url)?.initial_stream_window_size(1 << 20).initial_connection_window_size(1 << 24);
    let channel = endpoint.connect_with_connector(tower::service_fn(socket::connect)).await;
    let channel = channel.map_err(|error| client::unreachable(&url, &error))?;
    Ok(LedgerClient::new(channel).max_decoding_message_size(usize::MAX))
}

/// A line on the terminal that is written over each second.
struct Progress {
    on: bool,
}

impl Progress {
    fn new() -> Self {
        Self { on: std::io::stderr().is_terminal() }
    }

    /// Waits, and shows each second how it goes. Ends early where there is nothing left to do.
    async fn follow(&self, load: &mut Load, time: Duration, what: &str) {
        let meter = load.meter.clone();
        let until = Instant::now().checked_add(time);
        let mut before = meter.ops();
        loop {
            let begun = Instant::now();
            let left = until.map_or(Duration::MAX, |until| until.saturating_duration_since(begun));
            if left.is_zero() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(left.min(Duration::from_secs(1))) => {}
                () = load.idle() => return,
            }
            if self.on {
                let ops = meter.ops();
                #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
                let rate = (ops - before) as f64 / begun.elapsed().as_secs_f64();
                before = ops;
                let errors = meter.errors();
                let left = until.map_or(0, |until| until.saturating_duration_since(Instant::now()).as_secs());
                self.show(&format!("{left:>4} s left {rate:>9.0} ops/s  {errors} errors  {what}"));
            }
        }
    }

    fn show(&self, text: &str) {
        // Nothing is lost where nobody sees it.
        _ = write!(std::io::stderr(), "\r\x1b[2K{text}");
    }

    fn clear(&self) {
        if self.on {
            self.show("");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        bench: BenchArgs,
    }

    #[test]
    fn connections_follow_the_calls_in_flight() {
        for (arguments, connections) in [
            (&[][..], 2),
            (&["--in-flight", "1"], 1),
            (&["--in-flight", "33"], 2),
            (&["--in-flight", "1024"], 8),
            (&["--in-flight", "2", "--connections", "8"], 2),
        ] {
            let line = Line::parse_from([&["bench"], arguments].concat());
            assert_eq!(line.bench.connections(), connections, "{arguments:?}");
        }
    }
}
