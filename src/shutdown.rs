//! One signal drains, a second one ends the process at once.

use tokio::sync::watch;

/// The exit code when a second signal cuts the drain short: what a shell reports for Ctrl-C.
const EXIT_INTERRUPTED: i32 = 130;

/// Starts the shutdown.
#[derive(Clone)]
pub struct Trigger(watch::Sender<bool>);

/// Learns of the shutdown. Cheap to clone.
#[derive(Clone)]
pub struct Shutdown(watch::Receiver<bool>);

/// A shutdown that has not begun.
#[must_use]
pub fn channel() -> (Trigger, Shutdown) {
    let (sender, receiver) = watch::channel(false);
    (Trigger(sender), Shutdown(receiver))
}

impl Trigger {
    /// Begins the shutdown.
    pub fn fire(&self) {
        self.0.send_replace(true);
    }
}

impl Shutdown {
    /// True once the shutdown has begun.
    #[must_use]
    pub fn begun(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns once the shutdown has begun, also where whoever could begin it has gone.
    pub async fn wait(mut self) {
        _ = self.0.wait_for(|begun| *begun).await;
    }
}

/// Begins the shutdown on SIGTERM or SIGINT. A second signal ends the process at once, whatever
/// is still under way: that is safe, since nothing is acknowledged before it is durable.
///
/// # Errors
/// Where signal handlers cannot be installed.
pub fn on_signals(trigger: Trigger) -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        for already in [false, true] {
            let name = tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            };
            if already {
                tracing::warn!("{name} again: stopping at once");
                std::process::exit(EXIT_INTERRUPTED);
            }
            tracing::info!("{name}: draining; a second signal stops at once");
            trigger.fire();
        }
    });
    Ok(())
}
