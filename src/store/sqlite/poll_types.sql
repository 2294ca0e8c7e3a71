-- opledger: poll_types
-- The action types that have work of this kind in this namespace, by skipping from one to the next.
with recursive skip (action_type) as (
    select min(action_type)
    from agent_operation_due
    where kind in ('check', 'deliver') and namespace = ?1 and kind = ?2
    union all
    select (
        select min(d.action_type)
        from agent_operation_due as d
        where d.kind in ('check', 'deliver') and d.namespace = ?1 and d.kind = ?2
            and d.action_type > skip.action_type
    )
    from skip
    where skip.action_type is not null
)
select action_type from skip where action_type is not null
