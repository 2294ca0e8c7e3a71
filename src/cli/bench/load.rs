//! Makes the calls: one task for each call in flight, each going through cycle after cycle.

use super::{
    meter::{Fault, Meter, Phase},
    mix::{Messages, Step},
    pace::Pace,
};
use crate::{
    proto::{Lease, OperationStatus, ledger_client::LedgerClient},
    telemetry::code_name,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::task::JoinSet;
use tonic::{Status, transport::Channel};

/// A slot whose call failed waits so long: a server that refuses must not be hammered.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(20);

/// Which operations there are to work on.
#[derive(Clone, Copy)]
pub(super) enum Numbers {
    /// Ever new ones.
    New,
    /// So many, each once.
    Once(u64),
    /// So many, again and again.
    Round(u64),
}

/// A load that is running.
pub(super) struct Load {
    pub meter: Arc<Meter>,
    pace: Option<Arc<Pace>>,
    next: Arc<AtomicU64>,
    slots: JoinSet<()>,
}

/// What came of a load, beside what its meter has counted.
pub(super) struct Ended {
    pub meter: Arc<Meter>,
    /// Operations that were begun.
    pub begun: u64,
    /// Calls that were due and were never made.
    pub missed: u64,
}

impl Load {
    /// Starts `in_flight` slots that share the connections.
    pub fn start(
        clients: &[LedgerClient<Channel>],
        in_flight: u32,
        messages: &Arc<Messages>,
        steps: &'static [Step],
        numbers: Numbers,
        interval: Option<Duration>,
    ) -> Self {
        let meter = Arc::new(Meter::new(clients.len()));
        let pace = interval.map(Pace::start);
        let next = Arc::new(AtomicU64::new(0));
        let mut slots = JoinSet::new();
        for (slot, part) in (0..in_flight).zip((0..clients.len()).cycle()) {
            let slot = Slot {
                client: clients[part].clone(),
                part,
                messages: messages.clone(),
                steps,
                numbers,
                pace: pace.clone(),
                next: next.clone(),
                meter: meter.clone(),
                worker: slot,
            };
            slots.spawn(slot.work());
        }
        Self { meter, pace, next, slots }
    }

    /// Answers when there is nothing left to do.
    pub async fn idle(&mut self) {
        while self.slots.join_next().await.is_some() {}
    }

    /// Begins no more cycles, and waits at most `grace` for those that were begun.
    pub async fn finish(mut self, grace: Duration) -> Ended {
        self.meter.enter(Phase::Over);
        let missed = self.pace.as_ref().map_or(0, |pace| pace.end());
        if tokio::time::timeout(grace, self.idle()).await.is_err() {
            for _ in 0..self.slots.len() {
                let message = format!("no answer within {grace:?} of the end");
                self.meter.failed(0, Fault { code: "NO_ANSWER", message });
            }
            self.slots.shutdown().await;
        }
        Ended { meter: self.meter, begun: self.next.load(Ordering::Relaxed), missed }
    }
}

struct Slot {
    client: LedgerClient<Channel>,
    /// Which part of the meter is this connection's.
    part: usize,
    messages: Arc<Messages>,
    steps: &'static [Step],
    numbers: Numbers,
    pace: Option<Arc<Pace>>,
    next: Arc<AtomicU64>,
    meter: Arc<Meter>,
    worker: u32,
}

impl Slot {
    async fn work(mut self) {
        if self.worker > 0 && self.pace.is_none() {
            // Slots that start together would stay in step, and every batch would be all or nothing.
            tokio::task::yield_now().await;
        }
        while !self.meter.is_over() {
            let mut begin = match &self.pace {
                Some(pace) => match pace.turn().await {
                    Some(due) => due,
                    None => return,
                },
                None => Instant::now(),
            };
            let Some(number) = self.number() else { return };
            let mut token = String::new();
            for (place, step) in self.steps.iter().enumerate() {
                if place > 0 {
                    begin = self.next_turn().await;
                }
                match self.call(*step, number, &mut token).await {
                    Ok(()) => self.meter.succeeded(self.part, *step, begin.elapsed()),
                    Err(fault) => {
                        self.meter.failed(self.part, fault);
                        tokio::time::sleep(PAUSE_AFTER_FAILURE).await;
                        break;
                    }
                }
            }
        }
    }

    /// The next call of a cycle that was begun: made in any case, also when the schedule has ended.
    async fn next_turn(&self) -> Instant {
        match &self.pace {
            Some(pace) => pace.turn().await.unwrap_or_else(Instant::now),
            None => Instant::now(),
        }
    }

    fn number(&self) -> Option<u64> {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        match self.numbers {
            Numbers::New => Some(next),
            Numbers::Once(count) => (next < count).then_some(next),
            Numbers::Round(count) => Some(next % count.max(1)),
        }
    }

    /// Makes one call and checks that the answer is the one that this step is about.
    async fn call(&mut self, step: Step, number: u64, token: &mut String) -> Result<(), Fault> {
        let messages = &self.messages;
        match step {
            Step::Register => {
                let answer = self.client.register(messages.register(number, false)).await.map_err(fault)?;
                expect(answer.get_ref().created, "not created: the key was taken")
            }
            Step::RegisterClaimed => {
                let answer = self.client.register(messages.register(number, true)).await.map_err(fault)?;
                granted(answer.into_inner().lease, token)
            }
            Step::Claim => {
                let answer = self.client.claim(messages.claim_request(number)).await.map_err(fault)?;
                granted(answer.into_inner().lease, token)
            }
            Step::Complete => {
                let request = messages.complete(number, std::mem::take(token));
                let answer = self.client.complete(request).await.map_err(fault)?;
                expect(!answer.get_ref().replayed, "replayed: it had been completed before")
            }
            Step::Replay => {
                let answer = self.client.register(messages.register(number, false)).await.map_err(fault)?;
                let answer = answer.get_ref();
                expect(!answer.created && is_done(answer.operation.as_ref()), "not a replay of what is done")
            }
            Step::Get => {
                let answer = self.client.get(messages.get(number)).await.map_err(fault)?;
                expect(is_done(answer.get_ref().operation.as_ref()), "not what was completed")
            }
        }
    }
}

fn is_done(operation: Option<&crate::proto::Operation>) -> bool {
    operation.is_some_and(|operation| operation.status() == OperationStatus::Succeeded)
}

fn granted(lease: Option<Lease>, token: &mut String) -> Result<(), Fault> {
    let Some(lease) = lease else { return expect(false, "not granted: another holds the lease") };
    *token = lease.token;
    Ok(())
}

fn expect(is_so: bool, otherwise: &str) -> Result<(), Fault> {
    if is_so { Ok(()) } else { Err(Fault { code: "UNEXPECTED_ANSWER", message: otherwise.to_owned() }) }
}

#[expect(clippy::needless_pass_by_value, reason = "goes into map_err")]
fn fault(status: Status) -> Fault {
    Fault { code: code_name(status.code()), message: status.message().to_owned() }
}
