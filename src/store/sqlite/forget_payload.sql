-- opledger: forget_payload
-- Blanks the requests of operations, ?1 = [[operation_id], …].
update agent_operations set payload_json = null
where operation_id in (select value ->> 0 from json_each(?1)) and payload_json is not null
