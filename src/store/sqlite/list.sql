-- opledger: list
-- A page of operations, newest first: ids grow with time. A null parameter is no filter. The plus
-- keeps SQLite on the index of the ids, which gives the order.
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
where +o.namespace = ?1
    and o.operation_id < coalesce(?2, 'g')
    and (?3 is null or o.status in (select value from json_each(?3)))
    and (?4 is null or o.action_type in (select value from json_each(?4)))
    and (?5 is null or (o.review_reason is not null) = ?5)
    and (?6 is null or o.updated_at < ?6)
    and (?7 is null or o.updated_at >= ?7)
    and (?8 is null or o.parent_operation_key = ?8)
    and (
        ?9 is null
        or (
            select count(*)
            from json_each(?9) as wanted
            join json_each(o.labels) as present on present.key = wanted.key and present.value = wanted.value
        ) = (select count(*) from json_each(?9))
    )
order by o.operation_id desc
limit ?10
