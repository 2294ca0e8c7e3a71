-- The transaction of the textbook: begin, select for update, write, write the event, commit.
-- One script is one operation: Register, Claim, Complete, so three ops. It writes the same rows, events
-- and due work as the service, in the service's own tables, under keys that grow with time. Texts that
-- the service computes are constants of the same length: this favours pgbench. (\x3a is a colon, which
-- pgbench would take for the beginning of a variable.)
\set n :n + 1
\set seq :base + :n * 1000 + :client_id

begin;
select operation_id, status, version, attempt_count, lease_until
from agent_operations where namespace = 'bench' and operation_key = 'bench-' || :seq::text for update;
insert into agent_operations (
    operation_id, version, created_at, updated_at,
    attempt_count, attempt_floor, check_count, check_lease_count, conflict_count, outcome_conflict_count, two_step, dispatched,
    namespace, operation_key, action_type, request_hash, hash_scheme, lease_secret, status
) values (
    lpad(to_hex(:seq::bigint), 32, '0')::uuid, 1, now(), now(), 0, 0, 0, 0, 0, 0, false, false,
    'bench', 'bench-' || :seq::text, 'bench',
    '1f9bb006ca118bd5ec3a9e85c97c6bafe3461a1ebd9b43f1d74a252c0c653c0c', 'jcs-sha256/1',
    '\x449057d685e247568d809a29271917c0'::bytea, 'pending'
);
insert into agent_operation_events (operation_id, sequence, version, event_at, attempt, kind, status, actor, detail_json)
values (lpad(to_hex(:seq::bigint), 32, '0')::uuid, pg_current_xact_id()::text::bigint << 12, 1, now(), 0, 'registered', 'pending', 'anonymous', null);
commit;

begin;
select operation_id, status, version, attempt_count, lease_until
from agent_operations where namespace = 'bench' and operation_key = 'bench-' || :seq::text for update;
update agent_operations set
    status = 'in_progress', version = version + 1, attempt_count = attempt_count + 1,
    claim_ids = '\x1efcc5c762b888018000000000000000'::bytea, lease_holder = 'bench', lease_claimed_at = now(),
    lease_until = now() + interval '30 s', lease_duration_ms = 30000, dispatched = true,
    first_attempt_at = now(), updated_at = now()
where namespace = 'bench' and operation_key = 'bench-' || :seq::text;
with due as (
    insert into agent_operation_due (operation_id, due_at, kind, namespace, action_type)
    values (lpad(to_hex(:seq::bigint), 32, '0')::uuid, now() + interval '30 s', 'sweep', 'bench', 'bench')
)
insert into agent_operation_events (operation_id, sequence, version, event_at, attempt, kind, status, actor, detail_json)
values (
    lpad(to_hex(:seq::bigint), 32, '0')::uuid, pg_current_xact_id()::text::bigint << 12, 2, now(), 1, 'claimed', 'in_progress', 'anonymous',
    E'{"lease"\x3a{"holder"\x3a"bench","claimed_at"\x3a1796098678381256,"until"\x3a1796098708381256,"duration_ms"\x3a30000,"two_step"\x3afalse},"dispatched"\x3atrue}'
);
commit;

begin;
select operation_id, status, version, attempt_count, lease_until
from agent_operations where namespace = 'bench' and operation_key = 'bench-' || :seq::text for update;
update agent_operations set
    status = 'succeeded', version = version + 1, lease_holder = null, lease_claimed_at = null,
    lease_until = null, lease_duration_ms = null, external_id = 'ext-0000000000000000',
    result_json = E'{"id"\x3a"pay_2f6d1e0a5b11","status"\x3a"paid","amount"\x3a4990,"note"\x3a"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}',
    updated_at = now(), completed_at = now()
where namespace = 'bench' and operation_key = 'bench-' || :seq::text;
with due as (
    delete from agent_operation_due where kind = 'sweep' and operation_id = lpad(to_hex(:seq::bigint), 32, '0')::uuid
)
insert into agent_operation_events (operation_id, sequence, version, event_at, attempt, kind, status, actor, detail_json)
values (
    lpad(to_hex(:seq::bigint), 32, '0')::uuid, pg_current_xact_id()::text::bigint << 12, 3, now(), 1, 'succeeded', 'succeeded', 'anonymous',
    E'{"lease"\x3anull,"external_id"\x3a"ext-0000000000000000","reported_attempt"\x3a1}'
);
commit;
