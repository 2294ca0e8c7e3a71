-- opledger: polled
-- The keys of what this poll took and still holds.
select o.namespace, o.operation_key
from agent_operation_due as d
cross join lateral (
    select found.namespace, found.operation_key
    from agent_operations as found
    where found.operation_id = d.operation_id
    limit 1
) as o
where d.poll_id = $1::uuid and d.namespace = $2::text
