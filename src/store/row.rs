//! Stored rows ↔ records: the one place that knows the order of the columns.

use super::{Error, FeedChanges, FeedEvent, FeedPage, Figure, StoredEvent};
use crate::ledger::{
    CheckLease, DueKind, Event, EventKind, Identity, Key, Lease, Operation, Reports, State, Status,
    Timestamp, event::Detail,
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use uuid::Uuid;

/// One row, read from left to right. Each back end says how its types are spelled.
pub(crate) trait Cells {
    /// A text.
    fn text(&mut self) -> Result<Option<String>, sqlx::Error>;
    /// A 64-bit integer.
    fn integer(&mut self) -> Result<Option<i64>, sqlx::Error>;
    /// A 32-bit integer.
    fn count(&mut self) -> Result<Option<i32>, sqlx::Error>;
    /// True or false.
    fn flag(&mut self) -> Result<Option<bool>, sqlx::Error>;
    /// A point in time.
    fn moment(&mut self) -> Result<Option<Timestamp>, sqlx::Error>;
    /// An id.
    fn id(&mut self) -> Result<Option<Uuid>, sqlx::Error>;
    /// Bytes.
    fn bytes(&mut self) -> Result<Option<Vec<u8>>, sqlx::Error>;
    /// The name of the column that was read last.
    fn last_column(&self) -> String;
}

/// Reads a row and names the place where it makes no sense.
struct Reader<'c, C> {
    cells: &'c mut C,
    table: &'static str,
    key: String,
}

impl<C: Cells> Reader<'_, C> {
    fn corrupt(&self) -> Error {
        Error::Corrupt { table: self.table, column: self.cells.last_column(), key: self.key.clone() }
    }

    /// A cell that may be null.
    fn maybe<T>(&mut self, read: fn(&mut C) -> Result<Option<T>, sqlx::Error>) -> Result<Option<T>, Error> {
        read(self.cells).map_err(|_| self.corrupt())
    }

    /// A cell that is never null.
    fn need<T>(&mut self, read: fn(&mut C) -> Result<Option<T>, sqlx::Error>) -> Result<T, Error> {
        self.maybe(read)?.ok_or_else(|| self.corrupt())
    }

    /// Turns nonsense into the error that names the last column.
    fn sound<T>(&self, value: Option<T>) -> Result<T, Error> {
        value.ok_or_else(|| self.corrupt())
    }
}

/// Reads an operation: the columns of `select_operation`, from the operation id on. None where the
/// id is null: an outer join that found nothing.
pub(crate) fn operation<C: Cells>(cells: &mut C) -> Result<Option<Operation>, Error> {
    let mut row = Reader { cells, table: "agent_operations", key: String::new() };
    let Some(operation_id) = row.maybe(C::id)? else {
        return Ok(None);
    };
    row.key = operation_id.to_string();
    let identity = identity(&mut row, operation_id)?;
    let state = state(&mut row)?;
    Ok(Some(Operation { identity: Arc::new(identity), state }))
}

fn identity<C: Cells>(row: &mut Reader<'_, C>, operation_id: Uuid) -> Result<Identity, Error> {
    let namespace: Arc<str> = row.need(C::text)?.into();
    let operation_key: Arc<str> = row.need(C::text)?.into();
    row.key = format!("{namespace}/{operation_key}");
    let action_type: Arc<str> = row.need(C::text)?.into();
    let request_hash = {
        let hex = row.need(C::text)?;
        row.sound(from_hex(&hex))?
    };
    Ok(Identity {
        key: Key { namespace, operation_key },
        operation_id,
        action_type,
        request_hash,
        hash_scheme: row.need(C::text)?.into(),
        labels: {
            let json = row.maybe(C::text)?;
            row.sound(labels_from_json(json.as_deref()))?
        },
        parent_operation_key: row.maybe(C::text)?,
        payload_json: row.maybe(C::text)?,
        lease_secret: {
            let bytes = row.need(C::bytes)?;
            row.sound(bytes.try_into().ok())?
        },
        created_at: row.need(C::moment)?,
    })
}

