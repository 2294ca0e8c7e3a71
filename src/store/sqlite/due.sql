-- opledger: due
-- The keys of what is due, longest due first.
select o.namespace, o.operation_key
from (
    select operation_id, due_at
    from agent_operation_due
    where kind in ('sweep', 'review', 'retain') and kind = ?1 and due_at <= ?2
    order by due_at
    limit ?3
) as d
cross join agent_operations as o on o.operation_id = d.operation_id
order by d.due_at
