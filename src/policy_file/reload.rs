//! The policies in force while the service runs: the file is read again when it changes and on
//! SIGHUP, and a bad file never replaces a good one.

use super::{Fault, PolicySet, Warning, parse_bytes, read_file};
use std::{
    collections::BTreeSet,
    fmt, io,
    path::{Path, PathBuf},
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    time::{MissedTickBehavior, interval, sleep},
};
use tracing::{error, info, warn};

/// How often the file is compared with what was read last.
pub const INTERVAL: Duration = Duration::from_secs(2);
/// A changed file must stay the same for this long: an editor may be half way through writing it,
/// and half a policy file can be a valid one that lacks entries.
const SETTLE: Duration = Duration::from_millis(250);
/// Faults named in one log line.
const FAULTS_LOGGED: usize = 50;

/// The policies in force. Clones are one and the same.
#[derive(Clone)]
pub struct Policies {
    shared: Arc<Shared>,
}

struct Shared {
    path: Option<PathBuf>,
    current: watch::Sender<Arc<PolicySet>>,
    /// What was read last, good or bad: it is neither read in nor complained about twice.
    last: Mutex<Option<Content>>,
    reloads: watch::Sender<Reloads>,
}

/// What became of the file since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reloads {
    /// Readings that came into force.
    pub ok: u64,
    /// Readings that were refused.
    pub failed: u64,
    /// The last reading was refused: what is in force is not what the file says.
    pub stale: bool,
}

#[derive(Clone, PartialEq)]
enum Content {
    Read(Vec<u8>),
    /// With the reason.
    Unreadable(String),
}

/// The file given at start cannot be used.
#[derive(Debug)]
pub enum LoadError {
    /// It cannot be read.
    Unreadable(PathBuf, io::Error),
    /// It was read, and these are its faults.
    Faulty(PathBuf, Vec<Fault>),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Unreadable(path, error) => {
                write!(f, "the policy file {} cannot be read: {error}", path.display())
            }
            LoadError::Faulty(path, faults) => {
                write!(f, "the policy file {} has faults:", path.display())?;
                faults.iter().try_for_each(|fault| write!(f, "\n{}:{fault}", path.display()))
            }
        }
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LoadError::Unreadable(_, error) => Some(error),
            LoadError::Faulty(..) => None,
        }
    }
}

impl Policies {
    /// Reads the file; without one, every action type has the built-in policy.
    ///
    /// # Errors
    /// The file cannot be read or has faults: the service must not start with a policy nobody wrote.
    pub fn load(path: Option<PathBuf>) -> Result<Self, LoadError> {
        let Some(path) = path else { return Ok(Self::of(PolicySet::built_in())) };
        let content = match read_file(&path) {
            Ok(content) => content,
            Err(error) => return Err(LoadError::Unreadable(path, error)),
        };
        match parse_bytes(&content) {
            Ok((set, warnings)) => {
                log_warnings(&path, &warnings);
                Ok(Self::new(Some(path), set, Some(Content::Read(content))))
            }
            Err(faults) => Err(LoadError::Faulty(path, faults)),
        }
    }

    /// A set that stays as it is.
    #[must_use]
    pub fn of(set: PolicySet) -> Self {
        Self::new(None, set, None)
    }

    fn new(path: Option<PathBuf>, set: PolicySet, content: Option<Content>) -> Self {
        let shared = Shared {
            path,
            current: watch::Sender::new(Arc::new(set)),
            last: Mutex::new(content),
            reloads: watch::Sender::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The set in force now. Take it once per command, so that a command sees one policy.
    #[must_use]
    pub fn current(&self) -> Arc<PolicySet> {
        Arc::clone(&self.shared.current.borrow())
    }

    /// Wakes whenever another set comes into force.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Arc<PolicySet>> {
        self.shared.current.subscribe()
    }

    /// The file, if there is one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.shared.path.as_deref()
    }

    /// What became of the file since the start, for metrics.
    #[must_use]
    pub fn reloads(&self) -> Reloads {
        *self.shared.reloads.borrow()
    }

