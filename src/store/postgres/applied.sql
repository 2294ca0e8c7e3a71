-- opledger: applied
-- The migrations that this database has seen, and whether it takes writes.
select version, checksum, current_setting('transaction_read_only') = 'on' or pg_is_in_recovery()
from _sqlx_migrations
where success
order by version
