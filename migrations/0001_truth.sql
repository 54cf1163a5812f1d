-- The truth: objects, what is held, who may decide, and one gap-free, commit-ordered log of every change.
--
-- One rule carries the file: whoever changes any of these tables holds the advisory lock `dray_writer_lock` until its commit. So
-- writers queue at one place (fair and cheap, where a queue on a row collapses under concurrency), every check below is exact without
-- row locks, no two writers can deadlock, and sequences appear in commit order.

CREATE TABLE objects (
    kind        text   COLLATE "C" NOT NULL, -- plural resource: resourceclaims, resourceslices, ...
    namespace   text   COLLATE "C" NOT NULL, -- '' for cluster-wide kinds
    name        text   COLLATE "C" NOT NULL,
    uid         uuid   NOT NULL,
    seq         bigint NOT NULL, -- sequence of its last event = resourceVersion
    created_seq bigint NOT NULL,
    body        text   COLLATE "C" NOT NULL, -- JSON without metadata.resourceVersion
    -- Units only: where and in which order they are tried.
    home_shard  smallint,
    priority    integer,
    pending     boolean NOT NULL DEFAULT false,
    -- What the object is a part of: the pool (driver/pool) of a slice.
    part_of     text   COLLATE "C",
    PRIMARY KEY (kind, namespace, name)
) WITH (fillfactor = 60);
CREATE UNIQUE INDEX objects_uid ON objects (uid);
CREATE INDEX objects_pending ON objects (home_shard, priority DESC, created_seq) WHERE pending;

CREATE INDEX objects_part_of ON objects (kind, part_of) WHERE part_of IS NOT NULL;

CREATE TABLE events (
    seq       bigint PRIMARY KEY,
    kind      text     COLLATE "C" NOT NULL,
    namespace text     COLLATE "C" NOT NULL,
    name      text     COLLATE "C" NOT NULL,
    uid       uuid     NOT NULL,
    op        smallint NOT NULL, -- 0 added, 1 modified, 2 deleted
    at        timestamptz NOT NULL,
    body      text     COLLATE "C" NOT NULL, -- the whole object after the change; before it, for a deletion
    cause     text     COLLATE "C",
    trace     text     COLLATE "C"  -- W3C traceparent of the request behind the change
);
CREATE INDEX events_uid ON events (uid, seq);
-- Finds the uids that a name had before.
CREATE INDEX events_deleted ON events (kind, namespace, name) WHERE op = 2;

-- One row: the last sequence given, and the highest one that retention may have removed.
CREATE TABLE log_head (
    one     boolean PRIMARY KEY DEFAULT true CHECK (one),
    seq     bigint NOT NULL,
    horizon bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);
INSERT INTO log_head (seq) VALUES (0);

-- The last sequence of each kind: what a reader of one kind needs to know that it missed nothing.
CREATE TABLE kind_heads (
    kind text COLLATE "C" PRIMARY KEY,
    seq  bigint NOT NULL
) WITH (fillfactor = 10);

-- One row a group commit. `batch` answers "did it commit?" after a lost connection.
CREATE TABLE commits (
    first  bigint NOT NULL,
    last   bigint NOT NULL,
    writer text   COLLATE "C" NOT NULL,
    batch  uuid   NOT NULL,
    at     timestamptz NOT NULL,
    lost   integer[] NOT NULL, -- mutations of the batch that did not win
    PRIMARY KEY (batch)
);
CREATE INDEX commits_first ON commits (first);

-- (namespace, client id): the answer that every repeat of a submission gets.
CREATE TABLE submissions (
    namespace  text  COLLATE "C" NOT NULL,
    client_id  text  COLLATE "C" NOT NULL,
    digest     bytea NOT NULL,
    answer     text  COLLATE "C" NOT NULL,
    unit_uid   uuid  NOT NULL,
    seq        bigint NOT NULL, -- the position at which all of it exists
    created_at timestamptz NOT NULL,
    PRIMARY KEY (namespace, client_id)
);
CREATE INDEX submissions_created ON submissions (created_at);

