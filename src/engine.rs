//! STUB: to be replaced by the lead's file.
#![allow(missing_docs)]
use crate::{policy_file::Policies, store::Store, telemetry::Metrics};
use std::{sync::Arc, time::Duration};

#[derive(Clone)]
pub struct Engine;

pub struct Settings {
    pub shards: usize,
    pub max_in_flight: usize,
    pub sweep_interval: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { shards: 2, max_in_flight: 4096, sweep_interval: Duration::from_secs(1) }
    }
}

impl Engine {
    pub fn start(_: Arc<dyn Store>, _: Policies, _: Settings, _: Arc<Metrics>) -> Self {
        Self
    }
    pub async fn stop(&self) {}
}
