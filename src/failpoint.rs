//! Places where a crash test stops the process. They do nothing unless the crate is built with the
//! feature `failpoints` and `FAILPOINTS` names them, as in `FAILPOINTS=store::before_commit=return`.

/// Exit code at [`before_commit`].
pub const EXIT_BEFORE_COMMIT: i32 = 17;
/// Exit code at [`after_commit`].
pub const EXIT_AFTER_COMMIT: i32 = 18;

/// The last moment at which nothing of a batch can be durable.
pub fn before_commit() {
    fail::fail_point!("store::before_commit", |_| std::process::exit(EXIT_BEFORE_COMMIT));
}

/// The first moment at which a batch that wrote something is durable; nobody has been told yet.
pub fn after_commit() {
    fail::fail_point!("store::after_commit", |_| std::process::exit(EXIT_AFTER_COMMIT));
}
