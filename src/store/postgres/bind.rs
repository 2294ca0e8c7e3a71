//! Records → the parameters of `swap.sql`: one array of rows each, in the order of their types'
//! columns.

use crate::{
    ledger::{Event, Timestamp},
    store::{DecidedAt, Error, Forgets, Write, row},
};
use sqlx::{
    Arguments, Encode, Postgres, Type,
    encode::IsNull,
    error::BoxDynError,
    postgres::{PgArgumentBuffer, PgArguments, PgBindIterExt, PgHasArrayType, PgTypeInfo, PgValueRef},
    types::time::OffsetDateTime,
};
use std::time::Duration;
use uuid::Uuid;

/// Microseconds from 1970 to 2000, from which PostgreSQL counts.
const POSTGRES_EPOCH: i64 = 946_684_800_000_000;

/// A `timestamptz` as it travels: microseconds, without a detour through a calendar.
#[derive(Clone, Copy)]
pub(super) struct Moment(pub Timestamp);

impl Type<Postgres> for Moment {
    fn type_info() -> PgTypeInfo {
        <OffsetDateTime as Type<Postgres>>::type_info()
    }
}

impl PgHasArrayType for Moment {
    fn array_type_info() -> PgTypeInfo {
        <OffsetDateTime as PgHasArrayType>::array_type_info()
    }
}

impl Encode<'_, Postgres> for Moment {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        Encode::<Postgres>::encode(self.0.0.saturating_sub(POSTGRES_EPOCH), buffer)
    }
}

impl<'r> sqlx::Decode<'r, Postgres> for Moment {
    fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
        let bytes: [u8; 8] = value.as_bytes()?.try_into()?;
        Ok(Moment(Timestamp(i64::from_be_bytes(bytes).saturating_add(POSTGRES_EPOCH))))
    }
}

/// A row of the type `agent_operation_write_1`.
#[derive(sqlx::Encode)]
struct OperationRow<'w> {
    expected_version: Option<i64>,
    expected_conflict_count: Option<i32>,
    operation_id: Uuid,
    version: i64,
    updated_at: Moment,
    attempt_count: i32,
    attempt_floor: i32,
    check_count: i32,
    check_lease_count: i32,
    conflict_count: i32,
    outcome_conflict_count: i32,
    two_step: bool,
    dispatched: bool,
    lease_claimed_at: Option<Moment>,
    lease_until: Option<Moment>,
    lease_duration_ms: Option<i64>,
    first_attempt_at: Option<Moment>,
    attempt_ended_at: Option<Moment>,
    unknown_since: Option<Moment>,
    escalate_at: Option<Moment>,
    next_check_at: Option<Moment>,
    deliver_at: Option<Moment>,
    review_since: Option<Moment>,
    completed_at: Option<Moment>,
    retain_until: Option<Moment>,
    result_forgotten_at: Option<Moment>,
    poll_id: Option<Uuid>,
    check_lease: Option<String>,
    status: &'static str,
    claim_ids: Option<Vec<u8>>,
    lease_holder: Option<&'w str>,
    external_id: Option<&'w str>,
    result_json: Option<&'w str>,
    error_code: Option<&'w str>,
    error_message: Option<&'w str>,
    review_reason: Option<&'w str>,
    last_report: Option<Vec<u8>>,
    created_at: Option<Moment>,
    namespace: Option<&'w str>,
    operation_key: Option<&'w str>,
    action_type: Option<&'w str>,
    request_hash: Option<String>,
    hash_scheme: Option<&'w str>,
    lease_secret: Option<&'w [u8]>,
    labels: Option<String>,
    parent_operation_key: Option<&'w str>,
    payload_json: Option<&'w str>,
}

