-- opledger: journal
-- Appends the events of the records that were written, ?1 = one array for each, in order.
with batch as materialized (select jsonb(value) as r from json_each(?1))
insert into agent_operation_events (operation_id, version, event_at, attempt, kind, status, actor, detail_json)
select r ->> 0, r ->> 1, r ->> 2, r ->> 3, r ->> 4, r ->> 5, r ->> 6, r ->> 7
from batch
