-- opledger: load
-- The records with these keys, one row for each key asked for, with this clock. "limit 1" keeps
-- the planner from turning the look-ups into a join that reads the table.
select
    k.place, clock_timestamp() as now,
    o.operation_id, o.namespace, o.operation_key, o.action_type, o.request_hash, o.hash_scheme,
    o.labels, o.parent_operation_key, o.payload_json, o.lease_secret, o.created_at,
    o.status, o.version, o.attempt_count, o.attempt_floor, o.claim_ids,
    o.lease_holder, o.lease_claimed_at, o.lease_until, o.lease_duration_ms, o.two_step, o.dispatched,
    o.external_id, o.result_json, o.error_code, o.error_message, o.first_attempt_at, o.attempt_ended_at,
    o.unknown_since, o.escalate_at, o.next_check_at, o.check_count,
    o.deliver_at, o.check_lease, o.check_lease_count, o.poll_id, o.review_reason, o.review_since,
    o.conflict_count, o.outcome_conflict_count, o.last_report, o.updated_at, o.completed_at,
    o.retain_until, o.result_forgotten_at
from unnest($1::text[], $2::text[]) with ordinality as k (namespace, operation_key, place)
left join lateral (
    select * from agent_operations as found
    where found.namespace = k.namespace and found.operation_key = k.operation_key
    limit 1
) as o on true
