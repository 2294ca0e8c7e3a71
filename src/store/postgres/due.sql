-- opledger: due
-- The keys of what is due, longest due first. The limit is taken before the look-ups, so that a
-- long queue costs no more than its head; "limit 1" keeps them look-ups.
select o.namespace, o.operation_key
from (
    select d.operation_id, d.due_at
    from agent_operation_due as d
    where d.kind in ('sweep', 'review', 'retain') and d.kind = $1::text and d.due_at <= statement_timestamp()
    order by d.due_at
    limit $2::bigint
) as d
cross join lateral (
    select found.namespace, found.operation_key
    from agent_operations as found
    where found.operation_id = d.operation_id
    limit 1
) as o
order by d.due_at
