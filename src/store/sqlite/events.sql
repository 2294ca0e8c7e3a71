-- opledger: events
-- A page of one operation's events, oldest first; one row of nulls where there is none after the
-- sequence, no row where there is no such operation.
select e.sequence, e.version, e.kind, e.status, e.attempt, e.actor, e.event_at, e.detail_json
from agent_operations as o
left join agent_operation_events as e on e.operation_id = o.operation_id and e.sequence > ?3
where o.namespace = ?1 and o.operation_key = ?2
order by e.sequence
limit ?4
