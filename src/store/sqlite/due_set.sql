-- opledger: due_set
-- Sets what is due, ?2 = [[operation_id, kind, due_at, namespace, action_type, poll_id, unknown_since], …].
insert into agent_operation_due (operation_id, kind, due_at, namespace, action_type, poll_id, unknown_since)
select value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6
from json_each(?2)
where true
on conflict (operation_id, kind) do update
set due_at = excluded.due_at, poll_id = excluded.poll_id, unknown_since = excluded.unknown_since
