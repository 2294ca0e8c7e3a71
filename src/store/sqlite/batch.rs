//! Records → the JSON that SQLite's statements unpack: one array for each row.

use crate::{
    ledger::{DueKind, DueMoment, Event, Identity, State, Timestamp},
    store::{Forgets, Write, row},
};
use std::{fmt::Write as _, sync::Arc};
use uuid::Uuid;

/// An array of arrays, as JSON text, built from left to right.
#[derive(Default)]
pub(super) struct Rows {
    text: String,
    rows: usize,
    first_cell: bool,
}

impl Rows {
    pub(super) fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The whole text.
    pub(super) fn finish(mut self) -> String {
        self.text.push_str(if self.rows == 0 { "[]" } else { "]]" });
        self.text
    }

    /// Begins a row.
    pub(super) fn row(&mut self) -> &mut Self {
        self.text.push_str(if self.rows == 0 { "[[" } else { "],[" });
        self.rows += 1;
        self.first_cell = true;
        self
    }

    fn cell(&mut self) {
        if !self.first_cell {
            self.text.push(',');
        }
        self.first_cell = false;
    }

    pub(super) fn text(&mut self, value: &str) -> &mut Self {
        self.cell();
        self.text.push('"');
        let mut rest = value;
        while let Some(at) = rest.find(|c: char| c < ' ' || c == '"' || c == '\\') {
            let (plain, special) = rest.split_at(at);
            self.text.push_str(plain);
            match special.as_bytes()[0] {
                byte @ (b'"' | b'\\') => {
                    self.text.push('\\');
                    self.text.push(char::from(byte));
                }
                byte => write!(self.text, "\\u{byte:04x}").expect("a String takes all"),
            }
            rest = &special[1..];
        }
        self.text.push_str(rest);
        self.text.push('"');
        self
    }

    pub(super) fn maybe_text(&mut self, value: Option<&str>) -> &mut Self {
        match value {
            Some(value) => self.text(value),
            None => self.null(),
        }
    }

    pub(super) fn id(&mut self, id: Uuid) -> &mut Self {
        let mut buffer = Uuid::encode_buffer();
        self.cell();
        self.text.push('"');
        self.text.push_str(id.hyphenated().encode_lower(&mut buffer));
        self.text.push('"');
        self
    }

    fn maybe_id(&mut self, id: Option<Uuid>) -> &mut Self {
        match id {
            Some(id) => self.id(id),
            None => self.null(),
        }
    }

    pub(super) fn integer(&mut self, value: i64) -> &mut Self {
        self.cell();
        write!(self.text, "{value}").expect("a String takes all");
        self
    }

    pub(super) fn maybe_integer(&mut self, value: Option<i64>) -> &mut Self {
        match value {
            Some(value) => self.integer(value),
            None => self.null(),
        }
    }

    fn moment(&mut self, moment: Timestamp) -> &mut Self {
        self.integer(moment.0)
    }

    fn maybe_moment(&mut self, moment: Option<Timestamp>) -> &mut Self {
        self.maybe_integer(moment.map(|moment| moment.0))
    }

    fn bytes(&mut self, bytes: Option<&[u8]>) -> &mut Self {
        self.maybe_text(bytes.map(row::to_hex).as_deref())
    }

    fn null(&mut self) -> &mut Self {
        self.cell();
        self.text.push_str("null");
        self
    }

    fn state(&mut self, s: &State) -> &mut Self {
        let lease = s.lease.as_ref();
        self.text(s.status.as_str())
            .integer(s.version)
            .integer(s.attempt_count.into())
            .integer(s.attempt_floor.into())
            .bytes(row::claim_ids_to_bytes(&s.claim_ids).as_deref())
            .maybe_text(lease.map(|lease| lease.holder.as_str()))
            .maybe_moment(lease.map(|lease| lease.claimed_at))
            .maybe_moment(lease.map(|lease| lease.until))
            .maybe_integer(lease.map(|lease| lease.duration_ms))
            .integer(lease.is_some_and(|lease| lease.two_step).into())
            .integer(s.dispatched.into())
            .maybe_text(s.external_id.as_deref())
            .maybe_text(s.result_json.as_deref())
            .maybe_text(s.error_code.as_deref())
            .maybe_text(s.error_message.as_deref())
            .maybe_moment(s.first_attempt_at)
            .maybe_moment(s.attempt_ended_at)
            .maybe_moment(s.unknown_since)
            .maybe_moment(s.escalate_at)
            .maybe_moment(s.next_check_at)
            .integer(s.check_count.into())
            .maybe_moment(s.deliver_at)
            .maybe_text(s.check_lease.as_ref().map(row::check_lease_to_json).as_deref())
            .integer(s.check_lease_count.into())
            .maybe_id(s.poll_id)
            .maybe_text(s.review_reason.as_deref())
            .maybe_moment(s.review_since)
            .integer(s.conflict_count.into())
            .integer(s.outcome_conflict_count.into())
            .bytes(row::reports_to_bytes(&s.reports).as_deref())
            .moment(s.updated_at)
            .maybe_moment(s.completed_at)
            .maybe_moment(s.retain_until)
            .maybe_moment(s.result_forgotten_at)
    }