    /// Calls `note` with true for each reading that was taken and false for each that was refused, as
    /// they come, for ever.
    pub async fn on_reload(self, note: impl Fn(bool)) {
        let mut changes = self.shared.reloads.subscribe();
        let mut seen = Reloads::default();
        loop {
            let now = *changes.borrow_and_update();
            (seen.ok..now.ok).for_each(|_| note(true));
            (seen.failed..now.failed).for_each(|_| note(false));
            seen = now;
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// Reads the file again, on SIGHUP and whenever its content changed, until `shutdown` resolves.
    ///
    /// Contents are compared every `interval` ([`INTERVAL`] in production), not times: a mounted
    /// `ConfigMap` changes by swapping a symbolic link, which may leave the time as it was.
    pub async fn watch(self, every: Duration, shutdown: impl Future<Output = ()>) {
        // Taken also without a file: unhandled, SIGHUP would end the process.
        let hangup = match signal(SignalKind::hangup()) {
            Ok(hangup) => Some(hangup),
            Err(error) => {
                warn!(%error, "SIGHUP cannot be listened to; the policy file is still watched");
                None
            }
        };
        self.watch_with(every, hangup, shutdown).await;
    }

    async fn watch_with(
        self,
        every: Duration,
        mut hangup: Option<Signal>,
        shutdown: impl Future<Output = ()>,
    ) {
        let mut shutdown = pin!(shutdown);
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let asked = async {
                match &mut hangup {
                    Some(hangup) => hangup.recv().await,
                    None => std::future::pending().await,
                }
            };
            let look = tokio::select! {
                () = &mut shutdown => return,
                _ = asked => Look::Asked,
                _ = ticks.tick() => Look::Routine(every.min(SETTLE)),
            };
            tokio::select! {
                () = &mut shutdown => return,
                () = self.look(look) => {}
            }
        }
    }

    /// Looks at the file once.
    async fn look(&self, look: Look) {
        let Some(path) = self.shared.path.clone() else {
            if look == Look::Asked {
                info!("SIGHUP: no policy file is given, the built-in policy stays in force");
            }
            return;
        };
        let Some(content) = read(path.clone()).await else { return };
        if let Look::Routine(settle) = look {
            if self.last().as_ref() == Some(&content) {
                return;
            }
            sleep(settle).await;
            if read(path.clone()).await.as_ref() != Some(&content) {
                return;
            }
        }
        let policies = self.clone();
        // Aside, because of the disk and because a fault in the YAML reader must not end the watching.
        let taken = tokio::task::spawn_blocking(move || policies.take(&path, content)).await;
        if let Err(error) = taken {
            self.note(false);
            error!(%error, "reading the policy file failed; the policy stays as it was");
        }
    }

    /// Puts a content in force if it is good. Says what changed, or what is wrong.
    fn take(&self, path: &Path, content: Content) {
        let file = path.display();
        // Held throughout, so that two readings come into force in their order. Noted first:
        // a content on which the reader itself stumbles is not tried again every two seconds.
        let mut last = self.last();
        *last = Some(content.clone());
        let outcome = match content {
            Content::Read(bytes) => parse_bytes(&bytes).map_err(|faults| list(path, &faults)),
            Content::Unreadable(reason) => Err(format!("{file}: {reason}")),
        };
        match outcome {
            Ok((set, warnings)) => {
                log_warnings(path, &warnings);
                let before = self.shared.current.send_replace(Arc::new(set));
                log_changes(path, &before, &self.current());
                self.note(true);
            }
            Err(faults) => {
                self.note(false);
                error!(%file, "the policy file is refused, the last good one stays in force:\n{faults}");
            }
        }
    }

    fn note(&self, good: bool) {
        self.shared.reloads.send_modify(|reloads| {
            reloads.ok += u64::from(good);
            reloads.failed += u64::from(!good);
            reloads.stale = !good;
        });
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Option<Content>> {
        self.shared.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why the file is looked at.
#[derive(Clone, Copy, PartialEq)]
enum Look {
    /// By SIGHUP: read it as it is, and say what became of it even when nothing changed.
    Asked,
    /// By the clock: take only what is new and stayed the same for this long.
    Routine(Duration),
}

/// Reads off the runtime's threads. None: the runtime is shutting down.
async fn read(path: PathBuf) -> Option<Content> {
    let read = tokio::task::spawn_blocking(move || read_file(&path)).await.ok()?;
    Some(match read {
        Ok(bytes) => Content::Read(bytes),
        Err(error) => Content::Unreadable(format!("cannot be read: {error}")),
    })
}

fn list(path: &Path, faults: &[Fault]) -> String {
    let mut lines: Vec<String> =
        faults.iter().take(FAULTS_LOGGED).map(|fault| format!("{}:{fault}", path.display())).collect();
    if faults.len() > FAULTS_LOGGED {
        lines.push(format!("and {} more: `opledger policy check` lists all", faults.len() - FAULTS_LOGGED));
    }
    lines.join("\n")
}

fn log_warnings(path: &Path, warnings: &[Warning]) {
    for warning in warnings {
        warn!("{}:{warning}", path.display());
    }
}

fn log_changes(path: &Path, before: &PolicySet, now: &PolicySet) {
    let file = path.display();
    let Changes { added, removed, changed } = Changes::between(before, now);
    if added.is_empty() && removed.is_empty() && changed.is_empty() {
        info!(%file, "policy file read again: nothing changed");
        return;
    }
    let [added, removed, changed] = [added, removed, changed].map(|names| names.join(", "));
    info!(%file, added, removed, changed, "policy file read again: in force now");
}

/// The entries in which two sets differ, by name; `default` is one of them.
#[derive(Debug, PartialEq)]
struct Changes {
    added: Vec<String>,
    removed: Vec<String>,
    changed: Vec<String>,
}

impl Changes {
    fn between(before: &PolicySet, now: &PolicySet) -> Self {
        let old: BTreeSet<&str> = before.entries().map(|(name, _)| name).collect();
        let new: BTreeSet<&str> = now.entries().map(|(name, _)| name).collect();
        let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect::<Vec<_>>();
        let differs = |name: &&str| before.get(name) != now.get(name);
        let mut changed: Vec<&str> = old.intersection(&new).copied().filter(differs).collect();
        if before.default_policy() != now.default_policy() {
            changed.insert(0, super::DEFAULT_ENTRY);
        }
        Self {
            added: owned(new.difference(&old).copied().collect()),
            removed: owned(old.difference(&new).copied().collect()),
            changed: owned(changed),
        }
    }
}

#[cfg(test)]
mod tests;