impl<'w> OperationRow<'w> {
    fn of(write: &'w Write) -> Self {
        let s = &write.after.state;
        let lease = s.lease.as_ref();
        // What never changes travels only with a new operation.
        let i = write.expected.is_none().then_some(&*write.after.identity);
        Self {
            expected_version: write.expected.map(|expected| expected.version),
            expected_conflict_count: write.expected.map(|expected| expected.conflict_count),
            operation_id: write.after.identity.operation_id,
            version: s.version,
            updated_at: Moment(s.updated_at),
            attempt_count: s.attempt_count,
            attempt_floor: s.attempt_floor,
            check_count: s.check_count,
            check_lease_count: s.check_lease_count,
            conflict_count: s.conflict_count,
            outcome_conflict_count: s.outcome_conflict_count,
            two_step: lease.is_some_and(|lease| lease.two_step),
            dispatched: s.dispatched,
            lease_claimed_at: lease.map(|lease| Moment(lease.claimed_at)),
            lease_until: lease.map(|lease| Moment(lease.until)),
            lease_duration_ms: lease.map(|lease| lease.duration_ms),
            first_attempt_at: s.first_attempt_at.map(Moment),
            attempt_ended_at: s.attempt_ended_at.map(Moment),
            unknown_since: s.unknown_since.map(Moment),
            escalate_at: s.escalate_at.map(Moment),
            next_check_at: s.next_check_at.map(Moment),
            deliver_at: s.deliver_at.map(Moment),
            review_since: s.review_since.map(Moment),
            completed_at: s.completed_at.map(Moment),
            retain_until: s.retain_until.map(Moment),
            result_forgotten_at: s.result_forgotten_at.map(Moment),
            poll_id: s.poll_id,
            check_lease: s.check_lease.as_ref().map(row::check_lease_to_json),
            status: s.status.as_str(),
            claim_ids: row::claim_ids_to_bytes(&s.claim_ids),
            lease_holder: lease.map(|lease| lease.holder.as_str()),
            external_id: s.external_id.as_deref(),
            result_json: s.result_json.as_deref(),
            error_code: s.error_code.as_deref(),
            error_message: s.error_message.as_deref(),
            review_reason: s.review_reason.as_deref(),
            last_report: row::reports_to_bytes(&s.reports),
            created_at: i.map(|i| Moment(i.created_at)),
            namespace: i.map(|i| &*i.key.namespace),
            operation_key: i.map(|i| &*i.key.operation_key),
            action_type: i.map(|i| &*i.action_type),
            request_hash: i.map(|i| row::to_hex(&i.request_hash)),
            hash_scheme: i.map(|i| &*i.hash_scheme),
            lease_secret: i.map(|i| i.lease_secret.as_slice()),
            labels: i.and_then(|i| row::labels_to_json(&i.labels)),
            parent_operation_key: i.and_then(|i| i.parent_operation_key.as_deref()),
            payload_json: i.and_then(|i| i.payload_json.as_deref()),
        }
    }
}

/// A row of the type `agent_operation_event_write_1`.
#[derive(sqlx::Encode)]
struct EventRow<'w> {
    operation_id: Uuid,
    version: i64,
    event_at: Moment,
    attempt: i32,
    kind: &'static str,
    status: &'static str,
    actor: &'w str,
    detail_json: Option<String>,
}

impl<'w> EventRow<'w> {
    fn of(operation_id: Uuid, event: &'w Event) -> Self {
        Self {
            operation_id,
            version: event.version,
            event_at: Moment(event.at),
            attempt: event.attempt,
            kind: event.kind.as_str(),
            status: event.status.as_str(),
            actor: &event.actor,
            detail_json: row::detail_to_json(&event.detail),
        }
    }
}

/// A row of the type `agent_operation_due_write_1`.
#[derive(sqlx::Encode)]
struct DueRow<'w> {
    operation_id: Uuid,
    kind: &'static str,
    due_at: Option<Moment>,
    namespace: &'w str,
    action_type: &'w str,
    poll_id: Option<Uuid>,
    unknown_since: Option<Moment>,
}

/// Names the composite type of a row, and so of an array of rows.
macro_rules! composite {
    ($row:ty, $name:literal) => {
        impl Type<Postgres> for $row {
            fn type_info() -> PgTypeInfo {
                PgTypeInfo::with_name($name)
            }
        }

        impl PgHasArrayType for $row {
            fn array_type_info() -> PgTypeInfo {
                PgTypeInfo::array_of($name)
            }
        }
    };
}

