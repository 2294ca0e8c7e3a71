-- opledger: insert
-- Inserts the new records of a batch, ?1 = one array for each, where there is no such key yet.
with batch as materialized (select jsonb(value) as r from json_each(?1))
insert into agent_operations (
    operation_id, status, version, attempt_count, attempt_floor, claim_ids, lease_holder,
    lease_claimed_at, lease_until, lease_duration_ms, two_step, dispatched, external_id, result_json,
    error_code, error_message, first_attempt_at, attempt_ended_at, unknown_since, escalate_at,
    next_check_at, check_count, deliver_at, check_lease, check_lease_count, poll_id, review_reason, review_since, conflict_count, outcome_conflict_count,
    last_report, updated_at, completed_at, retain_until, result_forgotten_at, namespace, operation_key, action_type, request_hash,
    hash_scheme, labels, parent_operation_key, payload_json, lease_secret, created_at
)
select
    r ->> 0, r ->> 1, r ->> 2, r ->> 3, r ->> 4, unhex(r ->> 5), r ->> 6, r ->> 7, r ->> 8, r ->> 9,
    r ->> 10, r ->> 11, r ->> 12, r ->> 13, r ->> 14, r ->> 15, r ->> 16, r ->> 17, r ->> 18, r ->> 19,
    r ->> 20, r ->> 21, r ->> 22, r ->> 23, r ->> 24, r ->> 25, r ->> 26, r ->> 27, r ->> 28, r ->> 29, unhex(r ->> 30), r ->> 31, r ->> 32, r ->> 33, r ->> 34,
    r ->> 35, r ->> 36, r ->> 37, r ->> 38, r ->> 39, r ->> 40, r ->> 41, r ->> 42, unhex(r ->> 43),
    r ->> 44
from batch
where true
on conflict (namespace, operation_key) do nothing
returning operation_id
