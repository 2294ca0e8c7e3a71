//! Records → the arrays of `swap.sql`, in the order of its parameters.

use crate::{
    ledger::{DueKind, DueMoment, Event, Identity, State, Timestamp},
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

/// The most events that one transaction may write: the low bits of a sequence number.
const EVENTS_MAX: usize = 4096;

/// The statement's arguments, and the ids of the writes in the caller's order.
pub(super) struct Batch {
    /// For `swap.sql`.
    pub arguments: PgArguments,
    /// Operation ids, in the order of the writes.
    pub ids: Vec<Uuid>,
}

/// Encodes a batch. The rows to insert come first; each part stays sorted by key.
pub(super) fn batch(decided: DecidedAt, writes: &[Write]) -> Result<Batch, Error> {
    let ids = writes.iter().map(|write| write.after.identity.operation_id).collect();
    if writes.iter().map(|write| write.events.len()).sum::<usize>() > EVENTS_MAX {
        return Err(Error::data(format!("a batch has at most {EVENTS_MAX} events")));
    }
    let (deleted, kept): (Vec<&Write>, Vec<&Write>) =
        writes.iter().partition(|write| write.forgets == Forgets::Key);
    let (mut ordered, updates): (Vec<&Write>, Vec<&Write>) =
        kept.into_iter().partition(|write| write.expected.is_none());
    let inserts = ordered.len();
    ordered.extend(updates);

    let mut arguments = PgArguments::default();
    encode(&mut arguments, decided, &ordered, inserts, &deleted)
        .map_err(|_| Error::data("a value cannot be encoded"))?;
    Ok(Batch { arguments, ids })
}

fn encode(
    arguments: &mut PgArguments,
    decided: DecidedAt,
    ordered: &[&Write],
    inserts: usize,
    deleted: &[&Write],
) -> Result<(), BoxDynError> {
    let (earliest, latest) = window(decided);
    arguments.add(Moment(earliest))?;
    arguments.add(Moment(latest))?;
    expectations(arguments, ordered)?;
    states(arguments, ordered)?;
    identities(arguments, &ordered[..inserts])?;
    events(arguments, ordered)?;
    let due = due(ordered, deleted);
    due.bind(arguments)?;
    retention(arguments, ordered, deleted)?;
    column(arguments, &due.set, |(_, _, moment)| moment.unknown_since.map(Moment))
}

/// The moments between which the database's clock must stand, kept within what PostgreSQL takes.
fn window(decided: DecidedAt) -> (Timestamp, Timestamp) {
    const YEARS_9000: Duration = Duration::from_secs(9000 * 366 * 24 * 3600);
    let tolerance = decided.tolerance.min(YEARS_9000);
    let now = decided.now.clamp(Timestamp::EPOCH, Timestamp::EPOCH.plus(YEARS_9000));
    let earliest = now.minus(tolerance).max(Timestamp::EPOCH);
    (earliest, now.plus(tolerance))
}

/// One array: the same thing of each row.
fn column<'w, R: 'w, T>(
    arguments: &mut PgArguments,
    rows: &'w [R],
    of: impl Fn(&'w R) -> T,
) -> Result<(), BoxDynError>
where
    T: Encode<'w, Postgres> + Type<Postgres> + PgHasArrayType,
{
    arguments.add(rows.iter().map(of).bind_iter())
}

fn expectations(a: &mut PgArguments, rows: &[&Write]) -> Result<(), BoxDynError> {
    column(a, rows, |w| w.after.identity.operation_id)?;
    column(a, rows, |w| w.expected.map(|expected| expected.version))?;
    column(a, rows, |w| w.expected.map(|expected| expected.conflict_count))
}

fn states(a: &mut PgArguments, rows: &[&Write]) -> Result<(), BoxDynError> {
    let rows: Vec<&State> = rows.iter().map(|write| &write.after.state).collect();
    column(a, &rows, |s| s.status.as_str())?;
    column(a, &rows, |s| s.version)?;
    column(a, &rows, |s| s.attempt_count)?;
    column(a, &rows, |s| s.attempt_floor)?;
    column(a, &rows, |s| row::claim_ids_to_bytes(&s.claim_ids))?;
    column(a, &rows, |s| s.lease.as_ref().map(|lease| lease.holder.as_str()))?;
    column(a, &rows, |s| s.lease.as_ref().map(|lease| Moment(lease.claimed_at)))?;
    column(a, &rows, |s| s.lease.as_ref().map(|lease| Moment(lease.until)))?;
    column(a, &rows, |s| s.lease.as_ref().map(|lease| lease.duration_ms))?;
    column(a, &rows, |s| s.lease.as_ref().is_some_and(|lease| lease.two_step))?;
    column(a, &rows, |s| s.dispatched)?;
    column(a, &rows, |s| s.external_id.as_deref())?;
    column(a, &rows, |s| s.result_json.as_deref())?;
    column(a, &rows, |s| s.error_code.as_deref())?;
    column(a, &rows, |s| s.error_message.as_deref())?;
    column(a, &rows, |s| s.first_attempt_at.map(Moment))?;
    column(a, &rows, |s| s.attempt_ended_at.map(Moment))?;
    column(a, &rows, |s| s.unknown_since.map(Moment))?;
    column(a, &rows, |s| s.escalate_at.map(Moment))?;
    column(a, &rows, |s| s.next_check_at.map(Moment))?;
    column(a, &rows, |s| s.check_count)?;
    column(a, &rows, |s| s.deliver_at.map(Moment))?;
    column(a, &rows, |s| s.check_lease.as_ref().map(row::check_lease_to_json))?;
    column(a, &rows, |s| s.check_lease_count)?;
    column(a, &rows, |s| s.poll_id)?;
    column(a, &rows, |s| s.review_reason.as_deref())?;
    column(a, &rows, |s| s.review_since.map(Moment))?;
    column(a, &rows, |s| s.conflict_count)?;
    column(a, &rows, |s| s.outcome_conflict_count)?;
    column(a, &rows, |s| s.last_report.as_ref().map(|digest| digest.as_slice()))?;
    column(a, &rows, |s| Moment(s.updated_at))?;
    column(a, &rows, |s| s.completed_at.map(Moment))
}

fn identities(a: &mut PgArguments, rows: &[&Write]) -> Result<(), BoxDynError> {
    let rows: Vec<&Identity> = rows.iter().map(|write| &*write.after.identity).collect();
    column(a, &rows, |i| &*i.key.namespace)?;
    column(a, &rows, |i| &*i.key.operation_key)?;
    column(a, &rows, |i| &*i.action_type)?;
    column(a, &rows, |i| row::to_hex(&i.request_hash))?;
    column(a, &rows, |i| &*i.hash_scheme)?;
    column(a, &rows, |i| row::labels_to_json(&i.labels))?;
    column(a, &rows, |i| i.parent_operation_key.as_deref())?;
    column(a, &rows, |i| i.payload_json.as_deref())?;
    column(a, &rows, |i| i.lease_secret.as_slice())?;
    column(a, &rows, |i| Moment(i.created_at))
}

fn events(a: &mut PgArguments, rows: &[&Write]) -> Result<(), BoxDynError> {
    let rows: Vec<(Uuid, &Event)> = rows
        .iter()
        .flat_map(|write| write.events.iter().map(|event| (write.after.identity.operation_id, event)))
        .collect();
    column(a, &rows, |(id, _)| *id)?;
    column(a, &rows, |(_, e)| e.version)?;
    column(a, &rows, |(_, e)| Moment(e.at))?;
    column(a, &rows, |(_, e)| e.attempt)?;
    column(a, &rows, |(_, e)| e.kind.as_str())?;
    column(a, &rows, |(_, e)| e.status.as_str())?;
    column(a, &rows, |(_, e)| &*e.actor)?;
    column(a, &rows, |(_, e)| row::detail_to_json(&e.detail))
}

/// What retention plans and deletes: these arrays are almost always empty.
fn retention(a: &mut PgArguments, rows: &[&Write], deleted: &[&Write]) -> Result<(), BoxDynError> {
    column(a, rows, |w| w.after.state.retain_until.map(Moment))?;
    column(a, rows, |w| w.after.state.result_forgotten_at.map(Moment))?;
    let forgets: Vec<&&Write> = rows.iter().filter(|write| write.forgets == Forgets::History).collect();
    column(a, &forgets, |w| w.after.identity.operation_id)?;
    expectations(a, deleted)
}

/// Due work to set and to delete.
struct DueChanges<'w> {
    set: Vec<(&'w Identity, DueKind, DueMoment)>,
    deleted: Vec<(Uuid, DueKind)>,
}

fn due<'w>(written: &[&'w Write], forgotten: &[&'w Write]) -> DueChanges<'w> {
    let (mut set, mut deleted) = (Vec::new(), Vec::new());
    for write in written.iter().chain(forgotten) {
        let identity = &*write.after.identity;
        for (kind, moment) in write.due_after().changes_from(write.due_before) {
            match moment {
                Some(moment) => set.push((identity, kind, moment)),
                None => deleted.push((identity.operation_id, kind)),
            }
        }
    }
    DueChanges { set, deleted }
}

impl DueChanges<'_> {
    fn bind(&self, a: &mut PgArguments) -> Result<(), BoxDynError> {
        let Self { set, deleted } = self;
        column(a, set, |(identity, _, _)| identity.operation_id)?;
        column(a, set, |(_, kind, _)| kind.as_str())?;
        column(a, set, |(_, _, moment)| Moment(moment.at))?;
        column(a, set, |(identity, _, _)| &*identity.key.namespace)?;
        column(a, set, |(identity, _, _)| &*identity.action_type)?;
        column(a, set, |(_, _, moment)| moment.poll_id)?;
        column(a, deleted, |(id, _)| *id)?;
        column(a, deleted, |(_, kind)| kind.as_str())
    }
}