composite!(OperationRow<'_>, "agent_operation_write_1");
composite!(EventRow<'_>, "agent_operation_event_write_1");
composite!(DueRow<'_>, "agent_operation_due_write_1");

/// The most events that one transaction may write: the low bits of a sequence number.
const EVENTS_MAX: usize = 4096;

/// The statement's arguments, and the ids of the writes in the caller's order.
pub(super) struct Batch {
    /// For `swap.sql`.
    pub arguments: PgArguments,
    /// Operation ids, in the order of the writes.
    pub ids: Vec<Uuid>,
    /// Something of it forgets: the arguments are those of the whole statement.
    pub forgets: bool,
}

/// Encodes a batch.
pub(super) fn batch(decided: DecidedAt, writes: &[Write]) -> Result<Batch, Error> {
    let ids = writes.iter().map(|write| write.after.identity.operation_id).collect();
    if writes.iter().map(|write| write.events.len()).sum::<usize>() > EVENTS_MAX {
        return Err(Error::data(format!("a batch has at most {EVENTS_MAX} events")));
    }
    let mut arguments = PgArguments::default();
    encode(&mut arguments, decided, writes).map_err(|_| Error::data("a value cannot be encoded"))?;
    let forgets = writes.iter().any(|write| write.forgets != Forgets::Nothing);
    if forgets {
        forgotten(&mut arguments, writes).map_err(|_| Error::data("a value cannot be encoded"))?;
    }
    Ok(Batch { arguments, ids, forgets })
}

fn encode(arguments: &mut PgArguments, decided: DecidedAt, writes: &[Write]) -> Result<(), BoxDynError> {
    let (earliest, latest) = window(decided);
    arguments.add(Moment(earliest))?;
    arguments.add(Moment(latest))?;
    let kept = || writes.iter().filter(|write| write.forgets != Forgets::Key);
    arguments.add(kept().map(OperationRow::of).bind_iter())?;
    let events = kept().flat_map(|write| {
        let id = write.after.identity.operation_id;
        write.events.iter().map(move |event| EventRow::of(id, event))
    });
    arguments.add(events.bind_iter())?;
    let due = || {
        writes.iter().flat_map(|write| {
            write.due_after().changes_from(write.due_before).map(|(kind, moment)| DueRow {
                operation_id: write.after.identity.operation_id,
                kind: kind.as_str(),
                due_at: moment.map(|moment| Moment(moment.at)),
                namespace: &write.after.identity.key.namespace,
                action_type: &write.after.identity.action_type,
                poll_id: moment.and_then(|moment| moment.poll_id),
                unknown_since: moment.and_then(|moment| moment.unknown_since).map(Moment),
            })
        })
    };
    arguments.add(due().filter(|row| row.due_at.is_some()).bind_iter())?;
    arguments.add(due().filter(|row| row.due_at.is_none()).bind_iter())
}

/// What retention deletes.
fn forgotten(arguments: &mut PgArguments, writes: &[Write]) -> Result<(), BoxDynError> {
    let those = |forgets: Forgets| writes.iter().filter(move |write| write.forgets == forgets);
    let id = |write: &Write| write.after.identity.operation_id;
    let (histories, keys) = (those(Forgets::History), || those(Forgets::Key));
    arguments.add(histories.map(id).collect::<Vec<Uuid>>())?;
    arguments.add(keys().map(id).collect::<Vec<Uuid>>())?;
    let expected = || keys().map(|write| write.expected.as_ref());
    arguments.add(expected().map(|e| e.map(|e| e.version)).collect::<Vec<_>>())?;
    arguments.add(expected().map(|e| e.map(|e| e.conflict_count)).collect::<Vec<_>>())
}

/// The moments between which the database's clock must stand, kept within what PostgreSQL takes.
fn window(decided: DecidedAt) -> (Timestamp, Timestamp) {
    const YEARS_9000: Duration = Duration::from_secs(9000 * 366 * 24 * 3600);
    let tolerance = decided.tolerance.min(YEARS_9000);
    let now = decided.now.clamp(Timestamp::EPOCH, Timestamp::EPOCH.plus(YEARS_9000));
    let earliest = now.minus(tolerance).max(Timestamp::EPOCH);
    (earliest, now.plus(tolerance))
}
