-- opledger: figures
-- Unfinished work, counted by kind, action type and whether its outcome is unknown, with the age in
-- microseconds of the oldest. Reads the due work alone, by its two partial indexes: what retention
-- has planned for finished operations is not touched.
select
    d.kind, d.action_type, d.unknown_since is not null as is_unknown, count(*) as count,
    count(*) filter (where d.due_at <= statement_timestamp()) as due,
    (extract(epoch from statement_timestamp() - min(d.due_at)) * 1000000)::bigint as due_for,
    (extract(epoch from statement_timestamp() - min(d.unknown_since)) * 1000000)::bigint as unknown_for
from (
    select moment.kind, moment.action_type, moment.due_at, moment.unknown_since
    from agent_operation_due as moment
    where moment.kind in ('sweep', 'review', 'retain') and moment.kind in ('sweep', 'review')
    union all
    select poll.kind, poll.action_type, poll.due_at, poll.unknown_since
    from agent_operation_due as poll
    where poll.kind in ('check', 'deliver')
) as d
group by d.kind, d.action_type, d.unknown_since is not null
