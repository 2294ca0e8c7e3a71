//! Word between replicas: which keys changed, and that there is new work.
//!
//! It makes waiting callers quick and is never needed for more: it may be lost, and every waiter looks
//! again by itself after a while. A shard only notes; one task sends what was noted, at most every
//! [`GAP`], and another one listens.
//!
//! A message is `1 REPLICA FLAGS HASHES`: the sender's id, `w` for new work, `a` for "all keys", `-` for
//! nothing, and eight hexadecimal digits for each key (or `-`).

use super::{
    feed::Feed,
    waiters::{KeyHash, Waiters},
};
use crate::store::{self, ANNOUNCEMENT_MAX, Store};
use std::{
    fmt::Write,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, timeout, timeout_at},
};
use uuid::Uuid;

/// Two flushes are at least this far apart: a busy replica sends fifty times a second, not once a batch.
const GAP: Duration = Duration::from_millis(20);
/// More changed keys in one flush are announced as "all".
const HASHES_MAX: usize = 8192;
/// Each replica says something at least this often …
const HELLO_EVERY: Duration = Duration::from_secs(20);
/// … so that a connection on which nothing, not even that, was heard for so long counts as dead.
const SILENCE_MAX: Duration = Duration::from_secs(50);
/// The pause before listening anew is about this, and never the same for two replicas.
const RECONNECT_PAUSE_MS: u64 = 500;
/// How often a waiting caller looks by itself where changes are announced …
const RECHECK_ANNOUNCED: Duration = Duration::from_secs(5);
/// … and where they are not: other processes may write the same database all the same.
const RECHECK_ALONE: Duration = Duration::from_secs(1);
/// What is noted at the very end is sent within this, or not at all.
const LAST_WORD: Duration = Duration::from_millis(500);

/// See the module.
pub(super) struct Gossip {
    replica: String,
    noted: Mutex<Noted>,
    flush: Notify,
    /// False where the store has nobody to tell.
    tells: AtomicBool,
    /// True while this replica hears what it says itself, and so most likely what others say.
    hears: AtomicBool,
    waiters: Arc<Waiters>,
    due: Arc<watch::Sender<()>>,
    feed: Arc<Feed>,
}

#[derive(Default)]
struct Noted {
    hashes: Vec<KeyHash>,
    all: bool,
    work: bool,
    hello: bool,
}

impl Noted {
    fn is_empty(&self) -> bool {
        self.hashes.is_empty() && !self.all && !self.work && !self.hello
    }
}

impl Gossip {
    pub fn new(waiters: Arc<Waiters>, due: Arc<watch::Sender<()>>, feed: Arc<Feed>) -> Self {
        Self {
            replica: Uuid::new_v4().simple().to_string(),
            noted: Mutex::default(),
            flush: Notify::new(),
            tells: AtomicBool::new(true),
            hears: AtomicBool::new(false),
            waiters,
            due,
            feed,
        }
    }

    /// How long a change may go unnoticed by a waiting caller.
    pub fn recheck(&self) -> Duration {
        if self.hears() { RECHECK_ANNOUNCED } else { RECHECK_ALONE }
    }

    pub fn hears(&self) -> bool {
        self.hears.load(Ordering::Relaxed)
    }

    /// Notes what a batch changed. Never waits.
    pub fn note(&self, hashes: impl Iterator<Item = KeyHash>, work: bool) {
        if !self.tells.load(Ordering::Relaxed) {
            return;
        }
        let mut noted = self.lock();
        noted.hashes.extend(hashes);
        noted.work |= work;
        if noted.hashes.len() > HASHES_MAX {
            noted.hashes.clear();
            noted.all = true;
        }
        let is_empty = noted.is_empty();
        drop(noted);
        if !is_empty {
            self.flush.notify_one();
        }
    }

