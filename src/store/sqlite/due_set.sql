-- opledger: due_set
-- Sets what is due, ?2 = [[operation_id, kind, due_at], …].
insert into agent_operation_due (operation_id, kind, due_at)
select value ->> 0, value ->> 1, value ->> 2
from json_each(?2)
where true
on conflict (operation_id, kind) do update set due_at = excluded.due_at
