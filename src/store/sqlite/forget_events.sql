-- opledger: forget_events
-- Deletes the events of operations, ?2 = [[operation_id], …].
delete from agent_operation_events where operation_id in (select value ->> 0 from json_each(?2))
