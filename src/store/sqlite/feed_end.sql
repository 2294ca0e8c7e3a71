-- opledger: feed_end
-- The last event; null where there is none.
select max(sequence) from agent_operation_events