fn state<C: Cells>(row: &mut Reader<'_, C>) -> Result<State, Error> {
    Ok(State {
        status: {
            let text = row.need(C::text)?;
            row.sound(Status::parse(&text))?
        },
        version: row.need(C::integer)?,
        attempt_count: row.need(C::count)?,
        attempt_floor: row.need(C::count)?,
        claim_ids: {
            let bytes = row.maybe(C::bytes)?;
            row.sound(claim_ids_from_bytes(bytes.as_deref()))?
        },
        lease: lease(row)?,
        dispatched: row.need(C::flag)?,
        external_id: row.maybe(C::text)?,
        result_json: row.maybe(C::text)?,
        error_code: row.maybe(C::text)?,
        error_message: row.maybe(C::text)?,
        first_attempt_at: row.maybe(C::moment)?,
        attempt_ended_at: row.maybe(C::moment)?,
        unknown_since: row.maybe(C::moment)?,
        escalate_at: row.maybe(C::moment)?,
        next_check_at: row.maybe(C::moment)?,
        check_count: row.need(C::count)?,
        deliver_at: row.maybe(C::moment)?,
        check_lease: {
            let json = row.maybe(C::text)?;
            let lease = json.map(|json| serde_json::from_str(&json));
            row.sound(lease.transpose().ok())?
        },
        check_lease_count: row.need(C::count)?,
        poll_id: row.maybe(C::id)?,
        review_reason: row.maybe(C::text)?,
        review_since: row.maybe(C::moment)?,
        conflict_count: row.need(C::count)?,
        outcome_conflict_count: row.need(C::count)?,
        reports: {
            let bytes = row.maybe(C::bytes)?;
            row.sound(Reports::from_bytes(bytes.as_deref().unwrap_or_default()))?
        },
        updated_at: row.need(C::moment)?,
        completed_at: row.maybe(C::moment)?,
        retain_until: row.maybe(C::moment)?,
        result_forgotten_at: row.maybe(C::moment)?,
    })
}

/// A lease is there as a whole or not at all.
fn lease<C: Cells>(row: &mut Reader<'_, C>) -> Result<Option<Lease>, Error> {
    let holder = row.maybe(C::text)?;
    let claimed_at = row.maybe(C::moment)?;
    let until = row.maybe(C::moment)?;
    let duration_ms = row.maybe(C::integer)?;
    let two_step = row.need(C::flag)?;
    match (holder, claimed_at, until, duration_ms) {
        (Some(holder), Some(claimed_at), Some(until), Some(duration_ms)) => {
            Ok(Some(Lease { holder, claimed_at, until, duration_ms, two_step }))
        }
        (None, None, None, None) => Ok(None),
        _ => Err(row.corrupt()),
    }
}

/// Reads an event: sequence, version, kind, status, attempt, actor, event_at, detail_json. None
/// where the sequence is null: an outer join that found nothing.
pub(crate) fn event<C: Cells>(cells: &mut C, key: &Key) -> Result<Option<StoredEvent>, Error> {
    let mut row = Reader {
        cells,
        table: "agent_operation_events",
        key: format!("{}/{}", key.namespace, key.operation_key),
    };
    let Some(sequence) = row.maybe(C::integer)? else {
        return Ok(None);
    };
    let event = Event {
        version: row.need(C::integer)?,
        kind: {
            let text = row.need(C::text)?;
            row.sound(EventKind::parse(&text))?
        },
        status: {
            let text = row.need(C::text)?;
            row.sound(Status::parse(&text))?
        },
        attempt: row.need(C::count)?,
        actor: row.need(C::text)?.into(),
        at: row.need(C::moment)?,
        detail: {
            let json = row.maybe(C::text)?;
            row.sound(json.map_or(Some(Detail::default()), |json| serde_json::from_str(&json).ok()))?
        },
    };
    Ok(Some(StoredEvent { sequence, operation_key: key.operation_key.to_string(), event }))
}

/// Reads a figure: kind, action type, is unknown, count, due, due for, unknown for.
pub(crate) fn figure<C: Cells>(cells: &mut C) -> Result<Figure, Error> {
    let mut row = Reader { cells, table: "agent_operation_due", key: String::new() };
    let micros = |value: i64| Duration::from_micros(u64::try_from(value).unwrap_or(0));
    let count = |value: i64| u64::try_from(value).unwrap_or(0);
    Ok(Figure {
        kind: {
            let text = row.need(C::text)?;
            row.sound(DueKind::ALL.into_iter().find(|kind| kind.as_str() == text))?
        },
        action_type: row.need(C::text)?,
        is_unknown: row.need(C::flag)?,
        count: count(row.need(C::integer)?),
        due: count(row.need(C::integer)?),
        due_for: micros(row.need(C::integer)?),
        unknown_for: row.maybe(C::integer)?.map(micros),
    })
}

