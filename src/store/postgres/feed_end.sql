-- opledger: feed_end
-- The last event that is final (see feed.sql); null where there is none.
select (
    select e.sequence
    from agent_operation_events as e
    where e.sequence < (
        select (pg_snapshot_xmin(pg_current_snapshot())::text::bigint << 12) + feed.sequence_offset
        from agent_feed as feed
        where feed.id
    )
    order by e.sequence desc
    limit 1
)
