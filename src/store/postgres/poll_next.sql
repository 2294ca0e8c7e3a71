-- opledger: poll_next
-- How long, in microseconds, until something of this kind is due in this namespace, of any of these action
-- types (all, where $3 is null). Null where nothing will be.
select (
    select (extract(epoch from d.due_at - statement_timestamp()) * 1000000)::bigint
    from agent_operation_due as d
    where d.kind in ('check', 'deliver') and d.namespace = $1::text and d.kind = $2::text
        and ($3::text[] is null or d.action_type = any ($3::text[]))
    order by d.due_at
    limit 1
)
