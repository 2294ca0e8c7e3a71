-- opledger: figures
-- Unfinished work, counted by kind, action type and whether its outcome is unknown, with the age in
-- microseconds of the oldest at ?1. Reads the due work alone, by its two partial indexes: what
-- retention has planned for finished operations is not touched.
select
    d.kind, d.action_type, d.unknown_since is not null as is_unknown, count(*) as count,
    count(*) filter (where d.due_at <= ?1) as due,
    ?1 - min(d.due_at) as due_for,
    ?1 - min(d.unknown_since) as unknown_for
from (
    select kind, action_type, due_at, unknown_since
    from agent_operation_due indexed by agent_operation_due_by_moment
    where kind in ('sweep', 'review', 'retain') and kind in ('sweep', 'review')
    union all
    select kind, action_type, due_at, unknown_since
    from agent_operation_due indexed by agent_operation_due_for_polls
    where kind in ('check', 'deliver')
) as d
group by d.kind, d.action_type, d.unknown_since is not null
