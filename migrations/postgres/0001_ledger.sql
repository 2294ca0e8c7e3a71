-- The ledger: operations, their journal, and what is due.
--
-- Texts are bounded by varchar(n), which PostgreSQL checks by a length comparison and only when the
-- column is written; check constraints run for every row on every update, so there are few of them.
-- Keys are compared byte by byte (collate "C"): as the program sorts them, and independent of the
-- operating system's collation, whose upgrades would corrupt an index.

-- One row for each operation: one logical intention. Columns of fixed width come first, so that
-- reading a row skips quickly to any of them and none is padded.
create table agent_operations (
    -- UUIDv7, made when the operation is registered: the receipt that a caller can hold.
    operation_id uuid not null,
    -- Grows by one with each accepted change; writers compare it before they write.
    version bigint not null,
    -- When it was registered.
    created_at timestamptz not null,
    -- When it last changed.
    updated_at timestamptz not null,
    -- Permissions to act that were ever granted.
    attempt_count integer not null,
    -- Attempts that the policy's maximum no longer counts, because a person released the operation after them.
    attempt_floor integer not null,
    -- Observations that did not settle it, since it last became unknown.
    check_count integer not null,
    -- Requests that were refused because they differ from this one; grows without a version.
    conflict_count integer not null,
    -- Contradicting outcomes that were reported.
    outcome_conflict_count integer not null,
    -- The current attempt sends nothing before its Dispatch was acknowledged.
    two_step boolean not null,
    -- The current attempt may have sent something.
    dispatched boolean not null,
    -- When the current lease was granted.
    lease_claimed_at timestamptz,
    -- When the current lease is over.
    lease_until timestamptz,
    -- How long the current lease was granted for, in milliseconds.
    lease_duration_ms bigint,
    -- When the first attempt was granted.
    first_attempt_at timestamptz,
    -- When the last attempt's lease ended or it was marked unknown.
    attempt_ended_at timestamptz,
    -- Since when the outcome has been unknown.
    unknown_since timestamptz,
    -- When an unknown operation counts as unresolved.
    escalate_at timestamptz,
    -- When the provider should be asked next.
    next_check_at timestamptz,
    -- When a deliverer should take it; only while pending with a stored payload.
    deliver_at timestamptz,
    -- Since when a person must decide.
    review_since timestamptz,
    -- When it succeeded or finally failed.
    completed_at timestamptz,
    -- When retention looks at it next; null where the policy keeps everything.
    retain_until timestamptz,
    -- When the result, the payload and the events up to then were deleted.
    result_forgotten_at timestamptz,
    -- The poll that took the current lease, so that its repeat gets it again.
    poll_id uuid,
    -- Checkers' leases that were ever granted.
    check_lease_count integer not null,
    -- The checker's lease whose report has not come: holder, end and duration, as JSON.
    check_lease text,
    -- Whose keys these are; separate namespaces never meet.
    namespace varchar(64) collate "C" not null,
    -- The stable name of the intention, kept across retries.
    operation_key varchar(200) collate "C" not null,
    -- Which tool; selects the policy.
    action_type varchar(80) collate "C" not null,
    -- SHA-256 of the canonical request, in lower-case hexadecimal.
    request_hash varchar(64) collate "C" not null,
    -- How request_hash was made.
    hash_scheme text collate "C" not null,
    -- Random bytes from which the lease tokens are derived. Secret.
    lease_secret bytea not null,
    -- Where the operation stands.
    status text collate "C" not null,
    -- The claim ids of the latest attempts, oldest first, 16 bytes each; null before the first.
    claim_ids bytea,
    -- Who said to hold the current lease; a note for people.
    lease_holder text,
    -- The provider's name for the effect.
    external_id varchar(200),
    -- What a replay returns, byte for byte as given. May be secret.
    result_json text,
    -- Why it failed or became unknown, as a short code.
    error_code varchar(100),
    -- Why it failed or became unknown, for people.
    error_message varchar(1000),
    -- Why a person must decide; null where none must.
    review_reason text,
    -- Digests, 16 bytes each, of the reports whose repeat is recognised.
    last_report bytea,
    -- For finding it again: a JSON object of texts; null where there are none.
    labels text,
    -- The operation that this one is a part of.
    parent_operation_key varchar(200) collate "C",
    -- The request as it was sent, only where the caller asked to store it. May be secret.
    payload_json text,

    -- Finds an operation by its name: Register, Claim, Get.
    primary key (namespace, operation_key),
    -- Finds an operation by its receipt: every update, and the list, newest first.
    unique (operation_id),
    constraint status_is_known
        check (status in ('pending', 'in_progress', 'unknown', 'succeeded', 'failed_final')),
    constraint lease_only_in_progress
        check (lease_until is null or status = 'in_progress'),
    constraint request_hash_is_sha256
        check (octet_length(request_hash) = 64)
)
-- Half of each page is left free, so that a row's next version finds room beside it and no index
-- has to change (HOT). For the same reason no index mentions a column that changes.
with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

