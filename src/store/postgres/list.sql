-- opledger: list
-- A page of operations, newest first: ids grow with time. A null parameter is no filter.
select
    o.operation_id, o.namespace, o.operation_key, o.action_type, o.request_hash, o.hash_scheme,
    o.labels, o.parent_operation_key, o.payload_json, o.lease_secret, o.created_at,
    o.status, o.version, o.attempt_count, o.attempt_floor, o.claim_ids,
    o.lease_holder, o.lease_claimed_at, o.lease_until, o.lease_duration_ms, o.two_step, o.dispatched,
    o.external_id, o.result_json, o.error_code, o.error_message, o.first_attempt_at, o.attempt_ended_at,
    o.unknown_since, o.escalate_at, o.next_check_at, o.check_count,
    o.deliver_at, o.check_lease, o.check_lease_count, o.poll_id, o.review_reason, o.review_since,
    o.conflict_count, o.outcome_conflict_count, o.last_report, o.updated_at, o.completed_at,
    o.retain_until, o.result_forgotten_at
from agent_operations as o
where o.namespace = $1::text
    and ($2::uuid is null or o.operation_id < $2::uuid)
    and ($3::text[] is null or o.status = any ($3::text[]))
    and ($4::text[] is null or o.action_type = any ($4::text[]))
    and ($5::boolean is null or (o.review_reason is not null) = $5::boolean)
    and ($6::timestamptz is null or o.updated_at < $6::timestamptz)
    and ($7::timestamptz is null or o.updated_at >= $7::timestamptz)
    and ($8::text is null or o.parent_operation_key = $8::text)
    and ($9::text is null or o.labels::jsonb @> $9::text::jsonb)
order by o.operation_id desc
limit $10::bigint
