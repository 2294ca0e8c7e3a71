-- opledger: feed_changes
-- Whose the next ?2 events after ?1 are: each operation once. The first two columns say how far it was
-- read; nulls beside them where nothing was found.
with scanned as materialized (
    select operation_id, sequence
    from agent_operation_events
    where sequence > ?1
    order by sequence
    limit ?2
),
changed as (
    select o.namespace, o.operation_key
    from (select distinct operation_id from scanned) as e
    join agent_operations as o on o.operation_id = e.operation_id
)
select reach.upto, reach.scanned, changed.*
from (select max(sequence) as upto, count(*) as scanned from scanned) as reach
left join changed on true
