//! Hears what other replicas announce, on a connection of its own.

use crate::store::{BoxFuture, Error, Listener};
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use std::time::Duration;

/// The channel's name, as in `announce.sql`.
const CHANNEL: &str = "opledger";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

struct PostgresListener(PgListener);

/// Connects and listens. One value is one connection: where that is lost, so is the value.
pub(super) async fn listen(options: &PgConnectOptions) -> Result<Option<Box<dyn Listener>>, Error> {
    let listening = async {
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(CONNECT_TIMEOUT)
            .max_lifetime(None)
            .idle_timeout(None)
            .connect_with(options.clone())
            .await?;
        let mut listener = PgListener::connect_with(&pool).await?;
        // It would go on by itself, and nobody would know what was missed.
        listener.eager_reconnect(false);
        listener.listen(CHANNEL).await?;
        Ok(listener)
    };
    let listener = tokio::time::timeout(CONNECT_TIMEOUT, listening)
        .await
        .map_err(|_| Error::unavailable(format!("no connection within {CONNECT_TIMEOUT:?}")))?
        .map_err(|error: sqlx::Error| Error::of_read(&error))?;
    Ok(Some(Box::new(PostgresListener(listener))))
}

impl Listener for PostgresListener {
    fn next(&mut self) -> BoxFuture<'_, Result<String, Error>> {
        Box::pin(async {
            match self.0.try_recv().await {
                Ok(Some(notification)) => Ok(notification.payload().to_owned()),
                Ok(None) => Err(Error::unavailable("the listening connection was lost")),
                Err(error) => Err(Error::of_read(&error)),
            }
        })
    }
}
