-- opledger: feed
-- A page of a namespace's events, in order, out of the next ?3 events of all namespaces after ?2. The
-- first two columns say how far it was read; one row of nulls beside them where nothing was found.
with scanned as materialized (
    select *
    from agent_operation_events
    where sequence > ?2
    order by sequence
    limit ?3
),
mine as (
    select
        o.operation_key, o.action_type,
        e.sequence, e.version, e.kind, e.status, e.attempt, e.actor, e.event_at, e.detail_json
    from scanned as e
    join agent_operations as o on o.operation_id = e.operation_id
    where o.namespace = ?1
)
select reach.upto, reach.scanned, mine.*
from (select max(sequence) as upto, count(*) as scanned from scanned) as reach
left join mine on true
order by mine.sequence
