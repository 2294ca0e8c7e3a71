//! The change feed: events in an order that is final, although transactions commit in another one.

use super::{PgCells, PostgresStore, Request, arguments};
use crate::store::{Error, FeedChanges, FeedPage, row};
use sqlx::{Arguments, Row, postgres::PgArguments};

const FEED: &str = include_str!("feed.sql");
const FEED_CHANGES: &str = include_str!("feed_changes.sql");
const FEED_END: &str = include_str!("feed_end.sql");
const FEED_OFFSET: &str = include_str!("feed_offset.sql");
const ANNOUNCE: &str = include_str!("announce.sql");

/// How far sequence numbers jump after a restore, in transactions: a reader of the old cluster may have seen
/// events that came after the dump, and must not be ahead of the new ones. Room for 500,000 restores.
const RESTORE_JUMP: i64 = 1 << 32;

impl PostgresStore {
    pub(super) async fn feed_page(&self, namespace: &str, after: i64, limit: u32) -> Result<FeedPage, Error> {
        let limit = limit.max(1);
        let arguments = arguments(|a| {
            a.add(namespace)?;
            a.add(after)?;
            a.add(i64::from(limit))
        })?;
        let rows = self.run(&self.reads, Request::read(FEED, arguments)).await?;
        let mut page = FeedPage { found: Vec::with_capacity(rows.len()), upto: after, more: false };
        for row in &rows {
            row::feed_event(&mut PgCells { row, next: 0 }, namespace, limit, &mut page)?;
        }
        Ok(page)
    }

    pub(super) async fn feed_keys(&self, after: i64, limit: u32) -> Result<FeedChanges, Error> {
        let limit = limit.max(1);
        let arguments = arguments(|a| {
            a.add(after)?;
            a.add(i64::from(limit))
        })?;
        let rows = self.run(&self.reads, Request::read(FEED_CHANGES, arguments)).await?;
        let mut changes = FeedChanges { keys: Vec::with_capacity(rows.len()), upto: after, more: false };
        for row in &rows {
            row::feed_change(&mut PgCells { row, next: 0 }, limit, &mut changes)?;
        }
        Ok(changes)
    }

    pub(super) async fn feed_last(&self) -> Result<i64, Error> {
        let rows = self.run(&self.reads, Request::read(FEED_END, PgArguments::default())).await?;
        let row = rows.first().ok_or_else(|| Error::unavailable("unexpected answer"))?;
        let last: Option<i64> = row.try_get(0).map_err(|error| Error::of_read(&error))?;
        Ok(last.unwrap_or(0))
    }

    /// Looks, before anything is written, whether this cluster's transaction ids are behind the events.
    pub(super) async fn keep_sequence_growing(&self) -> Result<(), Error> {
        let arguments = arguments(|a| a.add(RESTORE_JUMP))?;
        let rows = self.run(&self.writes, Request::read(FEED_OFFSET, arguments)).await?;
        let offset: Option<i64> =
            rows.first().map(|row| row.try_get(0)).transpose().map_err(|error| Error::of_read(&error))?;
        if let Some(offset) = offset.filter(|offset| *offset > 0) {
            tracing::warn!(
                offset,
                "the database was restored into another cluster: sequence numbers of the change feed jump ahead"
            );
        }
        Ok(())
    }

    pub(super) async fn notify(&self, text: &str) -> Result<(), Error> {
        let arguments = arguments(|a| a.add(text))?;
        self.run(&self.announcements, Request::read(ANNOUNCE, arguments)).await.map(|_| ())
    }
}
