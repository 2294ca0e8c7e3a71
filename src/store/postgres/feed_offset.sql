-- opledger: feed_offset
-- Where this cluster's transaction ids are behind those of the events that are there (a dump was restored),
-- raises the offset, so that sequence numbers go on growing. $1: how far beyond, as a number of
-- transactions. Of several that do it at once only the first one finds it needed.
insert into agent_feed as feed (id, sequence_offset)
values (true, 0)
on conflict (id) do update
set sequence_offset =
    (((select max(e.sequence) from agent_operation_events as e) >> 12) + $1::bigint) << 12
where (select max(e.sequence) from agent_operation_events as e)
    >= (pg_current_xact_id()::text::bigint << 12) + feed.sequence_offset
returning feed.sequence_offset
