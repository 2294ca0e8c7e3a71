-- opledger: events
-- A page of one operation's events, oldest first; one row of nulls where there is none after the
-- sequence, no row where there is no such operation.
select e.sequence, e.version, e.kind, e.status, e.attempt, e.actor, e.event_at, e.detail_json
from agent_operations as o
left join lateral (
    select *
    from agent_operation_events as found
    where found.operation_id = o.operation_id and found.sequence > $3::bigint
    order by found.sequence
    limit $4::bigint
) as e on true
where o.namespace = $1::text and o.operation_key = $2::text
order by e.sequence
