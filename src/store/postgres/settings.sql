-- opledger: settings
-- What decides whether an acknowledged commit survives, and whether this server takes writes.
select
    current_setting('server_version_num')::integer,
    current_setting('synchronous_commit'),
    current_setting('fsync'),
    current_setting('full_page_writes'),
    current_setting('transaction_read_only') = 'on' or pg_is_in_recovery()
