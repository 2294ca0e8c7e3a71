//! Callers that wait for a key to change, woken by the shard that changed it, or by word of another replica.

use crate::ledger::Key;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{sync::watch, time::Instant};

/// A key as it travels between replicas: every version makes the same number of it. Two keys with one
/// number only wake each other's waiters for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct KeyHash(pub u32);

impl KeyHash {
    /// FNV-1a over the namespace, a zero byte, and the key.
    pub fn of(key: &Key) -> Self {
        let bytes = key.namespace.bytes().chain([0]).chain(key.operation_key.bytes());
        Self(bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)))
    }
}

/// Who waits for which key.
#[derive(Default)]
pub(super) struct Waiters {
    by_hash: Mutex<HashMap<KeyHash, Entry>>,
}

struct Entry {
    changed: watch::Sender<()>,
    waiting: usize,
}

/// One caller's place. Leaves when dropped.
pub(super) struct Waiter {
    waiters: Arc<Waiters>,
    hash: KeyHash,
    changed: watch::Receiver<()>,
}

impl Waiters {
    /// Begins to listen: a change after this call is not missed.
    pub fn wait_for(self: &Arc<Self>, key: &Key) -> Waiter {
        let hash = KeyHash::of(key);
        let mut by_hash = self.lock();
        let entry =
            by_hash.entry(hash).or_insert_with(|| Entry { changed: watch::Sender::new(()), waiting: 0 });
        entry.waiting += 1;
        Waiter { waiters: self.clone(), hash, changed: entry.changed.subscribe() }
    }

    /// Wakes all who wait for this key.
    pub fn wake(&self, hash: KeyHash) {
        if let Some(entry) = self.lock().get(&hash) {
            entry.changed.send_replace(());
        }
    }

    /// Wakes all: something may have been missed.
    pub fn wake_all(&self) {
        for entry in self.lock().values() {
            entry.changed.send_replace(());
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<KeyHash, Entry>> {
        self.by_hash.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiter {
    /// When to look again although nobody said anything: all who wait for one key at the same moment, so that
    /// they share one look at the store; those of other keys at another one.
    pub fn next_look(&self, now: Instant, since: Instant, every: Duration) -> Instant {
        let period = every.as_millis().max(1);
        let phase = u128::from(self.hash.0) % period;
        let passed = (now - since).as_millis();
        let ahead = period - (passed + period - phase) % period;
        now + Duration::from_millis(u64::try_from(ahead).unwrap_or(u64::MAX))
    }

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
        let mut by_hash = self.waiters.lock();
        if let Some(entry) = by_hash.get_mut(&self.hash) {
            entry.waiting -= 1;
            if entry.waiting == 0 {
                by_hash.remove(&self.hash);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_who_wait_for_a_key_look_at_the_same_moment() {
        let waiters = Arc::<Waiters>::default();
        let (since, second) = (Instant::now(), Duration::from_secs(1));
        let waiter = waiters.wait_for(&Key::new("default", "k"));
        let first = waiter.next_look(since, since, second);
        assert!(first > since && first <= since + second);
        assert_eq!(waiter.next_look(first - Duration::from_millis(3), since, second), first);
        assert_eq!(waiter.next_look(first, since, second), first + second);
    }

    /// The numbers travel between versions: they must never change.
    #[test]
    fn a_key_has_the_same_number_for_ever() {
        assert_eq!(KeyHash::of(&Key::new("", "")), KeyHash(0x050c_5d1f));
        assert_ne!(KeyHash::of(&Key::new("a", "b")), KeyHash::of(&Key::new("ab", "")));
        assert_eq!(KeyHash::of(&Key::new("default", "pay-17")), KeyHash(0xee70_a333));
    }
}
