//! Temporary databases for the tests.
//!
//! SQLite: a file in a temporary folder. PostgreSQL: a fresh database for each test on the server
//! that `OPLEDGER_TEST_POSTGRES_URL` names (a superuser's URL), dropped at the end. Without that
//! variable the PostgreSQL half of a test is skipped with a line; where `CI` is set, it fails.

use opledger::store::{self, Backend, Settings, Store};
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};
use std::{future::Future, sync::Arc};
use tempfile::TempDir;
use uuid::Uuid;

/// A database that goes away with this value, except in PostgreSQL: see [`Database::drop_now`].
pub struct Database {
    pub backend: Backend,
    pub url: String,
    _folder: Option<TempDir>,
}

impl Database {
    /// An empty database of each kind that there is here, without a ledger in it.
    pub async fn empty(backend: Backend) -> Option<Self> {
        match backend {
            Backend::Sqlite => {
                let folder = tempfile::tempdir().unwrap();
                let url = format!("sqlite://{}", folder.path().join("ledger.db").display());
                Some(Self { backend, url, _folder: Some(folder) })
            }
            Backend::Postgres => {
                let admin = postgres_url()?;
                let name = format!("opledger_test_{}", Uuid::new_v4().simple());
                execute_postgres(&admin, format!("create database {name}")).await;
                let (server, _) = admin.rsplit_once('/').expect("a URL with a database");
                Some(Self { backend, url: format!("{server}/{name}"), _folder: None })
            }
        }
    }

    /// Opens a store on it.
    pub async fn open(&self) -> Arc<dyn Store> {
        self.open_with(&Settings::default()).await
    }

    /// Opens a store on it.
    pub async fn open_with(&self, settings: &Settings) -> Arc<dyn Store> {
        store::open(&self.url, settings).await.unwrap()
    }

    /// Runs SQL past the store.
    pub async fn execute(&self, sql: &str) {
        match self.backend {
            Backend::Postgres => execute_postgres(&self.url, sql.to_owned()).await,
            Backend::Sqlite => {
                let mut connection = SqliteConnection::connect(&self.url).await.unwrap();
                sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut connection).await.unwrap();
                connection.close().await.unwrap();
            }
        }
    }

    /// Asks for one number past the store.
    pub async fn number(&self, sql: &str) -> i64 {
        let sql = AssertSqlSafe(sql.to_owned());
        match self.backend {
            Backend::Postgres => {
                let mut connection = PgConnection::connect(&self.url).await.unwrap();
                sqlx::query_scalar(sql).fetch_one(&mut connection).await.unwrap()
            }
            Backend::Sqlite => {
                let mut connection = SqliteConnection::connect(&self.url).await.unwrap();
                sqlx::query_scalar(sql).fetch_one(&mut connection).await.unwrap()
            }
        }
    }

    /// Drops a PostgreSQL database; a SQLite file goes with its folder.
    pub async fn drop_now(self) {
        if self.backend == Backend::Postgres {
            let name = self.url.rsplit_once('/').expect("a URL with a database").1.to_owned();
            let admin = postgres_url().expect("it was there before");
            execute_postgres(&admin, format!("drop database {name} with (force)")).await;
        }
    }
}

fn postgres_url() -> Option<String> {
    match std::env::var("OPLEDGER_TEST_POSTGRES_URL") {
        Ok(url) if !url.is_empty() => Some(url),
        _ if std::env::var_os("CI").is_some() => {
            panic!("OPLEDGER_TEST_POSTGRES_URL is not set: in CI the PostgreSQL tests must run")
        }
        _ => {
            println!("skipped on PostgreSQL: OPLEDGER_TEST_POSTGRES_URL is not set");
            None
        }
    }
}

async fn execute_postgres(url: &str, sql: String) {
    let mut connection = PgConnection::connect(url).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

/// Runs a test on an empty database of each kind.
pub fn on_each_backend<F: Future<Output = ()>>(test: impl Fn(Arc<Database>) -> F) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        for backend in [Backend::Sqlite, Backend::Postgres] {
            if let Some(database) = Database::empty(backend).await {
                let database = Arc::new(database);
                test(Arc::clone(&database)).await;
                if let Ok(database) = Arc::try_unwrap(database) {
                    database.drop_now().await;
                }
            }
        }
    });
}

/// Runs a test on a new ledger of each kind.
pub fn on_each_store<F: Future<Output = ()>>(test: impl Fn(Arc<Database>, Arc<dyn Store>) -> F) {
    on_each_backend(|database| async {
        store::migrate(&database.url).await.unwrap();
        let store = database.open().await;
        test(database, store).await;
    });
}
