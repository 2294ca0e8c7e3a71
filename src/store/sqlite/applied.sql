-- opledger: applied
-- The migrations that this database has seen.
select version, checksum
from _sqlx_migrations
where success
order by version
