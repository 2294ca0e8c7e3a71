//! The change feed. There is one writer, and it numbers the events as it commits: the order is final.

use super::{SqliteCells, SqliteStore, fetch, query};
use crate::store::{Error, FeedChanges, FeedPage, row};
use sqlx::Row;

const FEED: &str = include_str!("feed.sql");
const FEED_CHANGES: &str = include_str!("feed_changes.sql");
const FEED_END: &str = include_str!("feed_end.sql");

impl SqliteStore {
    pub(super) async fn feed_page(&self, namespace: &str, after: i64, limit: u32) -> Result<FeedPage, Error> {
        let limit = limit.max(1);
        let query = query(FEED).bind(namespace.to_owned()).bind(after).bind(i64::from(limit));
        let rows = fetch(&self.reads, query).await?;
        let mut page = FeedPage { found: Vec::with_capacity(rows.len()), upto: after, more: false };
        for row in &rows {
            row::feed_event(&mut SqliteCells { row, next: 0 }, namespace, limit, &mut page)?;
        }
        Ok(page)
    }

    pub(super) async fn feed_keys(&self, after: i64, limit: u32) -> Result<FeedChanges, Error> {
        let limit = limit.max(1);
        let rows = fetch(&self.reads, query(FEED_CHANGES).bind(after).bind(i64::from(limit))).await?;
        let mut changes = FeedChanges { keys: Vec::with_capacity(rows.len()), upto: after, more: false };
        for row in &rows {
            row::feed_change(&mut SqliteCells { row, next: 0 }, limit, &mut changes)?;
        }
        Ok(changes)
    }

    pub(super) async fn feed_last(&self) -> Result<i64, Error> {
        let rows = fetch(&self.reads, query(FEED_END)).await?;
        let row = rows.first().ok_or_else(|| Error::unavailable("unexpected answer"))?;
        let last: Option<i64> = row.try_get(0).map_err(|error| Error::of_read(&error))?;
        Ok(last.unwrap_or(0))
    }
}
