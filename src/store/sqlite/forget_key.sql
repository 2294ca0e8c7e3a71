-- opledger: forget_key
-- Deletes the records that are still what they were, ?1 = [[operation_id, version, conflict_count], …].
delete from agent_operations
where (operation_id, version, conflict_count) in (
    select value ->> 0, value ->> 1, value ->> 2 from json_each(?1)
)
returning operation_id
