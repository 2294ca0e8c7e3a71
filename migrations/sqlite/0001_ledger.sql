-- The ledger: operations, their journal, and what is due.
--
-- Points in time are whole microseconds since 1970 (readable with datetime(created_at / 1e6, 'unixepoch')),
-- ids are hyphenated lower-case texts, so that their order is the order of their bytes.

-- One row for each operation: one logical intention.
create table agent_operations (
    -- UUIDv7, made when the operation is registered: the receipt that a caller can hold.
    operation_id text not null,
    -- Grows by one with each accepted change; writers compare it before they write.
    version integer not null,
    -- When it was registered.
    created_at integer not null,
    -- When it last changed.
    updated_at integer not null,
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
    two_step integer not null,
    -- The current attempt may have sent something.
    dispatched integer not null,
    -- When the current lease was granted.
    lease_claimed_at integer,
    -- When the current lease is over.
    lease_until integer,
    -- How long the current lease was granted for, in milliseconds.
    lease_duration_ms integer,
    -- When the first attempt was granted.
    first_attempt_at integer,
    -- When the last attempt's lease ended or it was marked unknown.
    attempt_ended_at integer,
    -- Since when the outcome has been unknown.
    unknown_since integer,
    -- When an unknown operation counts as unresolved.
    escalate_at integer,
    -- When the provider should be asked next.
    next_check_at integer,
    -- When a deliverer should take it; only while pending with a stored payload.
    deliver_at integer,
    -- The checker's lease whose report has not come: holder, end and duration, as JSON.
    check_lease text,
    -- Checkers' leases that were ever granted.
    check_lease_count integer not null,
    -- The poll that took the current lease, so that its repeat gets it again.
    poll_id text,
    -- Since when a person must decide.
    review_since integer,
    -- When it succeeded or finally failed.
    completed_at integer,
    -- When retention looks at it next; null where the policy keeps everything.
    retain_until integer,
    -- When the result, the payload and the events up to then were deleted.
    result_forgotten_at integer,
    -- Whose keys these are; separate namespaces never meet.
    namespace text not null check (length(namespace) between 1 and 64),
    -- The stable name of the intention, kept across retries.
    operation_key text not null check (length(operation_key) between 1 and 200),
    -- Which tool; selects the policy.
    action_type text not null check (length(action_type) between 1 and 80),
    -- SHA-256 of the canonical request, in lower-case hexadecimal.
    request_hash text not null check (length(request_hash) = 64),
    -- How request_hash was made.
    hash_scheme text not null,
    -- Random bytes from which the lease tokens are derived. Secret.
    lease_secret blob not null,
    -- Where the operation stands.
    status text not null
        check (status in ('pending', 'in_progress', 'unknown', 'succeeded', 'failed_final')),
    -- The claim ids of the latest attempts, oldest first, 16 bytes each; null before the first.
    claim_ids blob,
    -- Who said to hold the current lease; a note for people.
    lease_holder text,
    -- The provider's name for the effect.
    external_id text check (length(external_id) <= 200),
    -- What a replay returns, byte for byte as given. May be secret.
    result_json text,
    -- Why it failed or became unknown, as a short code.
    error_code text check (length(error_code) <= 100),
    -- Why it failed or became unknown, for people.
    error_message text check (length(error_message) <= 1000),
    -- Why a person must decide; null where none must.
    review_reason text,
    -- Digests, 16 bytes each, of the reports whose repeat is recognised.
    last_report blob,
    -- For finding it again: a JSON object of texts; null where there are none.
    labels text,
    -- The operation that this one is a part of.
    parent_operation_key text check (length(parent_operation_key) <= 200),
    -- The request as it was sent, only where the caller asked to store it. May be secret.
    payload_json text,

    -- Finds an operation by its name: Register, Claim, Get.
    primary key (namespace, operation_key),
    -- Finds an operation by its receipt: every update, and the list, newest first.
    unique (operation_id),
    constraint lease_only_in_progress check (lease_until is null or status = 'in_progress')
) strict;

-- The journal: one row for each accepted change and each notable refusal. Append only: nothing
-- updates a row, and only retention deletes it: with its operation, or with the operation's result.
create table agent_operation_events (
    -- Grows over all operations, in the order of the commits; never used twice.
    sequence integer primary key autoincrement,
    -- Whose it is.
    operation_id text not null,
    -- The operation's version after it; unchanged by a refusal.
    version integer not null,
    -- When, on this machine's clock.
    event_at integer not null,
    -- The operation's attempt count after it.
    attempt integer not null,
    -- What happened.
    kind text not null
        check (kind in (
            'registered', 'claimed', 'dispatched', 'renewed', 'succeeded', 'failed_final',
            'marked_unknown', 'lease_expired', 'released', 'checked', 'escalated',
            'conflict_refused', 'outcome_conflict', 'result_forgotten', 'check_claimed'
        )),
    -- The operation's status after it.
    status text not null,
    -- Who did it: the authenticated principal, or system:….
    actor text not null,
    -- The fields that it changed and what was said about it, as JSON; null where nothing was.
    detail_json text
) strict;

-- Reads one operation's history in order (the sequence is part of every index entry).
create index agent_operation_events_by_operation on agent_operation_events (operation_id);

-- What has to happen to an operation, and when, if nobody says anything: at most one moment of
-- each kind. Small, because finished operations have none, except where the policy limits how long they
-- are kept.
create table agent_operation_due (
    -- Whose it is.
    operation_id text not null,
    -- What: sweep (a lease ends, an unknown operation counts as unresolved), check (the provider
    -- has to be asked), deliver (waits for a deliverer), review (a person has to decide), retain (the result or the
    -- key of a finished operation is no longer kept).
    kind text not null check (kind in ('sweep', 'check', 'deliver', 'review', 'retain')),
    -- When it is due.
    due_at integer not null,
    -- The operation's namespace.
    namespace text not null,
    -- The operation's action type.
    action_type text not null,
    -- The poll that holds the lease whose end is due.
    poll_id text,
    -- Since when the outcome has been unknown, where it is: so that the figures need no other table.
    unknown_since integer,

    -- Sets and deletes one operation's moments.
    primary key (operation_id, kind)
) strict, without rowid;

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
