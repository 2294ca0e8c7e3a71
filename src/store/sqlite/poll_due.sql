-- opledger: poll_due
-- What a worker may take of one action type, longest due first; with ?6 = 0 what is due by ?4, otherwise the
-- next, whenever that is.
select d.due_at, o.namespace, o.operation_key
from (
    select operation_id, due_at
    from agent_operation_due
    where kind in ('check', 'deliver') and namespace = ?1 and kind = ?2 and action_type = ?3
        and (?6 = 1 or due_at <= ?4)
    order by due_at
    limit ?5
) as d
cross join agent_operations as o on o.operation_id = d.operation_id
order by d.due_at
