//! Goal: a schema that fits is made once however many start at once; one that does not fit is
//! refused with its remedy. Method: databases of each kind, changed past the store.

use crate::harness::{Database, on_each_backend};
use opledger::store::{self, Backend, Error, Settings, migrate::Report};
use std::sync::Arc;

#[test]
fn an_empty_database_is_migrated_once_however_many_try() {
    on_each_backend(|database| async move {
        let message = refusal(&database).await;
        assert!(message.contains("opledger migrate"), "{message}");

        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let database = Arc::clone(&database);
                tokio::spawn(async move { store::migrate(&database.url).await.unwrap() })
            })
            .collect();
        let mut first = 0;
        for task in tasks {
            let Report { before, after } = task.await.unwrap();
            assert_eq!(after, 1);
            first += i32::from(before.is_none());
        }
        assert_eq!(first, 1, "one of them did the work");
        store::check_schema(&database.url).await.unwrap();
    });
}

#[test]
fn a_newer_and_a_changed_schema_are_refused() {
    on_each_backend(|database| async move {
        store::migrate(&database.url).await.unwrap();
        let now = "current_timestamp";
        let checksum = if database.backend == Backend::Postgres { "'\\x00'" } else { "x'00'" };
        database
            .execute(&format!("insert into _sqlx_migrations values (7, 'later', {now}, true, {checksum}, 1)"))
            .await;
        for message in
            [refusal(&database).await, store::migrate(&database.url).await.unwrap_err().to_string()]
        {
            assert!(message.contains("(7) is newer than this binary's (1)"), "{message}");
            assert!(message.contains("backup"), "{message}");
        }
        database.execute("delete from _sqlx_migrations where version = 7").await;
        database.execute(&format!("update _sqlx_migrations set checksum = {checksum}")).await;
        for message in
            [refusal(&database).await, store::migrate(&database.url).await.unwrap_err().to_string()]
        {
            assert!(message.contains("migration 1 in the database is not the one"), "{message}");
        }
    });
}

#[test]
fn a_running_store_notices_another_schema() {
    on_each_backend(|database| async move {
        store::migrate(&database.url).await.unwrap();
        let store = database.open().await;
        store.check().await.unwrap();
        database.execute("drop table _sqlx_migrations").await;
        assert!(matches!(store.check().await, Err(Error::Schema { .. })));
    });
}

async fn refusal(database: &Database) -> String {
    match store::open(&database.url, &Settings::default()).await {
        Err(error @ Error::Schema { .. }) => error.to_string(),
        Err(error) => panic!("another error: {error}"),
        Ok(_) => panic!("it was opened"),
    }
}

#[tokio::test]
async fn a_sqlite_file_that_cannot_be_used_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("notes.db");
    std::fs::write(&file, "not a database, but somebody's notes, long enough for a header".repeat(40))
        .unwrap();
    let before = std::fs::read(&file).unwrap();
    let url = format!("sqlite://{}", file.display());
    for result in [store::migrate(&url).await.map(|_| ()), store::check_schema(&url).await] {
        let message = result.unwrap_err().to_string();
        assert!(message.contains("not a SQLite database"), "{message}");
    }
    assert_eq!(std::fs::read(&file).unwrap(), before);

    for (url, expected) in [
        (format!("sqlite://{}/none/ledger.db", folder.path().display()), "does not exist"),
        (format!("sqlite://{}", folder.path().display()), "is a folder"),
        ("sqlite://:memory:".to_owned(), "would forget"),
        ("sqlite://".to_owned(), "would forget"),
        ("sqlite://x.db?mode=memory".to_owned(), "no parameters"),
        ("mysql://x".to_owned(), "must begin with"),
        ("postgres://:/:/".to_owned(), "not valid"),
    ] {
        let message = store::migrate(&url).await.unwrap_err().to_string();
        assert!(message.contains(expected), "{url}: {message}");
    }
}

#[tokio::test]
async fn an_unreachable_server_is_unavailable_and_its_password_stays_secret() {
    let url = "postgres://ann:secret@127.0.0.1:1/ledger";
    let error = match store::open(url, &Settings::default()).await {
        Err(error) => error,
        Ok(_) => panic!("it was opened"),
    };
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
}
