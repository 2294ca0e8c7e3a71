-- opledger: due
-- The keys of what is due, longest due first. The limit is taken before the join, so that a long
-- queue costs no more than its head.
select o.namespace, o.operation_key
from (
    select d.operation_id, d.due_at
    from agent_operation_due as d
    where d.kind = $1::text and d.due_at <= statement_timestamp()
    order by d.due_at
    limit $2::bigint
) as d
join agent_operations as o on o.operation_id = d.operation_id
order by d.due_at
