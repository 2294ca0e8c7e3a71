-- opledger: update
-- Writes the changed records of a batch, ?2 = one array for each, that are still what they were.
with batch as materialized (select jsonb(value) as r from json_each(?2)),
changed as (
    select
        r ->> 0 as operation_id, r ->> 1 as expected_version, r ->> 2 as expected_conflict_count,
        r ->> 3 as status, r ->> 4 as version, r ->> 5 as attempt_count, r ->> 6 as attempt_floor,
        unhex(r ->> 7) as claim_ids, r ->> 8 as lease_holder, r ->> 9 as lease_claimed_at,
        r ->> 10 as lease_until, r ->> 11 as lease_duration_ms, r ->> 12 as two_step,
        r ->> 13 as dispatched, r ->> 14 as external_id, r ->> 15 as result_json, r ->> 16 as error_code,
        r ->> 17 as error_message, r ->> 18 as first_attempt_at, r ->> 19 as attempt_ended_at,
        r ->> 20 as unknown_since, r ->> 21 as escalate_at, r ->> 22 as next_check_at,
        r ->> 23 as check_count, r ->> 24 as deliver_at, r ->> 25 as check_lease,
        r ->> 26 as check_lease_count, r ->> 27 as poll_id, r ->> 28 as review_reason, r ->> 29 as review_since,
        r ->> 30 as conflict_count, r ->> 31 as outcome_conflict_count, unhex(r ->> 32) as last_report,
        r ->> 33 as updated_at, r ->> 34 as completed_at,
        r ->> 35 as retain_until, r ->> 36 as result_forgotten_at
    from batch
)
update agent_operations as o
set
    status = b.status,
    version = b.version,
    attempt_count = b.attempt_count,
    attempt_floor = b.attempt_floor,
    claim_ids = b.claim_ids,
    lease_holder = b.lease_holder,
    lease_claimed_at = b.lease_claimed_at,
    lease_until = b.lease_until,
    lease_duration_ms = b.lease_duration_ms,
    two_step = b.two_step,
    dispatched = b.dispatched,
    external_id = b.external_id,
    result_json = b.result_json,
    error_code = b.error_code,
    error_message = b.error_message,
    first_attempt_at = b.first_attempt_at,
    attempt_ended_at = b.attempt_ended_at,
    unknown_since = b.unknown_since,
    escalate_at = b.escalate_at,
    next_check_at = b.next_check_at,
    check_count = b.check_count,
    deliver_at = b.deliver_at,
    check_lease = b.check_lease,
    check_lease_count = b.check_lease_count,
    poll_id = b.poll_id,
    review_reason = b.review_reason,
    review_since = b.review_since,
    conflict_count = b.conflict_count,
    outcome_conflict_count = b.outcome_conflict_count,
    last_report = b.last_report,
    updated_at = b.updated_at,
    completed_at = b.completed_at,
    retain_until = b.retain_until,
    result_forgotten_at = b.result_forgotten_at
from changed as b
where o.operation_id = b.operation_id
    and o.version = b.expected_version
    and o.conflict_count = b.expected_conflict_count
returning operation_id