    fn identity(&mut self, i: &Identity) -> &mut Self {
        self.text(&i.key.namespace)
            .text(&i.key.operation_key)
            .text(&i.action_type)
            .text(&row::to_hex(&i.request_hash))
            .text(&i.hash_scheme)
            .maybe_text(row::labels_to_json(&i.labels).as_deref())
            .maybe_text(i.parent_operation_key.as_deref())
            .maybe_text(i.payload_json.as_deref())
            .bytes(Some(&i.lease_secret))
            .moment(i.created_at)
    }

    fn event(&mut self, id: Uuid, e: &Event) -> &mut Self {
        self.id(id)
            .integer(e.version)
            .moment(e.at)
            .integer(e.attempt.into())
            .text(e.kind.as_str())
            .text(e.status.as_str())
            .text(&e.actor)
            .maybe_text(row::detail_to_json(&e.detail).as_deref())
    }
}

/// What one write adds to the journal and to the due work, ready to be copied once the record is
/// known to be written.
pub(super) struct Consequences {
    pub(super) id: Uuid,
    identity: Arc<Identity>,
    events: Vec<Event>,
    due: Vec<(DueKind, Option<DueMoment>)>,
    forgets: Forgets,
}

/// A batch that borrows from nobody.
pub(super) struct Batch {
    /// `insert.sql`'s rows.
    pub(super) inserts: Rows,
    /// `update.sql`'s rows.
    pub(super) updates: Rows,
    /// `forget_key.sql`'s rows.
    pub(super) deletes: Rows,
    /// One for each write, in the caller's order.
    pub(super) consequences: Vec<Consequences>,
}

pub(super) fn batch(writes: &[Write]) -> Batch {
    let (mut inserts, mut updates, mut deletes) = (Rows::default(), Rows::default(), Rows::default());
    for write in writes {
        let Write { expected, after, .. } = write;
        match expected {
            None => {
                inserts.row().id(after.identity.operation_id).state(&after.state).identity(&after.identity)
            }
            Some(expected) if write.forgets == Forgets::Key => deletes
                .row()
                .id(after.identity.operation_id)
                .integer(expected.version)
                .integer(expected.conflict_count.into()),
            Some(expected) => updates
                .row()
                .id(after.identity.operation_id)
                .integer(expected.version)
                .integer(expected.conflict_count.into())
                .state(&after.state),
        };
    }
    let consequences = writes.iter().map(|write| Consequences {
        id: write.after.identity.operation_id,
        identity: Arc::clone(&write.after.identity),
        events: if write.forgets == Forgets::Key { Vec::new() } else { write.events.clone() },
        due: write.due_after().changes_from(write.due_before).collect(),
        forgets: write.forgets,
    });
    Batch { inserts, updates, deletes, consequences: consequences.collect() }
}

/// What follows from the records that were written.
#[derive(Default)]
pub(super) struct Following {
    /// `journal.sql`'s rows.
    pub(super) journal: Rows,
    /// `due_set.sql`'s rows.
    pub(super) due_set: Rows,
    /// `due_delete.sql`'s rows.
    pub(super) due_delete: Rows,
    /// `forget_events.sql`'s rows.
    pub(super) forgotten: Rows,
    /// `forget_payload.sql`'s rows.
    pub(super) forgotten_payloads: Rows,
}

/// What follows from the records that were written.
pub(super) fn consequences<'c>(written: impl Iterator<Item = &'c Consequences>) -> Following {
    let mut following = Following::default();
    let Following { journal, due_set, due_delete, forgotten, forgotten_payloads } = &mut following;
    for Consequences { id, identity, events, due, forgets } in written {
        if *forgets != Forgets::Nothing {
            forgotten.row().id(*id);
        }
        if *forgets == Forgets::History {
            forgotten_payloads.row().id(*id);
        }
        for event in events {
            journal.row().event(*id, event);
        }
        for (kind, moment) in due {
            match moment {
                Some(moment) => due_set
                    .row()
                    .id(*id)
                    .text(kind.as_str())
                    .moment(moment.at)
                    .text(&identity.key.namespace)
                    .text(&identity.action_type)
                    .maybe_id(moment.poll_id)
                    .maybe_moment(moment.unknown_since),
                None => due_delete.row().id(*id).text(kind.as_str()),
            };
        }
    }
    following
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_survives() {
        let texts = ["", "plain", "\"\\/\u{8}\n\r\t\u{0}\u{1f}\u{7f}", "ü\u{2028}😀", "\\u0000"];
        let mut rows = Rows::default();
        for text in texts {
            rows.row().text(text).integer(i64::MIN).null().integer(i64::MAX);
        }
        let parsed: Vec<(String, i64, Option<i64>, i64)> = serde_json::from_str(&rows.finish()).unwrap();
        let expected: Vec<_> =
            texts.iter().map(|text| ((*text).to_owned(), i64::MIN, None, i64::MAX)).collect();
        assert_eq!(parsed, expected);
        assert_eq!(Rows::default().finish(), "[]");
    }
}
