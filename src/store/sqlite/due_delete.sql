-- opledger: due_delete
-- Deletes what is no longer due, ?3 = [[operation_id, kind], …].
delete from agent_operation_due
where (operation_id, kind) in (select value ->> 0, value ->> 1 from json_each(?3))
