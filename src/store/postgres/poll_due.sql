-- opledger: poll_due
-- What a worker may take, action type by action type, each longest due first, at most $4 of each. Where no
-- action types are named ($3 is null) those that have work are found by skipping from one to the next.
with recursive skip (action_type) as (
    (
        select d.action_type
        from agent_operation_due as d
        where d.kind in ('check', 'deliver') and d.namespace = $1::text and d.kind = $2::text
            and $3::text[] is null
        order by d.action_type
        limit 1
    )
    union all
    select (
        select d.action_type
        from agent_operation_due as d
        where d.kind in ('check', 'deliver') and d.namespace = $1::text and d.kind = $2::text
            and d.action_type > skip.action_type
        order by d.action_type
        limit 1
    )
    from skip
    where skip.action_type is not null
),
types (action_type) as (
    select skip.action_type from skip where skip.action_type is not null
    union
    select unnest($3::text[])
)
select d.due_at, t.action_type, o.namespace, o.operation_key
from types as t
cross join lateral (
    select d.operation_id, d.due_at
    from agent_operation_due as d
    where d.kind in ('check', 'deliver') and d.namespace = $1::text and d.kind = $2::text
        and d.action_type = t.action_type and d.due_at <= statement_timestamp()
    order by d.due_at
    limit $4::bigint
) as d
cross join lateral (
    select found.namespace, found.operation_key
    from agent_operations as found
    where found.operation_id = d.operation_id
    limit 1
) as o
order by d.due_at