    fn say_hello(&self) {
        self.lock().hello = true;
        self.flush.notify_one();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends what is noted until the engine stops.
    pub async fn speak(self: Arc<Self>, store: Arc<dyn Store>, mut stopping: watch::Receiver<bool>) {
        let mut failing = false;
        while self.tells.load(Ordering::Relaxed) {
            tokio::select! {
                () = self.flush.notified() => {}
                () = sleep(HELLO_EVERY) => self.lock().hello = true,
                () = super::stopped(&mut stopping) => return,
            }
            let next = Instant::now() + GAP;
            match self.send(&*store).await {
                Ok(()) => failing = false,
                // Once an outage. What was not said is found by looking.
                Err(error) if !failing => {
                    tracing::warn!(%error, "other replicas were not told of changes: their callers wait longer");
                    failing = true;
                }
                Err(_) => {}
            }
            tokio::select! {
                () = tokio::time::sleep_until(next) => {}
                () = super::stopped(&mut stopping) => return,
            }
        }
    }

    /// Sends what the last batches changed.
    pub async fn last_word(&self, store: &dyn Store) {
        drop(timeout(LAST_WORD, self.send(store)).await);
    }

    async fn send(&self, store: &dyn Store) -> Result<(), store::Error> {
        let noted = std::mem::take(&mut *self.lock());
        for message in messages(&self.replica, &noted) {
            store.announce(&message).await?;
        }
        Ok(())
    }

    /// Listens until the engine stops, or for good where the store has nobody to listen to.
    pub async fn listen(self: Arc<Self>, store: Arc<dyn Store>, mut stopping: watch::Receiver<bool>) {
        let hearing = async {
            let mut failing = false;
            loop {
                match store.listen().await {
                    Ok(None) => return self.tells.store(false, Ordering::Relaxed),
                    Ok(Some(mut listener)) => {
                        failing = false;
                        // Whatever was said before is lost: all look once.
                        self.wake_all();
                        self.say_hello();
                        let error = self.hear(&mut *listener).await;
                        tracing::warn!(%error, "no longer hears other replicas: connecting again");
                    }
                    Err(error) if !failing => {
                        tracing::warn!(%error, "cannot listen to other replicas: callers wait longer");
                        failing = true;
                    }
                    Err(_) => {}
                }
                self.hears.store(false, Ordering::Relaxed);
                self.wake_all();
                let jitter = u64::try_from(Uuid::new_v4().as_u128() % u128::from(RECONNECT_PAUSE_MS));
                sleep(Duration::from_millis(RECONNECT_PAUSE_MS / 2 + jitter.unwrap_or(0))).await;
            }
        };
        tokio::select! {
            () = hearing => {}
            () = super::stopped(&mut stopping) => {}
        }
    }

    async fn hear(&self, listener: &mut dyn store::Listener) -> store::Error {
        let mut patience = Instant::now() + SILENCE_MAX;
        loop {
            match timeout_at(patience, listener.next()).await {
                Ok(Ok(message)) => self.take(&message),
                Ok(Err(error)) => return error,
                Err(_) => return store::Error::unavailable(format!("silence for {SILENCE_MAX:?}")),
            }
            patience = Instant::now() + SILENCE_MAX;
        }
    }

    fn take(&self, message: &str) {
        let mut words = message.split(' ');
        let (Some("1"), Some(from), Some(flags), Some(hashes)) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            // Of a later version, or of somebody else: rather once too often.
            return self.wake_all();
        };
        if from == self.replica {
            if !self.hears.swap(true, Ordering::Relaxed) {
                // Waiters may now look less often; what came before this was perhaps not heard.
                self.wake_all();
            }
            return;
        }
        if flags.contains('a') {
            self.waiters.wake_all();
        }
        if flags.contains('w') {
            self.due.send_replace(());
        }
        for digits in hashes.as_bytes().chunks(8) {
            let hash = std::str::from_utf8(digits).ok().and_then(|text| u32::from_str_radix(text, 16).ok());
            if let Some(hash) = hash {
                self.waiters.wake(KeyHash(hash));
            }
        }
        self.feed.stir();
    }

    fn wake_all(&self) {
        self.waiters.wake_all();
        self.due.send_replace(());
        self.feed.stir();
    }
}

/// What was noted, in messages of an acceptable length.
fn messages(replica: &str, noted: &Noted) -> Vec<String> {
    if noted.is_empty() {
        return Vec::new();
    }
    let head = |noted: &Noted| {
        let flags = [(noted.work, "w"), (noted.all, "a")];
        let flags: String = flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).collect();
        format!("1 {replica} {} ", if flags.is_empty() { "-" } else { &flags })
    };
    let first = head(noted);
    let per_message = (ANNOUNCEMENT_MAX - first.len()) / 8;
    if noted.hashes.is_empty() {
        return vec![format!("{first}-")];
    }
    let hashes = noted.hashes.chunks(per_message);
    hashes
        .enumerate()
        .map(|(at, hashes)| {
            let mut text = if at == 0 { first.clone() } else { head(&Noted::default()) };
            for hash in hashes {
                // Writing to a String cannot fail.
                _ = write!(text, "{:08x}", hash.0);
            }
            text
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Key;

    fn gossip() -> Gossip {
        let feed = Arc::new(Feed::new(super::super::feed::Limits::default()));
        Gossip::new(Arc::default(), Arc::new(watch::Sender::new(())), feed)
    }

    #[test]
    fn messages_fit_and_say_everything() {
        let hashes: Vec<KeyHash> = (0..5000).map(KeyHash).collect();
        let noted = Noted { hashes: hashes.clone(), work: true, ..Noted::default() };
        let sent = messages("0123456789abcdef0123456789abcdef", &noted);
        assert!(sent.iter().all(|text| text.len() <= ANNOUNCEMENT_MAX && text.is_ascii()));
        let heard: String = sent.iter().map(|text| text.rsplit_once(' ').unwrap().1).collect();
        assert_eq!(heard, hashes.iter().map(|hash| format!("{:08x}", hash.0)).collect::<String>());
        assert!(sent[0].contains(" w ") && sent[1..].iter().all(|text| text.contains(" - ")));
        assert!(messages("x", &Noted::default()).is_empty());
        assert_eq!(messages("x", &Noted { hello: true, ..Noted::default() }), ["1 x - -"]);
        assert_eq!(messages("x", &Noted { all: true, work: true, ..Noted::default() }), ["1 x wa -"]);
    }

    #[tokio::test]
    async fn what_one_says_wakes_the_other() {
        let (one, other) = (gossip(), gossip());
        let key = Key::new("default", "k");
        let mut waiter = other.waiters.wait_for(&key);
        let mut stranger = other.waiters.wait_for(&Key::new("default", "l"));
        let mut due = other.due.subscribe();
        one.note([KeyHash::of(&key)].into_iter(), true);
        for message in messages(&one.replica, &one.lock()) {
            other.take(&message);
            one.take(&message);
        }
        waiter.changed().await;
        assert!(due.has_changed().unwrap());
        assert!(timeout(Duration::from_millis(5), stranger.changed()).await.is_err());
        assert_eq!(other.recheck(), RECHECK_ALONE, "it has not heard itself");
        assert_eq!(one.recheck(), RECHECK_ANNOUNCED);
        due.mark_unchanged();
        other.take("2 something new");
        stranger.changed().await;
        assert!(due.has_changed().unwrap());
    }
}