CREATE TABLE pools (
    driver    text COLLATE "C" NOT NULL,
    pool      text COLLATE "C" NOT NULL,
    shard     smallint NOT NULL, -- kept as long as the pool has slices
    node      text COLLATE "C",  -- set if all of it is tied to this node
    inventory bigint NOT NULL,   -- sequence of the last slice write
    slices    integer NOT NULL,
    PRIMARY KEY (driver, pool)
) WITH (fillfactor = 70);

-- A device that is given away. The key is what keeps it single, whoever writes.
CREATE TABLE holdings (
    driver    text COLLATE "C" NOT NULL,
    pool      text COLLATE "C" NOT NULL,
    device    text COLLATE "C" NOT NULL,
    claim_uid uuid NOT NULL,
    seq       bigint NOT NULL,   -- event of the allocation
    draining  boolean NOT NULL DEFAULT false, -- let go by the claim, not yet by the node
    PRIMARY KEY (driver, pool, device)
) WITH (fillfactor = 70);
CREATE INDEX holdings_claim ON holdings (claim_uid);
CREATE INDEX holdings_draining ON holdings (claim_uid, seq) WHERE draining;

-- Who decides for a shard. The epoch rises with each change of owner; a commit with an older one is refused.
CREATE TABLE shard_leases (
    shard smallint PRIMARY KEY,
    epoch bigint NOT NULL DEFAULT 0,
    owner text COLLATE "C"
);
CREATE TABLE installation (
    one    boolean PRIMARY KEY DEFAULT true CHECK (one),
    shards smallint NOT NULL,
    id     uuid NOT NULL DEFAULT gen_random_uuid()
);
INSERT INTO installation (shards) VALUES (64);
INSERT INTO shard_leases (shard) SELECT generate_series(0, 63);

-- Members of a service (allocators, controllers), alive while beating by the clock of this database.
CREATE TABLE members (
    service text COLLATE "C" NOT NULL,
    id      text COLLATE "C" NOT NULL,
    beat_at timestamptz NOT NULL,
    ttl     interval NOT NULL,
    PRIMARY KEY (service, id)
) WITH (fillfactor = 10);

-- Node agents that answer for a node: its devices are free only after the agent's word.
CREATE TABLE agents (
    node     text COLLATE "C" PRIMARY KEY,
    agent_id text COLLATE "C" NOT NULL,
    epoch    text COLLATE "C" NOT NULL,
    seq      bigint NOT NULL
);

-- What agents said about a claim, by allocation.
CREATE TABLE prepared (
    claim_uid      uuid   NOT NULL,
    allocation_seq bigint NOT NULL,
    node           text   COLLATE "C" NOT NULL,
    state          smallint NOT NULL, -- 1 prepared, 2 unprepared, 3 failed
    message        text   COLLATE "C" NOT NULL,
    devices        text   COLLATE "C" NOT NULL, -- JSON
    at             timestamptz NOT NULL,
    PRIMARY KEY (claim_uid, allocation_seq)
);

CREATE FUNCTION dray_writer_lock() RETURNS void LANGUAGE sql VOLATILE AS
$$ SELECT pg_advisory_xact_lock(7310012290014510) $$;

