//! What is taken, three times over: what claims say, what the tables hold, and what slices publish. Worked out in SQL from the objects'
//! JSON, so it shares no code with what commits.

/// The results of all allocations in claims.
const RESULTS: &str = "SELECT o.uid, o.namespace || '/' || o.name AS claim, r ->> 'driver' AS driver, r ->> 'pool' AS pool, r ->> 'device' AS device,
            coalesce(r ->> 'shareID', '') AS share_id, coalesce((r ->> 'adminAccess')::boolean, false) AS admin,
            coalesce(r -> 'consumedCapacity', '{}'::jsonb) AS consumed
     FROM objects o, jsonb_array_elements(coalesce((o.body::jsonb #> '{status,allocation,devices,results}'), '[]'::jsonb)) AS r
     WHERE o.kind = 'resourceclaims' AND o.body LIKE '%\"allocation\":%'";

/// The newest generation of the slices of pools that have counters, or devices with shares out.
const NEWEST: &str = "SELECT driver, pool, body FROM (
         SELECT b.driver, b.pool, b.body, rank() OVER (PARTITION BY b.driver, b.pool ORDER BY (b.body #>> '{spec,pool,generation}')::bigint DESC) AS age
         FROM (SELECT x.body, x.body #>> '{spec,driver}' AS driver, x.body #>> '{spec,pool,name}' AS pool FROM (
                   SELECT o.body::jsonb AS body FROM objects o WHERE o.kind = 'resourceslices' AND o.part_of IN (
                       SELECT driver || '/' || pool FROM capacities UNION SELECT driver || '/' || pool FROM counters
                       UNION SELECT driver || '/' || pool FROM pools WHERE counted)) x) b) s WHERE s.age = 1";

fn whole() -> String {
    format!("SELECT * FROM ({RESULTS}) r WHERE NOT r.admin AND r.share_id = ''")
}

fn shared() -> String {
    format!("SELECT * FROM ({RESULTS} AND o.body LIKE '%\"shareID\":%') r WHERE NOT r.admin AND r.share_id <> ''")
}

/// What shares consume, as their claims say.
fn consumed() -> String {
    format!(
        "SELECT s.uid, s.claim, s.driver, s.pool, s.device, s.share_id, c.key AS capacity, dray_quantity(c.value) AS amount
         FROM ({}) s, jsonb_each_text(s.consumed) AS c",
        shared()
    )
}

fn published_devices() -> String {
    format!(
        "SELECT s.driver, s.pool, d ->> 'name' AS device, d AS body
         FROM ({NEWEST}) s, jsonb_array_elements(coalesce(s.body #> '{{spec,devices}}', '[]'::jsonb)) AS d"
    )
}

fn published_capacities() -> String {
    format!(
        "SELECT p.driver, p.pool, p.device, c.key AS capacity, dray_quantity(c.value ->> 'value') AS amount
         FROM ({}) p, jsonb_each(coalesce(p.body -> 'capacity', '{{}}'::jsonb)) AS c",
        published_devices()
    )
}

fn published_counters() -> String {
    format!(
        "SELECT s.driver, s.pool, t ->> 'name' AS counter_set, c.key AS counter, max(dray_quantity(c.value ->> 'value')) AS amount
         FROM ({NEWEST}) s, jsonb_array_elements(coalesce(s.body #> '{{spec,sharedCounters}}', '[]'::jsonb)) AS t,
              jsonb_each(coalesce(t -> 'counters', '{{}}'::jsonb)) AS c GROUP BY 1, 2, 3, 4"
    )
}

/// What devices of pools with counters draw.
fn published_draws() -> String {
    format!(
        "SELECT p.driver, p.pool, p.device, t ->> 'counterSet' AS counter_set, c.key AS counter, sum(dray_quantity(c.value ->> 'value')) AS amount
         FROM ({}) p JOIN pools l ON l.driver = p.driver AND l.pool = p.pool AND l.counted,
              jsonb_array_elements(coalesce(p.body -> 'consumesCounters', '[]'::jsonb)) AS t,
              jsonb_each(coalesce(t -> 'counters', '{{}}'::jsonb)) AS c GROUP BY 1, 2, 3, 4, 5",
        published_devices()
    )
}

/// Rows of `a` and `b` that differ in `amount` or are missing on one side, by `keys`. Neither side may have a key twice.
fn difference(keys: &[&str], a: &str, b: &str, told: &str) -> String {
    let on: Vec<String> = keys.iter().map(|key| format!("a.{key} = b.{key}")).collect();
    let name: Vec<String> = keys
        .iter()
        .map(|key| format!("coalesce(a.{key}::text, b.{key}::text)"))
        .collect();
    format!(
        "SELECT {} || {told} AS found FROM ({a}) a FULL JOIN ({b}) b ON {} WHERE a.amount IS DISTINCT FROM b.amount",
        name.join(" || '/' || "),
        on.join(" AND ")
    )
}

const DEVICE: [&str; 3] = ["driver", "pool", "device"];
const CAPACITY: [&str; 4] = ["driver", "pool", "device", "capacity"];
const COUNTER: [&str; 4] = ["driver", "pool", "counter_set", "counter"];
const SHARE_CAPACITY: [&str; 5] = ["driver", "pool", "device", "share_id", "capacity"];
const DEVICE_COUNTER: [&str; 5] = ["driver", "pool", "device", "counter_set", "counter"];

/// What must hold of everything that is taken.
pub(super) fn checks() -> Vec<(&'static str, String)> {
    let (whole, shared) = (whole(), shared());
    let mut checks = vec![
        (
            "no device is allocated to two claims",
            format!(
                "SELECT driver || '/' || pool || '/' || device || ' is in ' || string_agg(claim, ', ') AS found
                 FROM ({whole}) a GROUP BY driver, pool, device HAVING count(*) > 1"
            ),
        ),
        (
            "no device is allocated whole and in shares",
            format!(
                "SELECT driver || '/' || pool || '/' || device || ' is whole in ' || string_agg(claim, ', ') FILTER (WHERE share_id = '')
                        || ' and shared in ' || string_agg(claim, ', ') FILTER (WHERE share_id <> '') AS found
                 FROM ({RESULTS}) a WHERE NOT admin GROUP BY driver, pool, device HAVING bool_or(share_id = '') AND bool_or(share_id <> '')"
            ),
        ),
        (
            "no share is allocated to two claims",
            format!(
                "SELECT driver || '/' || pool || '/' || device || ' share ' || share_id || ' is in ' || string_agg(claim, ', ') AS found
                 FROM ({shared}) a GROUP BY driver, pool, device, share_id HAVING count(*) > 1"
            ),
        ),
        (
            "every allocated device is held for its claim",
            format!(
                "SELECT a.driver || '/' || a.pool || '/' || a.device || ' of ' || a.claim || ' is not held' AS found
                 FROM ({whole}) a WHERE NOT EXISTS (SELECT 1 FROM holdings h WHERE h.driver = a.driver AND h.pool = a.pool
                 AND h.device = a.device AND h.claim_uid = a.uid)"
            ),
        ),
        (
            "every held device is allocated to its claim, or draining",
            format!(
                "SELECT h.driver || '/' || h.pool || '/' || h.device || ' is held by ' || h.claim_uid AS found FROM holdings h
                 WHERE h.claim_uid IS NOT NULL AND NOT h.draining AND NOT EXISTS (SELECT 1 FROM ({whole}) a
                 WHERE h.driver = a.driver AND h.pool = a.pool AND h.device = a.device AND h.claim_uid = a.uid)"
            ),
        ),
        (
            "every allocated share is out for its claim",
            format!(
                "SELECT a.driver || '/' || a.pool || '/' || a.device || ' share ' || a.share_id || ' of ' || a.claim || ' is not out' AS found
                 FROM ({shared}) a WHERE NOT EXISTS (SELECT 1 FROM shares s WHERE s.driver = a.driver AND s.pool = a.pool
                 AND s.device = a.device AND s.share_id = a.share_id AND s.claim_uid = a.uid)"
            ),
        ),
        (
            "every share that is out is allocated to its claim, or draining",
            format!(
                "SELECT s.driver || '/' || s.pool || '/' || s.device || ' share ' || s.share_id || ' is out for ' || s.claim_uid AS found FROM shares s
                 WHERE NOT s.draining AND NOT EXISTS (SELECT 1 FROM ({shared}) a WHERE s.driver = a.driver AND s.pool = a.pool
                 AND s.device = a.device AND s.share_id = a.share_id AND s.claim_uid = a.uid)"
            ),
        ),
        (
            "each shared device counts its shares",
            difference(
                &DEVICE,
                "SELECT driver, pool, device, shares::bigint AS amount FROM holdings WHERE claim_uid IS NULL",
                "SELECT driver, pool, device, count(*) AS amount FROM shares GROUP BY driver, pool, device",
                "' says ' || coalesce(a.amount, 0) || ' shares, has ' || coalesce(b.amount, 0)",
            ),
        ),
        (
            "shares consume what their claims say",
            difference(
                &SHARE_CAPACITY,
                "SELECT k.driver, k.pool, k.device, k.share_id, k.capacity, k.amount FROM share_consumption k
                 WHERE NOT EXISTS (SELECT 1 FROM shares s WHERE s.driver = k.driver AND s.pool = k.pool AND s.device = k.device
                                   AND s.share_id = k.share_id AND s.draining)",
                &format!(
                    "SELECT c.driver, c.pool, c.device, c.share_id, c.capacity, max(c.amount) AS amount FROM ({}) c
                     WHERE NOT EXISTS (SELECT 1 FROM shares s WHERE s.driver = c.driver AND s.pool = c.pool AND s.device = c.device
                                       AND s.share_id = c.share_id AND s.draining) GROUP BY 1, 2, 3, 4, 5",
                    consumed()
                ),
                "' is recorded as ' || coalesce(a.amount::text, 'nothing') || ', the claim says ' || coalesce(b.amount::text, 'nothing')",
            ),
        ),
        (
            "each capacity is the sum of what shares consume",
            difference(
                &CAPACITY,
                "SELECT driver, pool, device, capacity, consumed AS amount FROM capacities",
                "SELECT driver, pool, device, capacity, sum(amount) AS amount FROM share_consumption GROUP BY 1, 2, 3, 4",
                "' says ' || coalesce(a.amount::text, 'nothing') || ', the sum is ' || coalesce(b.amount::text, 'nothing')",
            ),
        ),
        (
            "no commit took more of a capacity than there was",
            "SELECT driver || '/' || pool || '/' || device || '/' || capacity || ': ' || consumed || ' of ' || stated AS found
             FROM capacities WHERE consumed > stated"
                .to_owned(),
        ),
    ];
    checks.extend(counters());
    checks.extend(presences());
    checks
}

fn counters() -> Vec<(&'static str, String)> {
    vec![
        (
            "devices in use draw on counters what is published",
            difference(
                &DEVICE_COUNTER,
                "SELECT driver, pool, device, counter_set, counter, amount FROM counter_draws",
                &format!(
                    "SELECT p.* FROM ({}) p JOIN holdings h ON h.driver = p.driver AND h.pool = p.pool AND h.device = p.device",
                    published_draws()
                ),
                "' is charged with ' || coalesce(a.amount::text, 'nothing') || ', published is ' || coalesce(b.amount::text, 'nothing')",
            ),
        ),
        (
            "each counter is the sum of what devices draw",
            difference(
                &COUNTER,
                "SELECT driver, pool, counter_set, counter, consumed AS amount FROM counters",
                "SELECT driver, pool, counter_set, counter, sum(amount) AS amount FROM counter_draws GROUP BY 1, 2, 3, 4",
                "' says ' || coalesce(a.amount::text, 'nothing') || ', the sum is ' || coalesce(b.amount::text, 'nothing')",
            ),
        ),
        (
            "no commit overdrew a counter",
            format!(
                "SELECT c.driver || '/' || c.pool || '/' || c.counter_set || '/' || c.counter || ': ' || c.consumed || ' of ' || c.stated
                        || ', published ' || coalesce(p.amount::text, 'nothing') AS found
                 FROM counters c LEFT JOIN ({}) p ON p.driver = c.driver AND p.pool = c.pool AND p.counter_set = c.counter_set AND p.counter = c.counter
                 WHERE c.consumed > c.stated OR (c.stated IS NOT NULL AND c.consumed > coalesce(p.amount, 0))",
                published_counters()
            ),
        ),
        (
            "each device in use says whether it draws on counters",
            "SELECT h.driver || '/' || h.pool || '/' || h.device AS found FROM holdings h WHERE h.counted <> EXISTS (
                 SELECT 1 FROM counter_draws x WHERE x.driver = h.driver AND x.pool = h.pool AND x.device = h.device)"
                .to_owned(),
        ),
        (
            "nothing is charged for a device that is not in use",
            "SELECT x.driver || '/' || x.pool || '/' || x.device || ' is charged' AS found FROM counter_draws x WHERE NOT EXISTS (
                 SELECT 1 FROM holdings h WHERE h.driver = x.driver AND h.pool = x.pool AND h.device = x.device)
             UNION ALL
             SELECT k.driver || '/' || k.pool || '/' || k.device || ' share ' || k.share_id || ' consumes' FROM share_consumption k WHERE NOT EXISTS (
                 SELECT 1 FROM shares s WHERE s.driver = k.driver AND s.pool = k.pool AND s.device = k.device AND s.share_id = k.share_id)"
                .to_owned(),
        ),
    ]
}

fn presences() -> Vec<(&'static str, String)> {
    vec![
        (
            "every admin access is recorded for its claim",
            format!(
                "SELECT a.driver || '/' || a.pool || '/' || a.device || ' of ' || a.claim || ' is not recorded' AS found
                 FROM ({RESULTS}) a WHERE a.admin AND NOT EXISTS (SELECT 1 FROM presences p WHERE p.claim_uid = a.uid AND p.driver = a.driver
                 AND p.pool = a.pool AND p.device = a.device AND p.share_id = a.share_id)"
            ),
        ),
        (
            "every recorded admin access is in its claim, or draining",
            format!(
                "SELECT p.driver || '/' || p.pool || '/' || p.device || ' is recorded for ' || p.claim_uid AS found FROM presences p
                 WHERE NOT p.draining AND p.device <> '' AND NOT EXISTS (SELECT 1 FROM ({RESULTS}) a WHERE a.admin AND a.uid = p.claim_uid
                 AND a.driver = p.driver AND a.pool = p.pool AND a.device = p.device AND a.share_id = p.share_id)"
            ),
        ),
        (
            "admin access holds nothing",
            format!(
                "SELECT a.driver || '/' || a.pool || '/' || a.device || ' of ' || a.claim || ' is held' AS found FROM ({RESULTS}) a WHERE a.admin
                 AND (EXISTS (SELECT 1 FROM holdings h WHERE h.driver = a.driver AND h.pool = a.pool AND h.device = a.device AND h.claim_uid = a.uid)
                      OR EXISTS (SELECT 1 FROM shares s WHERE s.driver = a.driver AND s.pool = a.pool AND s.device = a.device
                                 AND s.share_id = a.share_id AND s.claim_uid = a.uid))
                 AND NOT EXISTS (SELECT 1 FROM ({RESULTS}) b WHERE NOT b.admin AND b.uid = a.uid AND b.driver = a.driver AND b.pool = a.pool
                                 AND b.device = a.device)"
            ),
        ),
        (
            "every allocation without devices is recorded, and no other as such",
            "SELECT coalesce(o.namespace || '/' || o.name, p.claim_uid::text) AS found
             FROM (SELECT uid, namespace, name FROM objects WHERE kind = 'resourceclaims' AND body LIKE '%\"allocation\":%'
                   AND body::jsonb #> '{status,allocation}' IS NOT NULL
                   AND jsonb_array_length(coalesce(body::jsonb #> '{status,allocation,devices,results}', '[]'::jsonb)) = 0) o
             FULL JOIN (SELECT claim_uid, draining FROM presences WHERE device = '') p ON p.claim_uid = o.uid
             WHERE p.claim_uid IS NULL OR (o.uid IS NULL AND NOT p.draining)"
                .to_owned(),
        ),
    ]
}

/// What drivers did to what was given away already: no fault of ours, but worth knowing.
pub(super) fn remarks() -> Vec<(&'static str, String)> {
    vec![
        (
            "a driver shrank a capacity below what is consumed",
            format!(
                "SELECT c.driver || '/' || c.pool || '/' || c.device || '/' || c.capacity || ': ' || c.consumed || ' consumed, published '
                        || coalesce(p.amount::text, 'nothing') AS found
                 FROM capacities c LEFT JOIN ({}) p ON p.driver = c.driver AND p.pool = c.pool AND p.device = c.device AND p.capacity = c.capacity
                 WHERE c.consumed > coalesce(p.amount, 0) AND (c.stated IS NULL OR c.consumed <= c.stated)",
                published_capacities()
            ),
        ),
        (
            "a driver shrank a counter below what is drawn",
            format!(
                "SELECT c.driver || '/' || c.pool || '/' || c.counter_set || '/' || c.counter || ': ' || c.consumed || ' drawn, published '
                        || coalesce(p.amount::text, 'nothing') AS found
                 FROM counters c LEFT JOIN ({}) p ON p.driver = c.driver AND p.pool = c.pool AND p.counter_set = c.counter_set AND p.counter = c.counter
                 WHERE c.stated IS NULL AND c.consumed > coalesce(p.amount, 0)",
                published_counters()
            ),
        ),
    ]
}
