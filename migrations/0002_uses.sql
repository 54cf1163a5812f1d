-- Devices are not only held whole: shares of a device and what they consume of its capacity, counters that the partitions of a pool draw
-- on, and allocations that occupy nothing. The same rules for every writer, still checked under the writers' lock.
--
-- A device in use has one row in `holdings`, which says how it is used: whole, by a claim, or in shares, by their number. So whole and
-- shared use exclude each other by the same key that keeps a device single.

-- An exact number for the text of a quantity as our objects hold it (canonical: 1500m, 10Gi, 1e30). Null: not a quantity.
CREATE FUNCTION dray_quantity(q text) RETURNS numeric LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS
$$ SELECT p[1]::numeric * CASE coalesce(p[2], '')
        WHEN '' THEN 1
        WHEN 'n' THEN 0.000000001 WHEN 'u' THEN 0.000001 WHEN 'm' THEN 0.001
        WHEN 'k' THEN 1000 WHEN 'M' THEN 1000000 WHEN 'G' THEN 1000000000 WHEN 'T' THEN 1000000000000
        WHEN 'P' THEN 1000000000000000 WHEN 'E' THEN 1000000000000000000
        WHEN 'Ki' THEN 1024 WHEN 'Mi' THEN 1048576 WHEN 'Gi' THEN 1073741824 WHEN 'Ti' THEN 1099511627776
        WHEN 'Pi' THEN 1125899906842624 WHEN 'Ei' THEN 1152921504606846976
        ELSE ('1' || p[2])::numeric END
   FROM regexp_match(q, '^([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?$') AS p $$;

ALTER TABLE holdings
    ALTER COLUMN claim_uid DROP NOT NULL, -- null: used in shares
    ADD COLUMN shares  integer,           -- how many shares are out; null: held whole
    ADD COLUMN counted boolean NOT NULL DEFAULT false, -- it has rows in counter_draws
    ADD CONSTRAINT holdings_mode CHECK (CASE WHEN claim_uid IS NULL THEN coalesce(shares, 0) > 0 ELSE shares IS NULL END);

-- A part of a device.
CREATE TABLE shares (
    driver    text COLLATE "C" NOT NULL,
    pool      text COLLATE "C" NOT NULL,
    device    text COLLATE "C" NOT NULL,
    share_id  text COLLATE "C" NOT NULL,
    claim_uid uuid NOT NULL,
    seq       bigint NOT NULL,   -- event of the allocation
    draining  boolean NOT NULL DEFAULT false,
    PRIMARY KEY (driver, pool, device, share_id)
) WITH (fillfactor = 70);
CREATE INDEX shares_claim ON shares (claim_uid);
CREATE INDEX shares_draining ON shares (claim_uid, seq) WHERE draining;

-- What a share takes of each capacity of its device.
CREATE TABLE share_consumption (
    driver   text COLLATE "C" NOT NULL,
    pool     text COLLATE "C" NOT NULL,
    device   text COLLATE "C" NOT NULL,
    share_id text COLLATE "C" NOT NULL,
    capacity text COLLATE "C" NOT NULL,
    amount   numeric NOT NULL,
    PRIMARY KEY (driver, pool, device, share_id, capacity)
);

-- Its sums. `stated`: what the device had when something was last taken (null: nobody published it), so a sum above what is published now
-- is the doing of the driver, and the check below is what no commit gets past.
CREATE TABLE capacities (
    driver   text COLLATE "C" NOT NULL,
    pool     text COLLATE "C" NOT NULL,
    device   text COLLATE "C" NOT NULL,
    capacity text COLLATE "C" NOT NULL,
    consumed numeric NOT NULL,
    stated   numeric,
    PRIMARY KEY (driver, pool, device, capacity),
    CONSTRAINT capacity_never_exceeded CHECK (consumed <= stated)
) WITH (fillfactor = 50);

-- What each device in use draws on the counters of its pool, once however many shares are out. As published now: each write of a slice
-- of a pool with counters states it anew.
CREATE TABLE counter_draws (
    driver      text COLLATE "C" NOT NULL,
    pool        text COLLATE "C" NOT NULL,
    device      text COLLATE "C" NOT NULL,
    counter_set text COLLATE "C" NOT NULL,
    counter     text COLLATE "C" NOT NULL,
    amount      numeric NOT NULL,
    PRIMARY KEY (driver, pool, device, counter_set, counter)
);
CREATE INDEX counter_draws_counter ON counter_draws (driver, pool, counter_set, counter);

-- Its sums. `stated` as above; null after a write of slices, until something is taken again.
CREATE TABLE counters (
    driver      text COLLATE "C" NOT NULL,
    pool        text COLLATE "C" NOT NULL,
    counter_set text COLLATE "C" NOT NULL,
    counter     text COLLATE "C" NOT NULL,
    consumed    numeric NOT NULL,
    stated      numeric,
    PRIMARY KEY (driver, pool, counter_set, counter),
    CONSTRAINT counter_never_overdrawn CHECK (consumed <= stated)
) WITH (fillfactor = 50);

-- Results that occupy nothing: admin access; and with an empty device, a claim that was allocated without asking for any. Their node
-- prepares and lets go of them as of others.
CREATE TABLE presences (
    claim_uid uuid NOT NULL,
    driver    text COLLATE "C" NOT NULL,
    pool      text COLLATE "C" NOT NULL,
    device    text COLLATE "C" NOT NULL,
    share_id  text COLLATE "C" NOT NULL, -- '' for the whole device
    seq       bigint NOT NULL,
    draining  boolean NOT NULL DEFAULT false,
    PRIMARY KEY (claim_uid, driver, pool, device, share_id)
);
CREATE INDEX presences_draining ON presences (claim_uid, seq) WHERE draining;

