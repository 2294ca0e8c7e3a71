//! The policy that holds for one action type, every value resolved.

use std::time::Duration;

/// What a claim of an operation whose outcome is unknown may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnTimeout {
    /// Ask the provider first (the default).
    ReconcileBeforeRetry,
    /// The provider honours idempotency keys: call again with the same key, as long as the first
    /// attempt is younger than [`Policy::idempotency_key_ttl`].
    RetrySameKey,
    /// A person decides, at once.
    RequireHumanReview,
}

/// What happens to an operation that stays unknown for [`Policy::unknown_after`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnresolved {
    /// The review flag is set and Claim answers REVIEW (the default).
    RequireHumanReview,
    /// It stays unknown and is checked for ever.
    KeepUnknown,
}

/// How far the provider's look-up may be believed when it says that there is nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// Complete and current: an absence counts after [`Policy::absence_settle`].
    Authoritative,
    /// An index that lags or may miss (the default): an absence never releases by itself.
    Eventual,
    /// The provider cannot be asked: an absence never releases by itself.
    None,
}

/// When an unknown operation is checked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// From becoming unknown to the first check.
    pub initial_delay: Duration,
    /// Each later delay is the last one times this. At least 1.
    pub multiplier: f64,
    /// No delay is longer.
    pub max_interval: Duration,
    /// Each delay is moved by at most this share of itself, up or down. 0 to 1.
    pub jitter: f64,
}

/// The policy of one action type. Each field names its key in the policy file.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// `retry.on_timeout`
    pub on_timeout: OnTimeout,
    /// `unknown_after_seconds`: how long an operation may go without a confirmed outcome.
    pub unknown_after: Duration,
    /// `on_unresolved`
    pub on_unresolved: OnUnresolved,
    /// `provider.lookup`
    pub lookup: Lookup,
    /// `provider.absence_settle_seconds`: an absence counts only when it was observed at least this
    /// long after the last attempt ended.
    pub absence_settle: Duration,
    /// `provider.idempotency_key_ttl_seconds`: how long the provider remembers a key.
    pub idempotency_key_ttl: Option<Duration>,
    /// `lease.default_seconds`
    pub lease_default: Duration,
    /// `lease.max_seconds`: longer wishes are cut to it.
    pub lease_max: Duration,
    /// `max_attempts`: granted attempts before a person must look.
    pub max_attempts: i32,
    /// `reconcile.*`
    pub reconcile: Schedule,
    /// `payload.max_bytes`
    pub payload_max_bytes: usize,
    /// `payload.reject_fractions`
    pub reject_fractions: bool,
    /// `result.max_bytes`
    pub result_max_bytes: usize,
    /// `result.redact`: JSON pointers (RFC 6901) blanked before storing.
    pub result_redact: Vec<String>,
    /// `retention.result_days`: results, payloads and old events of finished operations are kept so long.
    pub result_days: Option<u32>,
    /// `retention.key_days`: keys of finished operations are kept so long. None: for ever.
    pub key_days: Option<u32>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            on_timeout: OnTimeout::ReconcileBeforeRetry,
            unknown_after: Duration::from_secs(900),
            on_unresolved: OnUnresolved::RequireHumanReview,
            lookup: Lookup::Eventual,
            absence_settle: Duration::from_secs(60),
            idempotency_key_ttl: None,
            lease_default: Duration::from_secs(30),
            lease_max: Duration::from_secs(600),
            max_attempts: 10,
            reconcile: Schedule {
                initial_delay: Duration::from_secs(5),
                multiplier: 2.0,
                max_interval: Duration::from_secs(300),
                jitter: 0.1,
            },
            payload_max_bytes: 256 * 1024,
            reject_fractions: false,
            result_max_bytes: 64 * 1024,
            result_redact: Vec::new(),
            result_days: None,
            key_days: None,
        }
    }
}
