-- opledger: feed_changes
-- Whose the next $2 events after $1 are that are final (see feed.sql): each operation once. The first two
-- columns say how far it was read; nulls beside them where nothing was found.
with scanned as materialized (
    select e.operation_id, e.sequence
    from agent_operation_events as e
    where e.sequence > $1::bigint
        and e.sequence < (
            select (pg_snapshot_xmin(pg_current_snapshot())::text::bigint << 12) + feed.sequence_offset
            from agent_feed as feed
            where feed.id
        )
    order by e.sequence
    limit $2::bigint
),
changed as (
    select o.namespace, o.operation_key
    from (select distinct scanned.operation_id from scanned) as e
    cross join lateral (
        select found.namespace, found.operation_key
        from agent_operations as found
        where found.operation_id = e.operation_id
        limit 1
    ) as o
)
select reach.upto, reach.scanned, changed.*
from (select max(scanned.sequence) as upto, count(*) as scanned from scanned) as reach
left join changed on true
