-- Finished operations number :first to :last with their events, as the service leaves them.
insert into agent_operations (
    operation_id, version, created_at, updated_at,
    attempt_count, attempt_floor, check_count, check_lease_count, conflict_count, outcome_conflict_count, two_step, dispatched,
    first_attempt_at, completed_at,
    namespace, operation_key, action_type, request_hash, hash_scheme, lease_secret, status,
    claim_ids, external_id, result_json
)
with recursive numbers (n) as (select :first union all select n + 1 from numbers where n < :last)
select
    printf('00000000-0000-0000-0000-%012x', n), 3, 1796098678362346, 1796098678400633, 1, 0, 0, 0, 0, 0, 0, 1,
    1796098678381256, 1796098678400633,
    'bench', printf('bench-%025x', n), 'bench',
    '1f9bb006ca118bd5ec3a9e85c97c6bafe3461a1ebd9b43f1d74a252c0c653c0c', 'jcs-sha256/1',
    randomblob(16), 'succeeded', randomblob(16), printf('ext-%016x', n),
    '{"id":"pay_2f6d1e0a5b11","status":"paid","amount":4990,"note":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}'
from numbers;

insert into agent_operation_events (operation_id, version, event_at, attempt, kind, status, actor, detail_json)
with recursive numbers (n) as (select :first union all select n + 1 from numbers where n < :last),
    e (version, attempt, kind, status, detail_json) as (
    values
        (1, 0, 'registered', 'pending', null),
        (2, 1, 'claimed', 'in_progress', '{"lease":{"holder":"bench","claimed_at":1796098678381256,"until":1796098708381256,"duration_ms":30000,"two_step":false},"dispatched":true}'),
        (3, 1, 'succeeded', 'succeeded', '{"lease":null,"external_id":"ext-0000000000000000","reported_attempt":1}')
)
select
    printf('00000000-0000-0000-0000-%012x', n), e.version, 1796098678362346, e.attempt, e.kind, e.status, 'anonymous', e.detail_json
from numbers cross join e;
