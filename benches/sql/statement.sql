-- One statement for each op, committing by itself: the best that row by row can do.
-- One script is one operation: Register, Claim, Complete, so three ops. It writes the same rows, events
-- and due work as the service, in the service's own tables, under keys that grow with time. Texts that
-- the service computes are constants of the same length: this favours pgbench. (\x3a is a colon, which
-- pgbench would take for the beginning of a variable.)
\set n :n + 1
\set seq :base + :n * 1000 + :client_id

with operation as (
    insert into agent_operations (
    operation_id, version, created_at, updated_at,
    attempt_count, attempt_floor, check_count, check_lease_count, conflict_count, outcome_conflict_count, two_step, dispatched,
    namespace, operation_key, action_type, request_hash, hash_scheme, lease_secret, status
    )
    values (
    lpad(to_hex(:seq::bigint), 32, '0')::uuid, 1, now(), now(), 0, 0, 0, 0, 0, 0, false, false,
    'bench', 'bench-' || :seq::text, 'bench',
    '1f9bb006ca118bd5ec3a9e85c97c6bafe3461a1ebd9b43f1d74a252c0c653c0c', 'jcs-sha256/1',
    '\x449057d685e247568d809a29271917c0'::bytea, 'pending'
    )
    on conflict (namespace, operation_key) do nothing
    returning operation_id, version
)
insert into agent_operation_events (operation_id, sequence, version, event_at, attempt, kind, status, actor, detail_json)
select operation_id, pg_current_xact_id()::text::bigint << 12, version, now(), 0, 'registered', 'pending', 'anonymous', null
from operation;

with operation as (
    update agent_operations set
    status = 'in_progress', version = version + 1, attempt_count = attempt_count + 1,
    claim_ids = '\x1efcc5c762b888018000000000000000'::bytea, lease_holder = 'bench', lease_claimed_at = now(),
    lease_until = now() + interval '30 s', lease_duration_ms = 30000, dispatched = true,
    first_attempt_at = now(), updated_at = now()
    where namespace = 'bench' and operation_key = 'bench-' || :seq::text and status = 'pending'
    returning operation_id, version, attempt_count
),
journal as (
    insert into agent_operation_events (operation_id, sequence, version, event_at, attempt, kind, status, actor, detail_json)
    select
        operation_id, pg_current_xact_id()::text::bigint << 12, version, now(), attempt_count, 'claimed', 'in_progress', 'anonymous',
        E'{"lease"\x3a{"holder"\x3a"bench","claimed_at"\x3a1796098678381256,"until"\x3a1796098708381256,"duration_ms"\x3a30000,"two_step"\x3afalse},"dispatched"\x3atrue}'
    from operation
)
insert into agent_operation_due (operation_id, due_at, kind, namespace, action_type)
select operation_id, now() + interval '30 s', 'sweep', 'bench', 'bench' from operation;

with operation as (
    update agent_operations set
    status = 'succeeded', version = version + 1, lease_holder = null, lease_claimed_at = null,
    lease_until = null, lease_duration_ms = null, external_id = 'ext-0000000000000000',
    result_json = E'{"id"\x3a"pay_2f6d1e0a5b11","status"\x3a"paid","amount"\x3a4990,"note"\x3a"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}',
    updated_at = now(), completed_at = now()
    where namespace = 'bench' and operation_key = 'bench-' || :seq::text and status = 'in_progress' and attempt_count = 1
    returning operation_id, version, attempt_count
),
journal as (
    insert into agent_operation_events (operation_id, sequence, version, event_at, attempt, kind, status, actor, detail_json)
    select
        operation_id, pg_current_xact_id()::text::bigint << 12, version, now(), attempt_count, 'succeeded', 'succeeded', 'anonymous',
        E'{"lease"\x3anull,"external_id"\x3a"ext-0000000000000000","reported_attempt"\x3a1}'
    from operation
)
delete from agent_operation_due where kind = 'sweep' and operation_id = (select operation_id from operation);
