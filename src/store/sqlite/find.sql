-- opledger: find
-- The key of the operation with this id.
select namespace, operation_key
from agent_operations
where operation_id = ?1 and namespace = ?2
