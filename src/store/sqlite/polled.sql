-- opledger: polled
-- The keys of what this poll took and still holds.
select o.namespace, o.operation_key
from agent_operation_due as d
cross join agent_operations as o on o.operation_id = d.operation_id
where d.poll_id is not null and d.poll_id = ?1 and d.namespace = ?2