-- Everything that claims have, whole, shared or without occupying it.
CREATE VIEW claim_uses AS
    SELECT claim_uid, seq, draining FROM holdings WHERE claim_uid IS NOT NULL
    UNION ALL SELECT claim_uid, seq, draining FROM shares
    UNION ALL SELECT claim_uid, seq, draining FROM presences;

-- The pool has counters: each write of its slices must state anew what its devices draw.
ALTER TABLE pools ADD COLUMN counted boolean NOT NULL DEFAULT false;

-- What was allocated before these tables existed. Shares were recorded as whole devices, admin access and counters not at all.
CREATE TEMPORARY TABLE old_results ON COMMIT DROP AS
    SELECT o.uid, o.seq, (o.body::jsonb #>> '{metadata,deletionTimestamp}') IS NOT NULL AS going,
           r.value AS r, r.value ->> 'driver' AS driver, r.value ->> 'pool' AS pool, r.value ->> 'device' AS device,
           coalesce(r.value ->> 'shareID', '') AS share_id, coalesce((r.value ->> 'adminAccess')::boolean, false) AS admin
    FROM objects o, jsonb_array_elements(coalesce(o.body::jsonb #> '{status,allocation,devices,results}', '[]'::jsonb)) AS r
    WHERE o.kind = 'resourceclaims' AND o.body LIKE '%"allocation":%';
ANALYZE old_results; -- a young table must not be taken for an empty one: see the joins below
INSERT INTO presences (claim_uid, driver, pool, device, share_id, seq, draining)
    SELECT DISTINCT ON (x.uid, x.driver, x.pool, x.device, x.share_id) x.uid, x.driver, x.pool, x.device, x.share_id,
           coalesce((SELECT min(h.seq) FROM holdings h WHERE h.claim_uid = x.uid), x.seq), x.going
    FROM old_results x WHERE x.admin;
INSERT INTO presences (claim_uid, driver, pool, device, share_id, seq, draining)
    SELECT o.uid, '', '', '', '', o.seq, (o.body::jsonb #>> '{metadata,deletionTimestamp}') IS NOT NULL FROM objects o
    WHERE o.kind = 'resourceclaims' AND o.body::jsonb #> '{status,allocation}' IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM old_results x WHERE x.uid = o.uid);
INSERT INTO shares (driver, pool, device, share_id, claim_uid, seq, draining)
    SELECT x.driver, x.pool, x.device, x.share_id, x.uid, h.seq, h.draining
    FROM old_results x JOIN holdings h ON h.driver = x.driver AND h.pool = x.pool AND h.device = x.device AND h.claim_uid = x.uid
    WHERE NOT x.admin AND x.share_id <> '';
ANALYZE shares;
INSERT INTO share_consumption (driver, pool, device, share_id, capacity, amount)
    SELECT s.driver, s.pool, s.device, s.share_id, c.key, dray_quantity(c.value)
    FROM shares s JOIN old_results x ON x.uid = s.claim_uid AND x.driver = s.driver AND x.pool = s.pool AND x.device = s.device
         AND x.share_id = s.share_id, jsonb_each_text(coalesce(x.r -> 'consumedCapacity', '{}'::jsonb)) AS c;
INSERT INTO capacities (driver, pool, device, capacity, consumed)
    SELECT driver, pool, device, capacity, sum(amount) FROM share_consumption GROUP BY driver, pool, device, capacity;
UPDATE holdings h SET claim_uid = NULL, draining = false, shares = s.n
    FROM (SELECT driver, pool, device, count(*)::integer AS n FROM shares GROUP BY driver, pool, device) s
    WHERE h.driver = s.driver AND h.pool = s.pool AND h.device = s.device;
CREATE TEMPORARY TABLE old_slices ON COMMIT DROP AS
    SELECT driver, pool, body FROM (
        SELECT body, body #>> '{spec,driver}' AS driver, body #>> '{spec,pool,name}' AS pool,
               rank() OVER (PARTITION BY body #>> '{spec,driver}', body #>> '{spec,pool,name}'
                            ORDER BY (body #>> '{spec,pool,generation}')::bigint DESC) AS age
        FROM (SELECT body::jsonb AS body FROM objects WHERE kind = 'resourceslices') s) s WHERE age = 1;
UPDATE pools p SET counted = true FROM old_slices s
    WHERE s.driver = p.driver AND s.pool = p.pool AND jsonb_array_length(coalesce(s.body #> '{spec,sharedCounters}', '[]'::jsonb)) > 0;
INSERT INTO counter_draws (driver, pool, device, counter_set, counter, amount)
    SELECT s.driver, s.pool, d.value ->> 'name', t.value ->> 'counterSet', c.key, sum(dray_quantity(c.value ->> 'value'))
    FROM old_slices s JOIN pools p ON p.driver = s.driver AND p.pool = s.pool AND p.counted,
         jsonb_array_elements(coalesce(s.body #> '{spec,devices}', '[]'::jsonb)) AS d,
         jsonb_array_elements(coalesce(d.value -> 'consumesCounters', '[]'::jsonb)) AS t, jsonb_each(t.value -> 'counters') AS c
    WHERE EXISTS (SELECT 1 FROM holdings h WHERE h.driver = s.driver AND h.pool = s.pool AND h.device = d.value ->> 'name')
    GROUP BY 1, 2, 3, 4, 5;
UPDATE holdings h SET counted = true WHERE EXISTS (
    SELECT 1 FROM counter_draws x WHERE x.driver = h.driver AND x.pool = h.pool AND x.device = h.device);
INSERT INTO counters (driver, pool, counter_set, counter, consumed)
    SELECT driver, pool, counter_set, counter, sum(amount) FROM counter_draws GROUP BY 1, 2, 3, 4;

-- Replaced, not kept beside the new one: a process of the version before knows nothing of shares and counters and must not commit.
DROP FUNCTION dray_commit(
    uuid, text, int, int[], int[], bigint[],
    int[], text[], text[], text[], uuid[], int[], bigint[], text[], int[], int[], boolean[], text[], text[], text[],
    int[], text[], text[], bigint[], int[], int[], text[], text[], int[], text[], int[],
    int[], int[], text[], text[], text[], uuid[], int[], uuid[], int[], int[], text[],
    int[], text[], text[], bytea[], text[], uuid[]);

-- A group commit: every mutation wins or loses on its own; the winners' writes and events are one transaction.
--
-- Arrays are columns of row sets; the first of each set (…_m) is the number of the mutation (from 1) a row belongs to.
--   f  fences: shard, epoch                       must be the lease's epoch, else 4
--   g  position of the feature gates that it was prepared under: must be that of their last switch, else 13 (seq = that position)
--   w  object writes, in event order: op 0 create (else 2 exists), 1 update, 2 delete (else 3 not found);
--      expected: sequence that the object must be at (null: any), else 1
--   c  pools that must be at an inventory version (0: must not exist), else 6
--   u  pools to create or move on: u_w is the last slice write (from 1), its event's sequence becomes the inventory version; shard is
--      used on creation only; slices 0 removes the pool
--   p  pools whose draws are stated anew: counted says whether the pool has counters; n, the draws of all its devices as published now
--   h  what is taken: mode 0 the whole device, must not be in use, else 5; mode 1 the share of that id, the device must not be held whole,
--      else 5, nor the id be in use, else 10; mode 2 nothing, but it is remembered. h_w is the write (from 1) whose event is the
--      allocation; counted says that d has rows of the device
--   k  what shares consume of a capacity: the sum must not exceed top (null: nobody publishes it), else 11
--   d  what the devices taken draw on counters, charged if the device was not in use before: the sum must not exceed top, else 12
--   r  claims whose devices are let go: mode 0 free, 1 draining
--   a  nodes on which no agent may be registered, else 9
--   s  submission records: a known key is 7 (same digest; detail = recorded answer) or 8
-- A caller does not put two mutations into one batch that write the same object or pool, take the same whole device or share id, or of
-- which one takes what the other publishes; shares of one device may meet, and are decided in the order of the batch.
-- Result: one row a mutation (m, code, seq of its first event, detail); row m = 0 carries the commit: code 0 committed now, 1 committed
-- by an earlier call with the same batch id (seq = first, detail = JSON {last, at, lost, prev: {kind: sequence}}).
CREATE FUNCTION dray_commit(
    p_batch uuid, p_writer text, p_count int,
    f_m int[], f_shard int[], f_epoch bigint[],
    w_m int[], w_kind text[], w_ns text[], w_name text[], w_uid uuid[], w_op int[], w_expected bigint[], w_body text[],
    w_home int[], w_priority int[], w_pending boolean[], w_part text[], w_cause text[], w_trace text[],
    c_m int[], c_driver text[], c_pool text[], c_inventory bigint[],
    u_m int[], u_w int[], u_driver text[], u_pool text[], u_shard int[], u_node text[], u_slices int[],
    h_m int[], h_w int[], h_driver text[], h_pool text[], h_device text[], h_claim uuid[], h_mode int[], h_share text[], h_counted boolean[],
    r_m int[], r_claim uuid[], r_mode int[],
    a_m int[], a_node text[],
    s_m int[], s_ns text[], s_client text[], s_digest bytea[], s_answer text[], s_unit uuid[],
    k_m int[], k_driver text[], k_pool text[], k_device text[], k_share text[], k_capacity text[], k_amount numeric[], k_top numeric[],
    d_m int[], d_driver text[], d_pool text[], d_device text[], d_set text[], d_counter text[], d_amount numeric[], d_top numeric[],
    p_m int[], p_driver text[], p_pool text[], p_counted boolean[],
    n_m int[], n_driver text[], n_pool text[], n_device text[], n_set text[], n_counter text[], n_amount numeric[],
    g_m int[], g_position bigint[]
) RETURNS TABLE (m int, code int, seq bigint, detail text)
LANGUAGE plpgsql VOLATILE
-- One plan for ever, and that one by the primary keys: statistics of a young or fast growing table must not turn a batch into a scan.
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    codes   int[] := array_fill(0, ARRAY[p_count]);
    details text[] := array_fill(NULL::text, ARRAY[p_count]);
    firsts  bigint[] := array_fill(NULL::bigint, ARRAY[p_count]);
    lasts   bigint[] := array_fill(NULL::bigint, ARRAY[p_count]);
    seqs    bigint[] := '{}';
    n       bigint := 0;
    v_first bigint;
    v_last  bigint;
    v_at    timestamptz := clock_timestamp();
    v_lost  int[] := '{}';
    v_prev  text := '{}';
    v_gates bigint;
    v_over  text;
    v_crowd int[];
    i       int;
    rec     record;
    -- Capacities and counters that cannot hold all who want them.
    oc_driver text[]; oc_pool text[]; oc_device text[]; oc_capacity text[];
    on_driver text[]; on_pool text[]; on_set text[]; on_counter text[];
    -- Shares that were let go; devices with draws that are in use no more.
    x_driver text[]; x_pool text[]; x_device text[]; x_share text[];
    y_driver text[]; y_pool text[]; y_device text[];
    z_driver text[]; z_pool text[]; z_device text[]; z_counted boolean[];
BEGIN
    PERFORM dray_writer_lock();

    SELECT k.first, k.last, k.at, k.lost INTO rec FROM commits k WHERE k.batch = p_batch;
    IF FOUND THEN
        RETURN QUERY SELECT 0, 1, rec.first,
            json_build_object('last', rec.last, 'at', (extract(epoch FROM rec.at) * 1000)::bigint, 'lost', rec.lost, 'prev', '{}'::json)::text;
        RETURN;
    END IF;

    IF cardinality(f_m) > 0 THEN
        FOR rec IN SELECT f.m FROM unnest(f_m, f_shard, f_epoch) AS f(m, shard, epoch)
                   LEFT JOIN shard_leases l ON l.shard = f.shard WHERE l.epoch IS DISTINCT FROM f.epoch LOOP
            codes[rec.m] := 4;
        END LOOP;
    END IF;

    IF cardinality(s_m) > 0 THEN
        FOR rec IN SELECT s.m, s.digest = k.digest AS same, k.answer, k.seq
                   FROM unnest(s_m, s_ns, s_client, s_digest) AS s(m, ns, client, digest)
                   JOIN submissions k ON k.namespace = s.ns AND k.client_id = s.client LOOP
            codes[rec.m] := CASE WHEN rec.same THEN 7 ELSE 8 END;
            details[rec.m] := rec.answer;
            firsts[rec.m] := rec.seq;
        END LOOP;
    END IF;

    IF cardinality(g_m) > 0 THEN
        SELECT k.seq INTO v_gates FROM kind_heads k WHERE k.kind = 'featuregates';
        v_gates := coalesce(v_gates, 0);
        IF cardinality(array_remove(g_position, v_gates)) > 0 THEN
            FOR i IN 1 .. cardinality(g_m) LOOP
                IF g_position[i] <> v_gates AND codes[g_m[i]] = 0 THEN
                    codes[g_m[i]] := 13;
                    firsts[g_m[i]] := v_gates;
                END IF;
            END LOOP;
        END IF;
    END IF;

    FOR rec IN SELECT w.m, w.name, o.seq,
                      CASE WHEN w.op = 0 THEN 2 WHEN o.uid IS NULL OR o.uid <> w.uid THEN 3 ELSE 1 END AS code
               FROM unnest(w_m, w_kind, w_ns, w_name, w_uid, w_op, w_expected) AS w(m, kind, ns, name, uid, op, expected)
               LEFT JOIN objects o ON o.kind = w.kind AND o.namespace = w.ns AND o.name = w.name
               WHERE CASE WHEN w.op = 0 THEN o.uid IS NOT NULL
                          ELSE o.uid IS NULL OR o.uid <> w.uid OR (w.expected IS NOT NULL AND o.seq <> w.expected) END LOOP
        IF codes[rec.m] = 0 THEN
            codes[rec.m] := rec.code;
            details[rec.m] := rec.name;
            firsts[rec.m] := rec.seq;
        END IF;
    END LOOP;

    IF cardinality(c_m) > 0 THEN
        FOR rec IN SELECT c.m, c.driver, c.pool FROM unnest(c_m, c_driver, c_pool, c_inventory) AS c(m, driver, pool, inventory)
                   LEFT JOIN pools p ON p.driver = c.driver AND p.pool = c.pool WHERE coalesce(p.inventory, 0) <> c.inventory LOOP
            IF codes[rec.m] = 0 THEN
                codes[rec.m] := 6;
                details[rec.m] := rec.driver || '/' || rec.pool;
            END IF;
        END LOOP;
    END IF;

    IF cardinality(h_m) > 0 THEN
        FOR rec IN SELECT h.m, h.driver, h.pool, h.device
                   FROM unnest(h_m, h_driver, h_pool, h_device, h_mode) AS h(m, driver, pool, device, mode)
                   JOIN holdings t ON t.driver = h.driver AND t.pool = h.pool AND t.device = h.device
                   WHERE h.mode = 0 OR (h.mode = 1 AND t.shares IS NULL) LOOP
            IF codes[rec.m] = 0 THEN
                codes[rec.m] := 5;
                details[rec.m] := rec.driver || '/' || rec.pool || '/' || rec.device;
            END IF;
        END LOOP;
        IF 1 = ANY (h_mode) THEN
            FOR rec IN SELECT h.m, h.driver, h.pool, h.device, h.share
                       FROM unnest(h_m, h_driver, h_pool, h_device, h_mode, h_share) AS h(m, driver, pool, device, mode, share)
                       JOIN shares t ON t.driver = h.driver AND t.pool = h.pool AND t.device = h.device AND t.share_id = h.share
                       WHERE h.mode = 1 LOOP
                IF codes[rec.m] = 0 THEN
                    codes[rec.m] := 10;
                    details[rec.m] := json_build_array(rec.driver || '/' || rec.pool || '/' || rec.device, rec.share)::text;
                END IF;
            END LOOP;
        END IF;
    END IF;

    IF cardinality(a_m) > 0 THEN
        FOR rec IN SELECT a.m, a.node FROM unnest(a_m, a_node) AS a(m, node) JOIN agents g ON g.node = a.node LOOP
            IF codes[rec.m] = 0 THEN
                codes[rec.m] := 9;
                details[rec.m] := rec.node;
            END IF;
        END LOOP;
    END IF;

    -- Last, as it counts who could still win. If all of them fit together, which is usual, all win; else those who want what is too
    -- little are decided one after the other.
    IF cardinality(k_m) > 0 THEN
        SELECT array_agg(x.driver), array_agg(x.pool), array_agg(x.device), array_agg(x.capacity)
        INTO oc_driver, oc_pool, oc_device, oc_capacity
        FROM (SELECT k.driver, k.pool, k.device, k.capacity, sum(k.amount) AS amount, min(k.top) AS top
              FROM unnest(k_m, k_driver, k_pool, k_device, k_capacity, k_amount, k_top) AS k(m, driver, pool, device, capacity, amount, top)
              WHERE codes[k.m] = 0 GROUP BY k.driver, k.pool, k.device, k.capacity) x
        LEFT JOIN capacities c ON c.driver = x.driver AND c.pool = x.pool AND c.device = x.device AND c.capacity = x.capacity
        WHERE coalesce(c.consumed, 0) + x.amount > x.top;
    END IF;
    IF cardinality(d_m) > 0 THEN
        SELECT array_agg(x.driver), array_agg(x.pool), array_agg(x.counter_set), array_agg(x.counter)
        INTO on_driver, on_pool, on_set, on_counter
        FROM (SELECT d.driver, d.pool, d.counter_set, d.counter, sum(d.amount) AS amount, min(d.top) AS top
              FROM (SELECT d.driver, d.pool, d.device, d.counter_set, d.counter, max(d.amount) AS amount, min(d.top) AS top
                    FROM unnest(d_m, d_driver, d_pool, d_device, d_set, d_counter, d_amount, d_top)
                         AS d(m, driver, pool, device, counter_set, counter, amount, top)
                    WHERE codes[d.m] = 0 AND NOT EXISTS (
                        SELECT 1 FROM holdings t WHERE t.driver = d.driver AND t.pool = d.pool AND t.device = d.device)
                    GROUP BY d.driver, d.pool, d.device, d.counter_set, d.counter) d
              GROUP BY d.driver, d.pool, d.counter_set, d.counter) x
        LEFT JOIN counters c ON c.driver = x.driver AND c.pool = x.pool AND c.counter_set = x.counter_set AND c.counter = x.counter
        WHERE coalesce(c.consumed, 0) + x.amount > x.top;
    END IF;
    IF oc_driver IS NOT NULL OR on_driver IS NOT NULL THEN
        -- Who loses here counts for nobody after it. Only what is too little is looked at: all else holds everybody.
        v_crowd := ARRAY(
            SELECT k.m FROM unnest(oc_driver, oc_pool, oc_device, oc_capacity) AS o(driver, pool, device, capacity)
            JOIN unnest(k_m, k_driver, k_pool, k_device, k_capacity) AS k(m, driver, pool, device, capacity)
                 ON k.driver = o.driver AND k.pool = o.pool AND k.device = o.device AND k.capacity = o.capacity WHERE codes[k.m] = 0
            UNION
            SELECT d.m FROM unnest(on_driver, on_pool, on_set, on_counter) AS o(driver, pool, counter_set, counter)
            JOIN unnest(d_m, d_driver, d_pool, d_set, d_counter) AS d(m, driver, pool, counter_set, counter)
                 ON d.driver = o.driver AND d.pool = o.pool AND d.counter_set = o.counter_set AND d.counter = o.counter WHERE codes[d.m] = 0
            ORDER BY 1);
        FOREACH i IN ARRAY v_crowd LOOP
            SELECT json_build_array(x.driver || '/' || x.pool || '/' || x.device, x.capacity)::text INTO v_over
            FROM (SELECT k.driver, k.pool, k.device, k.capacity, sum(k.amount) AS amount, min(k.top) AS top, bool_or(k.m = i) AS mine
                  FROM unnest(oc_driver, oc_pool, oc_device, oc_capacity) AS o(driver, pool, device, capacity)
                  JOIN unnest(k_m, k_driver, k_pool, k_device, k_capacity, k_amount, k_top) AS k(m, driver, pool, device, capacity, amount, top)
                       ON k.driver = o.driver AND k.pool = o.pool AND k.device = o.device AND k.capacity = o.capacity
                  WHERE k.m <= i AND codes[k.m] = 0 GROUP BY k.driver, k.pool, k.device, k.capacity) x
            LEFT JOIN capacities c ON c.driver = x.driver AND c.pool = x.pool AND c.device = x.device AND c.capacity = x.capacity
            WHERE x.mine AND coalesce(c.consumed, 0) + x.amount > x.top LIMIT 1;
            IF FOUND THEN
                codes[i] := 11;
                details[i] := v_over;
                CONTINUE;
            END IF;
            SELECT json_build_array(x.driver || '/' || x.pool, x.counter_set, x.counter)::text INTO v_over
            FROM (SELECT d.driver, d.pool, d.counter_set, d.counter, sum(d.amount) AS amount, min(d.top) AS top, bool_or(d.mine) AS mine
                  FROM (SELECT d.driver, d.pool, d.device, d.counter_set, d.counter, max(d.amount) AS amount, min(d.top) AS top, bool_or(d.m = i) AS mine
                        FROM unnest(on_driver, on_pool, on_set, on_counter) AS o(driver, pool, counter_set, counter)
                        JOIN unnest(d_m, d_driver, d_pool, d_device, d_set, d_counter, d_amount, d_top)
                             AS d(m, driver, pool, device, counter_set, counter, amount, top)
                             ON d.driver = o.driver AND d.pool = o.pool AND d.counter_set = o.counter_set AND d.counter = o.counter
                        WHERE d.m <= i AND codes[d.m] = 0 AND NOT EXISTS (
                            SELECT 1 FROM holdings t WHERE t.driver = d.driver AND t.pool = d.pool AND t.device = d.device)
                        GROUP BY d.driver, d.pool, d.device, d.counter_set, d.counter) d
                  GROUP BY d.driver, d.pool, d.counter_set, d.counter) x
            LEFT JOIN counters c ON c.driver = x.driver AND c.pool = x.pool AND c.counter_set = x.counter_set AND c.counter = x.counter
            WHERE x.mine AND coalesce(c.consumed, 0) + x.amount > x.top LIMIT 1;
            IF FOUND THEN
                codes[i] := 12;
                details[i] := v_over;
            END IF;
        END LOOP;
    END IF;

    FOR i IN 1 .. coalesce(cardinality(w_m), 0) LOOP
        IF codes[w_m[i]] = 0 THEN
            n := n + 1;
            seqs[i] := n;
        ELSE
            seqs[i] := NULL;
        END IF;
    END LOOP;
    FOR i IN 1 .. p_count LOOP
        IF codes[i] <> 0 THEN
            v_lost := v_lost || i;
        END IF;
    END LOOP;

    -- From here on `seqs` counts from 1; a sequence is v_first - 1 + that.
    UPDATE log_head SET seq = log_head.seq + n RETURNING log_head.seq - n + 1, log_head.seq INTO v_first, v_last;

    IF n > 0 THEN
        INSERT INTO events (seq, kind, namespace, name, uid, op, at, body, cause, trace)
        SELECT v_first - 1 + w.s, w.kind, w.ns, w.name, w.uid, w.op, v_at, w.body, w.cause, w.trace
        FROM unnest(seqs, w_kind, w_ns, w_name, w_uid, w_op, w_body, w_cause, w_trace) AS w(s, kind, ns, name, uid, op, body, cause, trace)
        WHERE w.s IS NOT NULL;

        IF 0 = ANY (w_op) THEN
            INSERT INTO objects (kind, namespace, name, uid, seq, created_seq, body, home_shard, priority, pending, part_of)
            SELECT w.kind, w.ns, w.name, w.uid, v_first - 1 + w.s, v_first - 1 + w.s, w.body, w.home, w.priority, w.pending, w.part
            FROM unnest(seqs, w_kind, w_ns, w_name, w_uid, w_op, w_body, w_home, w_priority, w_pending, w_part)
                 AS w(s, kind, ns, name, uid, op, body, home, priority, pending, part)
            WHERE w.s IS NOT NULL AND w.op = 0;
        END IF;
        IF 1 = ANY (w_op) THEN
            UPDATE objects o SET seq = v_first - 1 + w.s, body = w.body, pending = w.pending
            FROM unnest(seqs, w_kind, w_ns, w_name, w_op, w_body, w_pending) AS w(s, kind, ns, name, op, body, pending)
            WHERE w.s IS NOT NULL AND w.op = 1 AND o.kind = w.kind AND o.namespace = w.ns AND o.name = w.name;
        END IF;
        IF 2 = ANY (w_op) THEN
            DELETE FROM objects o
            USING unnest(seqs, w_kind, w_ns, w_name, w_op) AS w(s, kind, ns, name, op)
            WHERE w.s IS NOT NULL AND w.op = 2 AND o.kind = w.kind AND o.namespace = w.ns AND o.name = w.name;
        END IF;

        WITH mine AS (
            SELECT w.kind, max(w.s) + v_first - 1 AS last
            FROM unnest(seqs, w_kind) AS w(s, kind) WHERE w.s IS NOT NULL GROUP BY w.kind
        ), before AS (
            SELECT mine.kind, mine.last, coalesce(k.seq, 0) AS prev FROM mine LEFT JOIN kind_heads k ON k.kind = mine.kind
        ), put AS (
            INSERT INTO kind_heads (kind, seq) SELECT kind, last FROM before
            ON CONFLICT (kind) DO UPDATE SET seq = excluded.seq
        )
        SELECT json_object_agg(kind, prev)::text INTO v_prev FROM before;

        FOR i IN 1 .. cardinality(w_m) LOOP
            IF seqs[i] IS NOT NULL THEN
                IF firsts[w_m[i]] IS NULL THEN
                    firsts[w_m[i]] := v_first - 1 + seqs[i];
                END IF;
                lasts[w_m[i]] := v_first - 1 + seqs[i];
            END IF;
        END LOOP;
    END IF;

    IF cardinality(u_m) > 0 THEN
        INSERT INTO pools (driver, pool, shard, node, inventory, slices)
        SELECT u.driver, u.pool, u.shard, u.node, v_first - 1 + seqs[u.w], u.slices
        FROM unnest(u_m, u_w, u_driver, u_pool, u_shard, u_node, u_slices) AS u(m, w, driver, pool, shard, node, slices)
        WHERE codes[u.m] = 0
        ON CONFLICT (driver, pool) DO UPDATE
            SET inventory = excluded.inventory, slices = excluded.slices, node = excluded.node;
        DELETE FROM pools p USING unnest(u_m, u_driver, u_pool, u_slices) AS u(m, driver, pool, slices)
        WHERE codes[u.m] = 0 AND u.slices = 0 AND p.driver = u.driver AND p.pool = u.pool;
    END IF;

    -- Counters first: a device is charged when it comes into use, which `holdings` tells.
    IF cardinality(d_m) > 0 THEN
        WITH fresh AS MATERIALIZED (
            SELECT d.driver, d.pool, d.device, d.counter_set, d.counter, max(d.amount) AS amount, min(d.top) AS top
            FROM unnest(d_m, d_driver, d_pool, d_device, d_set, d_counter, d_amount, d_top)
                 AS d(m, driver, pool, device, counter_set, counter, amount, top)
            WHERE codes[d.m] = 0 AND NOT EXISTS (
                SELECT 1 FROM holdings t WHERE t.driver = d.driver AND t.pool = d.pool AND t.device = d.device)
            GROUP BY d.driver, d.pool, d.device, d.counter_set, d.counter
        ), put AS (
            INSERT INTO counter_draws (driver, pool, device, counter_set, counter, amount)
            SELECT driver, pool, device, counter_set, counter, amount FROM fresh
        )
        INSERT INTO counters (driver, pool, counter_set, counter, consumed, stated)
        SELECT driver, pool, counter_set, counter, sum(amount), min(top) FROM fresh GROUP BY driver, pool, counter_set, counter
        ON CONFLICT (driver, pool, counter_set, counter) DO UPDATE
            SET consumed = counters.consumed + excluded.consumed, stated = excluded.stated;
    END IF;

    IF cardinality(h_m) > 0 THEN
        INSERT INTO holdings (driver, pool, device, claim_uid, seq, counted)
        SELECT h.driver, h.pool, h.device, h.claim, v_first - 1 + seqs[h.w], h.counted
        FROM unnest(h_m, h_w, h_driver, h_pool, h_device, h_claim, h_mode, h_counted) AS h(m, w, driver, pool, device, claim, mode, counted)
        WHERE codes[h.m] = 0 AND h.mode = 0;
        IF 1 = ANY (h_mode) THEN
            INSERT INTO shares (driver, pool, device, share_id, claim_uid, seq)
            SELECT h.driver, h.pool, h.device, h.share, h.claim, v_first - 1 + seqs[h.w]
            FROM unnest(h_m, h_w, h_driver, h_pool, h_device, h_claim, h_mode, h_share) AS h(m, w, driver, pool, device, claim, mode, share)
            WHERE codes[h.m] = 0 AND h.mode = 1;
            INSERT INTO holdings (driver, pool, device, seq, shares, counted)
            SELECT h.driver, h.pool, h.device, min(v_first - 1 + seqs[h.w]), count(*), bool_or(h.counted)
            FROM unnest(h_m, h_w, h_driver, h_pool, h_device, h_mode, h_counted) AS h(m, w, driver, pool, device, mode, counted)
            WHERE codes[h.m] = 0 AND h.mode = 1 GROUP BY h.driver, h.pool, h.device
            ON CONFLICT (driver, pool, device) DO UPDATE SET shares = holdings.shares + excluded.shares;
        END IF;
        IF 2 = ANY (h_mode) THEN
            INSERT INTO presences (claim_uid, driver, pool, device, share_id, seq)
            SELECT h.claim, h.driver, h.pool, h.device, h.share, v_first - 1 + seqs[h.w]
            FROM unnest(h_m, h_w, h_driver, h_pool, h_device, h_claim, h_mode, h_share) AS h(m, w, driver, pool, device, claim, mode, share)
            WHERE codes[h.m] = 0 AND h.mode = 2;
        END IF;
    END IF;

    IF cardinality(k_m) > 0 THEN
        INSERT INTO share_consumption (driver, pool, device, share_id, capacity, amount)
        SELECT k.driver, k.pool, k.device, k.share, k.capacity, k.amount
        FROM unnest(k_m, k_driver, k_pool, k_device, k_share, k_capacity, k_amount) AS k(m, driver, pool, device, share, capacity, amount)
        WHERE codes[k.m] = 0;
        INSERT INTO capacities (driver, pool, device, capacity, consumed, stated)
        SELECT k.driver, k.pool, k.device, k.capacity, sum(k.amount), min(k.top)
        FROM unnest(k_m, k_driver, k_pool, k_device, k_capacity, k_amount, k_top) AS k(m, driver, pool, device, capacity, amount, top)
        WHERE codes[k.m] = 0 GROUP BY k.driver, k.pool, k.device, k.capacity
        ON CONFLICT (driver, pool, device, capacity) DO UPDATE
            SET consumed = capacities.consumed + excluded.consumed, stated = excluded.stated;
    END IF;

    IF cardinality(p_m) > 0 THEN
        DELETE FROM counter_draws x USING unnest(p_m, p_driver, p_pool) AS p(m, driver, pool)
        WHERE codes[p.m] = 0 AND x.driver = p.driver AND x.pool = p.pool;
        INSERT INTO counter_draws (driver, pool, device, counter_set, counter, amount)
        SELECT d.driver, d.pool, d.device, d.counter_set, d.counter, d.amount
        FROM unnest(n_m, n_driver, n_pool, n_device, n_set, n_counter, n_amount) AS d(m, driver, pool, device, counter_set, counter, amount)
        JOIN holdings t ON t.driver = d.driver AND t.pool = d.pool AND t.device = d.device
        WHERE codes[d.m] = 0;
        UPDATE holdings t SET counted = NOT t.counted FROM unnest(p_m, p_driver, p_pool) AS p(m, driver, pool)
        WHERE codes[p.m] = 0 AND t.driver = p.driver AND t.pool = p.pool AND t.counted <> EXISTS (
            SELECT 1 FROM counter_draws x WHERE x.driver = t.driver AND x.pool = t.pool AND x.device = t.device);
        DELETE FROM counters c USING unnest(p_m, p_driver, p_pool) AS p(m, driver, pool)
        WHERE codes[p.m] = 0 AND c.driver = p.driver AND c.pool = p.pool;
        INSERT INTO counters (driver, pool, counter_set, counter, consumed)
        SELECT x.driver, x.pool, x.counter_set, x.counter, sum(x.amount)
        FROM unnest(p_m, p_driver, p_pool) AS p(m, driver, pool) JOIN counter_draws x ON x.driver = p.driver AND x.pool = p.pool
        WHERE codes[p.m] = 0 GROUP BY x.driver, x.pool, x.counter_set, x.counter;
        UPDATE pools l SET counted = p.counted FROM unnest(p_m, p_driver, p_pool, p_counted) AS p(m, driver, pool, counted)
        WHERE codes[p.m] = 0 AND l.driver = p.driver AND l.pool = p.pool AND l.counted <> p.counted;
    END IF;

    IF cardinality(r_m) > 0 THEN
        IF 0 = ANY (r_mode) THEN
            WITH gone AS (
                DELETE FROM holdings t USING unnest(r_m, r_claim, r_mode) AS r(m, claim, mode)
                WHERE codes[r.m] = 0 AND r.mode = 0 AND t.claim_uid = r.claim RETURNING t.driver, t.pool, t.device, t.counted)
            SELECT array_agg(driver), array_agg(pool), array_agg(device) INTO y_driver, y_pool, y_device FROM gone WHERE counted;
            DELETE FROM presences t USING unnest(r_m, r_claim, r_mode) AS r(m, claim, mode)
            WHERE codes[r.m] = 0 AND r.mode = 0 AND t.claim_uid = r.claim;
            WITH gone AS (
                DELETE FROM shares t USING unnest(r_m, r_claim, r_mode) AS r(m, claim, mode)
                WHERE codes[r.m] = 0 AND r.mode = 0 AND t.claim_uid = r.claim RETURNING t.driver, t.pool, t.device, t.share_id)
            SELECT array_agg(driver), array_agg(pool), array_agg(device), array_agg(share_id) INTO x_driver, x_pool, x_device, x_share FROM gone;
            IF x_driver IS NOT NULL THEN
                WITH back AS (
                    DELETE FROM share_consumption k USING unnest(x_driver, x_pool, x_device, x_share) AS x(driver, pool, device, share)
                    WHERE k.driver = x.driver AND k.pool = x.pool AND k.device = x.device AND k.share_id = x.share
                    RETURNING k.driver, k.pool, k.device, k.capacity, k.amount
                ), sums AS (
                    SELECT driver, pool, device, capacity, sum(amount) AS amount FROM back GROUP BY driver, pool, device, capacity)
                UPDATE capacities c SET consumed = c.consumed - s.amount,
                    stated = CASE WHEN c.consumed - s.amount <= c.stated THEN c.stated END FROM sums s
                WHERE c.driver = s.driver AND c.pool = s.pool AND c.device = s.device AND c.capacity = s.capacity;
                WITH gone AS (
                    DELETE FROM holdings t USING (
                        SELECT driver, pool, device, count(*) AS n FROM unnest(x_driver, x_pool, x_device) AS x(driver, pool, device)
                        GROUP BY driver, pool, device) x
                    WHERE t.driver = x.driver AND t.pool = x.pool AND t.device = x.device AND t.shares = x.n
                    RETURNING t.driver, t.pool, t.device, t.counted)
                SELECT array_agg(driver), array_agg(pool), array_agg(device), array_agg(counted) INTO z_driver, z_pool, z_device, z_counted FROM gone;
                UPDATE holdings t SET shares = t.shares - x.n FROM (
                    SELECT driver, pool, device, count(*)::int AS n FROM unnest(x_driver, x_pool, x_device) AS x(driver, pool, device)
                    GROUP BY driver, pool, device) x
                WHERE t.driver = x.driver AND t.pool = x.pool AND t.device = x.device AND t.shares IS NOT NULL;
                DELETE FROM capacities c USING (
                    SELECT DISTINCT driver, pool, device FROM unnest(x_driver, x_pool, x_device) AS x(driver, pool, device)) x
                WHERE c.driver = x.driver AND c.pool = x.pool AND c.device = x.device AND NOT EXISTS (
                    SELECT 1 FROM share_consumption k
                    WHERE k.driver = c.driver AND k.pool = c.pool AND k.device = c.device AND k.capacity = c.capacity);
                IF z_driver IS NOT NULL THEN
                    FOR i IN 1 .. cardinality(z_driver) LOOP
                        IF z_counted[i] THEN
                            y_driver := y_driver || z_driver[i];
                            y_pool := y_pool || z_pool[i];
                            y_device := y_device || z_device[i];
                        END IF;
                    END LOOP;
                END IF;
            END IF;
            IF y_driver IS NOT NULL THEN
                WITH back AS (
                    DELETE FROM counter_draws d USING unnest(y_driver, y_pool, y_device) AS y(driver, pool, device)
                    WHERE d.driver = y.driver AND d.pool = y.pool AND d.device = y.device
                    RETURNING d.driver, d.pool, d.counter_set, d.counter, d.amount
                ), sums AS (
                    SELECT driver, pool, counter_set, counter, sum(amount) AS amount FROM back GROUP BY driver, pool, counter_set, counter)
                -- An amount may be negative: giving it back is never refused.
                UPDATE counters c SET consumed = c.consumed - s.amount,
                    stated = CASE WHEN c.consumed - s.amount <= c.stated THEN c.stated END FROM sums s
                WHERE c.driver = s.driver AND c.pool = s.pool AND c.counter_set = s.counter_set AND c.counter = s.counter;
                DELETE FROM counters c USING (
                    SELECT DISTINCT driver, pool FROM unnest(y_driver, y_pool) AS y(driver, pool)) y
                WHERE c.driver = y.driver AND c.pool = y.pool AND NOT EXISTS (
                    SELECT 1 FROM counter_draws d
                    WHERE d.driver = c.driver AND d.pool = c.pool AND d.counter_set = c.counter_set AND d.counter = c.counter);
            END IF;
        END IF;
        IF 1 = ANY (r_mode) THEN
            UPDATE holdings t SET draining = true FROM unnest(r_m, r_claim, r_mode) AS r(m, claim, mode)
            WHERE codes[r.m] = 0 AND r.mode = 1 AND t.claim_uid = r.claim;
            UPDATE shares t SET draining = true FROM unnest(r_m, r_claim, r_mode) AS r(m, claim, mode)
            WHERE codes[r.m] = 0 AND r.mode = 1 AND t.claim_uid = r.claim;
            UPDATE presences t SET draining = true FROM unnest(r_m, r_claim, r_mode) AS r(m, claim, mode)
            WHERE codes[r.m] = 0 AND r.mode = 1 AND t.claim_uid = r.claim;
        END IF;
    END IF;

    IF cardinality(s_m) > 0 THEN
        INSERT INTO submissions (namespace, client_id, digest, answer, unit_uid, seq, created_at)
        SELECT s.ns, s.client, s.digest, s.answer, s.unit, lasts[s.m], v_at
        FROM unnest(s_m, s_ns, s_client, s_digest, s_answer, s_unit) AS s(m, ns, client, digest, answer, unit)
        WHERE codes[s.m] = 0;
    END IF;

    INSERT INTO commits (first, last, writer, batch, at, lost) VALUES (v_first, v_last, p_writer, p_batch, v_at, v_lost);

    RETURN QUERY SELECT 0, 0, v_first,
        json_build_object('last', v_last, 'at', (extract(epoch FROM v_at) * 1000)::bigint, 'lost', v_lost, 'prev', v_prev::json)::text;
    RETURN QUERY SELECT t.i::int, t.code, t.first, t.detail
        FROM unnest(codes, firsts, details) WITH ORDINALITY AS t(code, first, detail, i);
END
$$;
