-- opledger: feed
-- A page of a namespace's events, in order, out of the next $3 events of all namespaces after $2 that are
-- final: below the oldest transaction that is still under way. Rows and horizon are of one snapshot. The
-- first two columns say how far it was read; one row of nulls beside them where nothing was found.
with scanned as materialized (
    select e.*
    from agent_operation_events as e
    where e.sequence > $2::bigint
        and e.sequence < (
            select (pg_snapshot_xmin(pg_current_snapshot())::text::bigint << 12) + feed.sequence_offset
            from agent_feed as feed
            where feed.id
        )
    order by e.sequence
    limit $3::bigint
),
mine as (
    select
        o.operation_key, o.action_type,
        e.sequence, e.version, e.kind, e.status, e.attempt, e.actor, e.event_at, e.detail_json
    from scanned as e
    cross join lateral (
        select found.namespace, found.operation_key, found.action_type
        from agent_operations as found
        where found.operation_id = e.operation_id
        limit 1
    ) as o
    where o.namespace = $1::text
)
select reach.upto, reach.scanned, mine.*
from (select max(scanned.sequence) as upto, count(*) as scanned from scanned) as reach
left join mine on true
order by mine.sequence
