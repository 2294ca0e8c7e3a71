//! Callers that wait for a key to change, woken by the shard that changed it.

use crate::ledger::Key;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::watch;

/// How long a change that another replica made may go unnoticed by a waiting caller.
pub(super) const RECHECK: Duration = Duration::from_secs(1);

/// Who waits for which key.
#[derive(Default)]
pub(super) struct Waiters {
    by_key: Mutex<HashMap<Key, Entry>>,
}

struct Entry {
    changed: watch::Sender<()>,
    waiting: usize,
}

/// One caller's place. Leaves when dropped.
pub(super) struct Waiter {
    waiters: Arc<Waiters>,
    key: Key,
    changed: watch::Receiver<()>,
}

impl Waiters {
    /// Begins to listen: a change after this call is not missed.
    pub fn wait_for(self: &Arc<Self>, key: &Key) -> Waiter {
        let mut by_key = self.lock();
        let entry = by_key
            .entry(key.clone())
            .or_insert_with(|| Entry { changed: watch::Sender::new(()), waiting: 0 });
        entry.waiting += 1;
        Waiter { waiters: self.clone(), key: key.clone(), changed: entry.changed.subscribe() }
    }

    /// Wakes all who wait for this key.
    pub fn wake(&self, key: &Key) {
        if let Some(entry) = self.lock().get(key) {
            entry.changed.send_replace(());
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Entry>> {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiter {
    /// Answers at the next change.
    pub async fn changed(&mut self) {
        if self.changed.changed().await.is_err() {
            // Cannot be: the entry lives as long as this place. Never answer rather than spin.
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut by_key = self.waiters.lock();
        if let Some(entry) = by_key.get_mut(&self.key) {
            entry.waiting -= 1;
            if entry.waiting == 0 {
                by_key.remove(&self.key);
            }
        }
    }
}
