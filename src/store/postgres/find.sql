-- opledger: find
-- The key of the operation with this id.
select o.namespace, o.operation_key
from agent_operations as o
where o.operation_id = $1::uuid and o.namespace = $2::text
