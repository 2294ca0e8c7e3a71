-- opledger: announce
-- Tells the other replicas. A statement of its own: commits with a notification go one after the other.
select pg_notify('opledger', $1::text)::text