-- A group commit: every mutation wins or loses on its own; the winners' writes and events are one transaction.
--
-- Arrays are columns of row sets; the first of each set (…_m) is the number of the mutation (from 1) a row belongs to.
--   f  fences: shard, epoch                       must be the lease's epoch, else 4
--   w  object writes, in event order: op 0 create (else 2 exists), 1 update, 2 delete (else 3 not found);
--      expected: sequence that the object must be at (null: any), else 1
--   c  pools that must be at an inventory version (0: must not exist), else 6
--   u  pools to create or move on: u_w is the last slice write (from 1), its event's sequence becomes the inventory version; shard is
--      used on creation only; slices 0 removes the pool
--   h  devices to take: must be free, else 5; h_w is the write (from 1) whose event is the allocation
--   r  claims whose devices are let go: mode 0 free, 1 draining
--   a  nodes on which no agent may be registered, else 9
--   s  submission records: a known key is 7 (same digest; detail = recorded answer) or 8
-- Result: one row a mutation (m, code, seq of its first event, detail); row m = 0 carries the commit: code 0 committed now, 1 committed
-- by an earlier call with the same batch id (seq = first, detail = JSON {last, at, lost, prev: {kind: sequence}}).
CREATE FUNCTION dray_commit(
    p_batch uuid, p_writer text, p_count int,
    f_m int[], f_shard int[], f_epoch bigint[],
    w_m int[], w_kind text[], w_ns text[], w_name text[], w_uid uuid[], w_op int[], w_expected bigint[], w_body text[],
    w_home int[], w_priority int[], w_pending boolean[], w_part text[], w_cause text[], w_trace text[],
    c_m int[], c_driver text[], c_pool text[], c_inventory bigint[],
    u_m int[], u_w int[], u_driver text[], u_pool text[], u_shard int[], u_node text[], u_slices int[],
    h_m int[], h_w int[], h_driver text[], h_pool text[], h_device text[], h_claim uuid[],
    r_m int[], r_claim uuid[], r_mode int[],
    a_m int[], a_node text[],
    s_m int[], s_ns text[], s_client text[], s_digest bytea[], s_answer text[], s_unit uuid[]
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
    rec     record;
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
        FOR rec IN SELECT h.m, h.driver, h.pool, h.device FROM unnest(h_m, h_driver, h_pool, h_device) AS h(m, driver, pool, device)
                   JOIN holdings t ON t.driver = h.driver AND t.pool = h.pool AND t.device = h.device LOOP
            IF codes[rec.m] = 0 THEN
                codes[rec.m] := 5;
                details[rec.m] := rec.driver || '/' || rec.pool || '/' || rec.device;
            END IF;
        END LOOP;
    END IF;

    IF cardinality(a_m) > 0 THEN
        FOR rec IN SELECT a.m, a.node FROM unnest(a_m, a_node) AS a(m, node) JOIN agents g ON g.node = a.node LOOP
            IF codes[rec.m] = 0 THEN
                codes[rec.m] := 9;
                details[rec.m] := rec.node;
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

    IF cardinality(h_m) > 0 THEN
        INSERT INTO holdings (driver, pool, device, claim_uid, seq)
        SELECT h.driver, h.pool, h.device, h.claim, v_first - 1 + seqs[h.w]
        FROM unnest(h_m, h_w, h_driver, h_pool, h_device, h_claim) AS h(m, w, driver, pool, device, claim)
        WHERE codes[h.m] = 0;
    END IF;

    IF cardinality(r_m) > 0 THEN
        DELETE FROM holdings t USING unnest(r_m, r_claim, r_mode) AS r(m, claim, mode)
        WHERE codes[r.m] = 0 AND r.mode = 0 AND t.claim_uid = r.claim;
        UPDATE holdings t SET draining = true FROM unnest(r_m, r_claim, r_mode) AS r(m, claim, mode)
        WHERE codes[r.m] = 0 AND r.mode = 1 AND t.claim_uid = r.claim;
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

-- Gives `p_owner` the shards it names, if each one's owner is gone, itself, or has let go. Returns shard and new epoch.
CREATE FUNCTION dray_take_shards(p_owner text, p_shards int[]) RETURNS TABLE (shard int, epoch bigint)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
    PERFORM dray_writer_lock();
    RETURN QUERY
    UPDATE shard_leases l SET owner = p_owner, epoch = l.epoch + 1
    WHERE l.shard = ANY (p_shards)
      AND (l.owner IS NULL OR NOT EXISTS (
            SELECT 1 FROM members m WHERE m.service = 'allocator' AND m.id = l.owner AND m.beat_at + m.ttl > clock_timestamp()))
      AND EXISTS (SELECT 1 FROM members m WHERE m.service = 'allocator' AND m.id = p_owner AND m.beat_at + m.ttl > clock_timestamp())
    RETURNING l.shard::int, l.epoch;
END
$$;

-- Lets shards go. The epoch rises at once, so nothing of the old owner commits after it.
CREATE FUNCTION dray_release_shards(p_owner text, p_shards int[]) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM dray_writer_lock();
    UPDATE shard_leases SET owner = NULL, epoch = epoch + 1 WHERE shard = ANY (p_shards) AND owner = p_owner;
END
$$;
