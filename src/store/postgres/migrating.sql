-- opledger: migrating
-- Who holds the migration lock of this database.
select format('process %s, application "%s", from %s', a.pid, a.application_name, coalesce(host(a.client_addr), 'a local socket'))
from pg_locks as l
join pg_stat_activity as a on a.pid = l.pid
where l.locktype = 'advisory'
    and l.granted
    and l.objsubid = 1
    and l.database = (select oid from pg_database where datname = current_database())
    and ((l.classid::bigint << 32) | l.objid::bigint) = $1::bigint
limit 1