-- The journal: one row for each accepted change and each notable refusal. Append only: nothing
-- updates a row, and only retention deletes it: with its operation, or with the operation's result.
create table agent_operation_events (
    -- Whose it is.
    operation_id uuid not null,
    -- (transaction id << 12) + agent_feed.sequence_offset + place in the transaction. Grows within an
    -- operation. Over all operations it grows with the transaction ids, and transactions commit in
    -- another order than they begin: who follows all events must stop at
    -- (pg_snapshot_xmin(pg_current_snapshot()) << 12) + agent_feed.sequence_offset, below which every
    -- transaction has ended and no event can appear any more. A transaction writes at most 4096 events.
    sequence bigint not null,
    -- The operation's version after it; unchanged by a refusal.
    version bigint not null,
    -- When, on this database's clock.
    event_at timestamptz not null,
    -- The operation's attempt count after it.
    attempt integer not null,
    -- What happened.
    kind text collate "C" not null,
    -- The operation's status after it.
    status text collate "C" not null,
    -- Who did it: the authenticated principal, or system:….
    actor text not null,
    -- The fields that it changed and what was said about it, as JSON; null where nothing was.
    detail_json text,

    -- Reads one operation's history in order.
    primary key (operation_id, sequence),
    constraint kind_is_known
        check (kind in (
            'registered', 'claimed', 'dispatched', 'renewed', 'succeeded', 'failed_final',
            'marked_unknown', 'lease_expired', 'released', 'checked', 'escalated',
            'conflict_refused', 'outcome_conflict', 'result_forgotten', 'check_claimed'
        ))
);

-- Follows the events of all operations in order: the change feed.
create index agent_operation_events_in_order on agent_operation_events (sequence);

-- One row: what holds for the change feed as a whole.
create table agent_feed (
    -- Always true: there is one row.
    id boolean primary key default true check (id),
    -- Added to every sequence number, so that they go on growing where a dump is restored into a cluster
    -- whose transaction ids are behind. A multiple of 4096; only ever raised.
    sequence_offset bigint not null check (sequence_offset >= 0 and sequence_offset % 4096 = 0)
);
insert into agent_feed (sequence_offset) values (0);

-- What has to happen to an operation, and when, if nobody says anything: at most one moment of
-- each kind. Small, because finished operations have none, except where the policy limits how long they
-- are kept.
create table agent_operation_due (
    -- Whose it is.
    operation_id uuid not null,
    -- When it is due.
    due_at timestamptz not null,
    -- What: sweep (a lease ends, an unknown operation counts as unresolved), check (the provider
    -- has to be asked), deliver (waits for a deliverer), review (a person has to decide), retain (the result or the
    -- key of a finished operation is no longer kept).
    kind text collate "C" not null,
    -- The operation's namespace.
    namespace varchar(64) collate "C" not null,
    -- The operation's action type.
    action_type varchar(80) collate "C" not null,
    -- The poll that holds the lease whose end is due.
    poll_id uuid,
    -- Since when the outcome has been unknown, where it is: so that the figures need no other table.
    unknown_since timestamptz,

    -- Sets and deletes one operation's moments.
    primary key (operation_id, kind),
    constraint kind_is_known
        check (kind in ('sweep', 'check', 'deliver', 'review', 'retain'))
)
-- Rows come and go quickly; vacuum must keep up although the table stays small.
with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- Takes what has to be looked at or decided, longest due first: the sweeper, the reviews and retention. A row's
-- kind
-- never changes, so each row stands in one of the two partial indexes.
create index agent_operation_due_by_moment on agent_operation_due (kind, due_at)
    where kind in ('sweep', 'review', 'retain');

-- Takes what a checker or a deliverer may have, action type by action type, longest due first.
create index agent_operation_due_for_polls on agent_operation_due (namespace, kind, action_type, due_at)
    where kind in ('check', 'deliver');

-- Finds again what a poll took, when its answer was lost.
create index agent_operation_due_by_poll on agent_operation_due (poll_id) where poll_id is not null;

-- What a batch of writes carries, a row for each operation: one array of this type is one parameter,
-- where an array for each column would cost PostgreSQL more than the writing itself. A migration
-- that adds a column makes a new type beside it, so that the older binary can go on.
create type agent_operation_write_1 as (
    -- The version that must be there; null where the operation must be new.
    expected_version bigint,
    -- The conflict count that must be there; null where the operation must be new.
    expected_conflict_count integer,
    -- See agent_operations for these.
    operation_id uuid,
    version bigint,
    updated_at timestamptz,
    attempt_count integer,
    attempt_floor integer,
    check_count integer,
    check_lease_count integer,
    conflict_count integer,
    outcome_conflict_count integer,
    two_step boolean,
    dispatched boolean,
    lease_claimed_at timestamptz,
    lease_until timestamptz,
    lease_duration_ms bigint,
    first_attempt_at timestamptz,
    attempt_ended_at timestamptz,
    unknown_since timestamptz,
    escalate_at timestamptz,
    next_check_at timestamptz,
    deliver_at timestamptz,
    review_since timestamptz,
    completed_at timestamptz,
    retain_until timestamptz,
    result_forgotten_at timestamptz,
    poll_id uuid,
    check_lease text,
    status text,
    claim_ids bytea,
    lease_holder text,
    external_id text,
    result_json text,
    error_code text,
    error_message text,
    review_reason text,
    last_report bytea,
    -- These too; null where the operation is there already, as they never change.
    created_at timestamptz,
    namespace text,
    operation_key text,
    action_type text,
    request_hash text,
    hash_scheme text,
    lease_secret bytea,
    labels text,
    parent_operation_key text,
    payload_json text
);

-- The events of a batch, in order; see agent_operation_events.
create type agent_operation_event_write_1 as (
    -- Whose it is: it is written only where the operation is.
    operation_id uuid,
    -- See agent_operation_events for these.
    version bigint,
    event_at timestamptz,
    attempt integer,
    kind text,
    status text,
    actor text,
    detail_json text
);

-- The due work of a batch; see agent_operation_due.
create type agent_operation_due_write_1 as (
    -- Whose it is: it is written only where the operation is.
    operation_id uuid,
    -- What is due.
    kind text,
    -- When; null deletes it.
    due_at timestamptz,
    -- See agent_operation_due for these.
    namespace text,
    action_type text,
    poll_id uuid,
    unknown_since timestamptz
);
