-- opledger: swap
-- Writes a batch: every record that is still what it was, with its events and due work, in one
-- statement that commits by itself. The rows are sorted by key, and all inserts come before all
-- updates, so that two batches take their locks in the same order.
--
-- What stands between the lines "forgets" and "end" is sent only where a write forgets something: even
-- with nothing to do it would cost every batch a quarter more.
with clock as materialized (
    -- The time that the batch was decided by must be this clock's, within the tolerance.
    select clock_timestamp() between $1::timestamptz and $2::timestamptz as agrees
),
batch as materialized (
    select b.*
    from unnest($3::agent_operation_write_1[]) as b
    where (select agrees from clock)
),
inserted as (
    insert into agent_operations (
        operation_id, version, created_at, updated_at,
        attempt_count, attempt_floor, check_count, check_lease_count, conflict_count, outcome_conflict_count, two_step, dispatched,
        lease_claimed_at, lease_until, lease_duration_ms, first_attempt_at, attempt_ended_at,
        unknown_since, escalate_at, next_check_at, deliver_at, review_since, completed_at, retain_until,
        result_forgotten_at, poll_id, check_lease,
        namespace, operation_key, action_type, request_hash, hash_scheme, lease_secret,
        status, claim_ids, lease_holder, external_id, result_json, error_code, error_message,
        review_reason, last_report, labels, parent_operation_key, payload_json
    )
    select
        operation_id, version, created_at, updated_at,
        attempt_count, attempt_floor, check_count, check_lease_count, conflict_count, outcome_conflict_count, two_step, dispatched,
        lease_claimed_at, lease_until, lease_duration_ms, first_attempt_at, attempt_ended_at,
        unknown_since, escalate_at, next_check_at, deliver_at, review_since, completed_at, retain_until,
        result_forgotten_at, poll_id, check_lease,
        namespace, operation_key, action_type, request_hash, hash_scheme, lease_secret,
        status, claim_ids, lease_holder, external_id, result_json, error_code, error_message,
        review_reason, last_report, labels, parent_operation_key, payload_json
    from batch
    where expected_version is null
    on conflict (namespace, operation_key) do nothing
    returning operation_id
),
updated as (
    update agent_operations as o
    set
        status = b.status,
        version = b.version,
        attempt_count = b.attempt_count,
        attempt_floor = b.attempt_floor,
        claim_ids = b.claim_ids,
        lease_holder = b.lease_holder,
        lease_claimed_at = b.lease_claimed_at,
        lease_until = b.lease_until,
        lease_duration_ms = b.lease_duration_ms,
        two_step = b.two_step,
        dispatched = b.dispatched,
        external_id = b.external_id,
        result_json = b.result_json,
        error_code = b.error_code,
        error_message = b.error_message,
        first_attempt_at = b.first_attempt_at,
        attempt_ended_at = b.attempt_ended_at,
        unknown_since = b.unknown_since,
        escalate_at = b.escalate_at,
        next_check_at = b.next_check_at,
        check_count = b.check_count,
        deliver_at = b.deliver_at,
        check_lease = b.check_lease,
        check_lease_count = b.check_lease_count,
        poll_id = b.poll_id,
        review_reason = b.review_reason,
        review_since = b.review_since,
        conflict_count = b.conflict_count,
        outcome_conflict_count = b.outcome_conflict_count,
        last_report = b.last_report,
        updated_at = b.updated_at,
        completed_at = b.completed_at,
        retain_until = b.retain_until,
        -- forgets
        payload_json = case when o.operation_id = any($7::uuid[]) then null else o.payload_json end,
        -- end
        result_forgotten_at = b.result_forgotten_at
    from (
        -- The row's place is looked up one by one, so that no statistics can talk the planner into
        -- reading the table or into another order of locks.
        select
            batch.*,
            (select place.ctid from agent_operations as place where place.operation_id = batch.operation_id) as place
        from batch
        where batch.expected_version is not null
    ) as b
    where o.ctid = b.place
        and o.version = b.expected_version
        and o.conflict_count = b.expected_conflict_count
    returning o.operation_id
),
-- forgets
forgotten as (
    -- Operations whose key is no longer kept.
    delete from agent_operations as o
    using (
        select
            f.expected_version, f.expected_conflict_count,
            (select place.ctid from agent_operations as place where place.operation_id = f.operation_id) as place
        from unnest($8::uuid[], $9::bigint[], $10::integer[])
            as f (operation_id, expected_version, expected_conflict_count)
        where (select agrees from clock)
    ) as b
    where o.ctid = b.place
        and o.version = b.expected_version
        and o.conflict_count = b.expected_conflict_count
    returning o.operation_id
),
-- end
written as materialized (
    select operation_id from inserted
    union all
    select operation_id from updated
    -- forgets
    union all
    select operation_id from forgotten
    -- end
),
-- "(… in …) is true" keeps the sub-select a hash table; a plain "in" may become a nested loop.
journal as (
    insert into agent_operation_events (
        operation_id, sequence, version, event_at, attempt, kind, status, actor, detail_json
    )
    select
        e.operation_id,
        -- The offset is a multiple of 4096, so the place still has the low bits to itself.
        (select (pg_current_xact_id()::text::bigint << 12) + feed.sequence_offset from agent_feed as feed where feed.id)
            | (e.place - 1),
        e.version, e.event_at, e.attempt, e.kind, e.status, e.actor, e.detail_json
    from unnest($4::agent_operation_event_write_1[]) with ordinality
        as e (operation_id, version, event_at, attempt, kind, status, actor, detail_json, place)
    where (e.operation_id in (select operation_id from written)) is true
),
-- forgets
journal_deleted as (
    -- What the statement itself adds is not in its snapshot, and stays.
    delete from agent_operation_events as e
    using (
        select found.place
        from (select unnest($7::uuid[] || $8::uuid[]) as operation_id) as f
        cross join lateral (
            select place.ctid as place from agent_operation_events as place
            where place.operation_id = f.operation_id
            offset 0
        ) as found
        where (f.operation_id in (select operation_id from written)) is true
    ) as gone
    where e.ctid = gone.place
),
-- end
due_set as (
    insert into agent_operation_due (operation_id, kind, due_at, namespace, action_type, poll_id, unknown_since)
    select d.operation_id, d.kind, d.due_at, d.namespace, d.action_type, d.poll_id, d.unknown_since
    from unnest($5::agent_operation_due_write_1[]) as d
    where (d.operation_id in (select operation_id from written)) is true
    on conflict (operation_id, kind) do update
    set due_at = excluded.due_at, poll_id = excluded.poll_id, unknown_since = excluded.unknown_since
),
due_deleted as (
    delete from agent_operation_due as d
    using (
        -- "is true" again: of the two indexes only the one that begins with the id may serve.
        select (
            select place.ctid from agent_operation_due as place
            where place.operation_id = u.operation_id and (place.kind = u.kind) is true
        ) as place
        from unnest($6::agent_operation_due_write_1[]) as u
        where (u.operation_id in (select operation_id from written)) is true
    ) as gone
    where d.ctid = gone.place
)
select array(select operation_id from written) as written, clock_timestamp() as now