/// Reads a row of the feed's page: upto, scanned, operation_key, action_type, and an event as [`event`].
/// `page` gets how far was read; `limit` is what was asked for.
pub(crate) fn feed_event<C: Cells>(
    cells: &mut C,
    namespace: &str,
    limit: u32,
    page: &mut FeedPage,
) -> Result<(), Error> {
    (page.upto, page.more) = reach(cells, limit, page.upto)?;
    let (operation_key, action_type) = (cells.text(), cells.text());
    let read = || Ok((operation_key?, action_type?));
    let found: (Option<String>, Option<String>) =
        read().map_err(|error: sqlx::Error| Error::of_read(&error))?;
    if let (Some(operation_key), Some(action_type)) = found
        && let Some(stored) = event(cells, &Key::new(namespace, &operation_key))?
    {
        page.found.push(FeedEvent { action_type: action_type.into(), stored });
    }
    Ok(())
}

/// Reads a row of the feed's changes: upto, scanned, namespace, operation_key.
pub(crate) fn feed_change<C: Cells>(
    cells: &mut C,
    limit: u32,
    changes: &mut FeedChanges,
) -> Result<(), Error> {
    (changes.upto, changes.more) = reach(cells, limit, changes.upto)?;
    let (namespace, operation_key) = (cells.text(), cells.text());
    let read = || Ok((namespace?, operation_key?));
    let found: (Option<String>, Option<String>) =
        read().map_err(|error: sqlx::Error| Error::of_read(&error))?;
    if let (Some(namespace), Some(operation_key)) = found {
        changes.keys.push(Key::new(&namespace, &operation_key));
    }
    Ok(())
}

/// How far a page of the feed was read, and whether there may be more.
fn reach<C: Cells>(cells: &mut C, limit: u32, before: i64) -> Result<(i64, bool), Error> {
    let (upto, scanned) = (cells.integer(), cells.integer());
    let read = || Ok((upto?, scanned?));
    let (upto, scanned): (Option<i64>, Option<i64>) =
        read().map_err(|error: sqlx::Error| Error::of_read(&error))?;
    Ok((upto.unwrap_or(before).max(before), scanned.unwrap_or(0) >= i64::from(limit)))
}

/// The stored form of [`Identity::labels`].
pub(crate) fn labels_to_json(labels: &BTreeMap<String, String>) -> Option<String> {
    if labels.is_empty() {
        return None;
    }
    Some(serde_json::to_string(labels).expect("texts are always JSON"))
}

fn labels_from_json(json: Option<&str>) -> Option<BTreeMap<String, String>> {
    json.map_or(Some(BTreeMap::new()), |json| serde_json::from_str(json).ok())
}

/// The stored form of [`Event::detail`].
pub(crate) fn detail_to_json(detail: &Detail) -> Option<String> {
    let json = serde_json::to_string(detail).expect("texts, numbers and times are always JSON");
    (json != "{}").then_some(json)
}

/// The stored form of [`State::check_lease`].
pub(crate) fn check_lease_to_json(lease: &CheckLease) -> String {
    serde_json::to_string(lease).expect("texts, numbers and times are always JSON")
}

/// The stored form of [`State::reports`].
pub(crate) fn reports_to_bytes(reports: &Reports) -> Option<Vec<u8>> {
    let bytes = reports.to_bytes();
    (!bytes.is_empty()).then_some(bytes)
}

/// The stored form of [`State::claim_ids`].
pub(crate) fn claim_ids_to_bytes(claim_ids: &[Uuid]) -> Option<Vec<u8>> {
    if claim_ids.is_empty() {
        return None;
    }
    Some(claim_ids.iter().flat_map(|id| id.into_bytes()).collect())
}

fn claim_ids_from_bytes(bytes: Option<&[u8]>) -> Option<Vec<Uuid>> {
    let (ids, rest) = bytes.unwrap_or_default().as_chunks::<16>();
    rest.is_empty().then(|| ids.iter().copied().map(Uuid::from_bytes).collect())
}

/// Lower-case hexadecimal.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let mut bytes = [0; 32];
    if pairs.len() != bytes.len() || !rest.is_empty() {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_is_read_strictly() {
        let bytes: [u8; 32] = std::array::from_fn(|i| u8::try_from(i * 8 % 256).unwrap());
        assert_eq!(from_hex(&to_hex(&bytes)), Some(bytes));
        assert_eq!(from_hex(&to_hex(&bytes).to_uppercase()), None);
        assert_eq!(from_hex(&to_hex(&bytes)[1..]), None);
        assert_eq!(from_hex(""), None);
    }

    #[test]
    fn claim_ids_are_read_strictly() {
        let ids = [Uuid::from_u128(1), Uuid::from_u128(2)];
        let bytes = claim_ids_to_bytes(&ids).unwrap();
        assert_eq!(claim_ids_from_bytes(Some(&bytes)), Some(ids.to_vec()));
        assert_eq!(claim_ids_from_bytes(Some(&bytes[1..])), None);
        assert_eq!(claim_ids_to_bytes(&[]), None);
    }
}
