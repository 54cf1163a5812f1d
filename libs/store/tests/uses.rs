//! Shares, counters and admin access in the tables: what the audit finds, how a database of the first version is brought along, and two
//! writers that fight for one device.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::str::FromStr;

use resource_api::claim::DeviceRequestAllocationResult;
use resource_api::ids::PoolId;
use resource_api::slice::ResourceSlice;
use sqlx::{Connection, PgConnection, Row};
use store::{
    Mutation, Op, Outcome, PoolCheck, PoolPut, PublishedPool, Release, ReleaseMode, Store, StoreConfig, Write, Writer,
    WriterConfig,
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// A board with two counters, partitions that draw on them, and a card that can be shared.
fn slices(generation: i64, card: &str) -> Vec<ResourceSlice> {
    let partition = |name: &str, slots: &str| serde_json::json!({"name": name, "consumesCounters": [{"counterSet": "board", "counters": {"slots": {"value": slots}}}]});
    let specs = [
        serde_json::json!({"sharedCounters": [{"name": "board", "counters": {"slots": {"value": "7"}}}]}),
        serde_json::json!({"devices": [partition("p-4", "4"), partition("p-2", "2"), partition("p-1", "1"),
            {"name": "card", "allowMultipleAllocations": true, "capacity": {"bandwidth": {"value": card}}}]}),
    ];
    let slice = |(index, spec): (usize, &serde_json::Value)| {
        let mut json = serde_json::json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": format!("s-{index}")},
            "spec": {"driver": "x.example", "pool": {"name": "n", "generation": generation, "resourceSliceCount": 2}, "allNodes": true}
        });
        json["spec"]
            .as_object_mut()
            .unwrap()
            .extend(spec.as_object().unwrap().clone());
        serde_json::from_value(json).unwrap()
    };
    specs.iter().enumerate().map(slice).collect()
}

fn pool() -> PoolId {
    PoolId {
        driver: "x.example".into(),
        pool: "n".into(),
    }
}

fn write(kind: &'static str, name: &str, uid: Uuid, op: Op, body: String) -> Write {
    Write {
        kind: kind.into(),
        namespace: "".into(),
        name: name.into(),
        uid,
        op,
        body: body.into(),
        queue: None,
        part_of: (kind == "resourceslices").then(|| "x.example/n".into()),
        cause: None,
        trace: None,
    }
}

fn publication(slices: &[ResourceSlice], is_new: bool) -> Mutation {
    let writes = slices.iter().enumerate().map(|(index, slice)| {
        let uid = Uuid::from_u128(index as u128 + 1);
        let op = if is_new { Op::Create } else { Op::Update { expected: None } };
        let body = serde_json::to_string(slice).unwrap();
        write("resourceslices", &slice.metadata.name, uid, op, body)
    });
    Mutation {
        writes: writes.collect(),
        pool_puts: vec![PoolPut {
            write: slices.len() - 1,
            driver: "x.example".into(),
            pool: "n".into(),
            shard: 0,
            node: None,
            slices: 2,
        }],
        pool_draws: vec![PublishedPool::of(slices).draws(&pool())],
        ..Mutation::default()
    }
}

fn result(device: &str) -> DeviceRequestAllocationResult {
    DeviceRequestAllocationResult {
        request: "r".into(),
        driver: "x.example".into(),
        pool: "n".into(),
        device: device.into(),
        ..DeviceRequestAllocationResult::default()
    }
}

fn share(id: &str, amount: &str) -> DeviceRequestAllocationResult {
    DeviceRequestAllocationResult {
        share_id: Some(id.into()),
        consumed_capacity: [("bandwidth".to_owned(), amount.parse().unwrap())].into(),
        ..result("card")
    }
}

fn allocation(claim: Uuid, results: &[DeviceRequestAllocationResult], slices: &[ResourceSlice], inventory: u64) -> Mutation {
    let body = serde_json::json!({"status": {"allocation": {"devices": {"results": results}}}});
    let mut mutation = Mutation {
        writes: vec![write(
            "resourceclaims",
            &claim.to_string(),
            claim,
            Op::Create,
            body.to_string(),
        )],
        pool_checks: vec![PoolCheck {
            driver: "x.example".into(),
            pool: "n".into(),
            inventory,
        }],
        ..Mutation::default()
    };
    let pools = BTreeMap::from([(pool(), PublishedPool::of(slices))]);
    mutation.take(0, claim, results, &pools).unwrap();
    mutation
}

fn writer(store: &Store, name: &str, tasks: &mut JoinSet<()>) -> Writer {
    Writer::spawn(store.clone(), WriterConfig::new(name), None, tasks, CancellationToken::new())
}

#[track_caller]
fn last(outcome: Outcome) -> u64 {
    match outcome {
        Outcome::Won { sequences } => *sequences.last().unwrap(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_audit_finds_each_fault_that_is_planted() {
    let url = testkit::fresh_database().await.unwrap();
    let store = Store::connect(&StoreConfig::new(url.clone(), "test")).unwrap();
    let mut tasks = JoinSet::new();
    let writer = writer(&store, "test", &mut tasks);
    let slices_now = slices(1, "10G");
    let inventory = last(writer.commit(publication(&slices_now, true)).await.unwrap());
    let admin = DeviceRequestAllocationResult {
        admin_access: Some(true),
        ..result("p-2")
    };
    let claims: Vec<Uuid> = (100..106).map(Uuid::from_u128).collect();
    let wanted: [&[DeviceRequestAllocationResult]; 5] = [
        &[result("p-4")],
        &[share("id-1", "4G"), share("id-2", "500m")],
        &[share("id-3", "5G")],
        &[admin],
        &[],
    ];
    for (claim, results) in claims.iter().zip(wanted) {
        last(
            writer
                .commit(allocation(*claim, results, &slices_now, inventory))
                .await
                .unwrap(),
        );
    }
    let clean = store.audit().await.unwrap();
    assert_eq!(
        (clean.violations.as_slice(), clean.remarks.as_slice()),
        ([].as_slice(), [].as_slice())
    );

    let mut db = PgConnection::connect(&url).await.unwrap();
    let claim = |n: u128| Uuid::from_u128(n).to_string();
    let body = |n: u128, results: &str| {
        format!(
            "UPDATE objects SET body = '{{\"status\": {{\"allocation\": {{\"devices\": {{\"results\": {results}}}}}}}}}' WHERE uid = '{}'",
            claim(n)
        )
    };
    let row = |device: &str, more: &str| {
        format!("{{\"request\": \"r\", \"driver\": \"x.example\", \"pool\": \"n\", \"device\": \"{device}\"{more}}}")
    };
    let faults: Vec<(&str, String)> = vec![
        (
            "no device is allocated to two claims",
            body(104, &format!("[{}]", row("p-4", ""))),
        ),
        (
            "no device is allocated whole and in shares",
            body(104, &format!("[{}]", row("card", ""))),
        ),
        (
            "no share is allocated to two claims",
            body(104, &format!("[{}]", row("card", ", \"shareID\": \"id-1\""))),
        ),
        (
            "every allocated device is held for its claim",
            body(104, &format!("[{}]", row("p-1", ""))),
        ),
        ("every held device is allocated to its claim, or draining", body(100, "[]")),
        (
            "every allocated share is out for its claim",
            body(104, &format!("[{}]", row("card", ", \"shareID\": \"id-9\""))),
        ),
        (
            "every share that is out is allocated to its claim, or draining",
            body(102, "[]"),
        ),
        (
            "each shared device counts its shares",
            "UPDATE holdings SET shares = 7 WHERE device = 'card'".into(),
        ),
        (
            "shares consume what their claims say",
            "UPDATE share_consumption SET amount = amount + 0.000000001 WHERE share_id = 'id-2'".into(),
        ),
        (
            "each capacity is the sum of what shares consume",
            "UPDATE capacities SET consumed = consumed - 0.000000001".into(),
        ),
        (
            "no commit took more of a capacity than there was",
            "ALTER TABLE capacities DROP CONSTRAINT capacity_never_exceeded; UPDATE capacities SET stated = 9000000000".into(),
        ),
        (
            "devices in use draw on counters what is published",
            "UPDATE counter_draws SET amount = 3".into(),
        ),
        (
            "each counter is the sum of what devices draw",
            "UPDATE counters SET consumed = 3".into(),
        ),
        (
            "no commit overdrew a counter",
            "ALTER TABLE counters DROP CONSTRAINT counter_never_overdrawn; UPDATE counters SET stated = 3".into(),
        ),
        (
            "each device in use says whether it draws on counters",
            "UPDATE holdings SET counted = NOT counted WHERE device = 'p-4'".into(),
        ),
        (
            "nothing is charged for a device that is not in use",
            "INSERT INTO counter_draws VALUES ('x.example', 'n', 'p-1', 'board', 'slots', 1)".into(),
        ),
        (
            "every admin access is recorded for its claim",
            "DELETE FROM presences WHERE device <> ''".into(),
        ),
        ("every recorded admin access is in its claim, or draining", body(103, "[]")),
        (
            "admin access holds nothing",
            format!(
                "INSERT INTO holdings (driver, pool, device, claim_uid, seq) VALUES ('x.example', 'n', 'p-2', '{}', 1)",
                claim(103)
            ),
        ),
        (
            "every allocation without devices is recorded, and no other as such",
            "DELETE FROM presences WHERE device = ''".into(),
        ),
    ];
    let checks = [
        "objects",
        "holdings",
        "shares",
        "share_consumption",
        "capacities",
        "counter_draws",
        "counters",
        "presences",
    ];
    for table in checks {
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!(
            "CREATE TABLE saved_{table} AS SELECT * FROM {table}"
        )))
        .execute(&mut db)
        .await
        .unwrap();
    }
    for (check, fault) in faults {
        sqlx::raw_sql(sqlx::AssertSqlSafe(fault.clone()))
            .execute(&mut db)
            .await
            .unwrap();
        let report = store.audit().await.unwrap();
        let found: Vec<&str> = report.violations.iter().map(|v| v.check).collect();
        assert!(found.contains(&check), "{fault}: {found:?}");
        for table in checks {
            let restore = format!("TRUNCATE {table}; INSERT INTO {table} SELECT * FROM saved_{table}");
            sqlx::raw_sql(sqlx::AssertSqlSafe(restore)).execute(&mut db).await.unwrap();
        }
        assert!(store.audit().await.unwrap().is_clean(), "after {check}");
    }

    // A driver that shrinks what is out: no fault of ours, and told apart.
    let mut smaller = slices(2, "1G");
    smaller[0].spec.shared_counters.as_mut().unwrap()[0]
        .counters
        .get_mut("slots")
        .unwrap()
        .value = "3".parse().unwrap();
    last(writer.commit(publication(&smaller, false)).await.unwrap());
    let report = store.audit().await.unwrap();
    assert_eq!(report.violations, []);
    let told: Vec<&str> = report.remarks.iter().map(|remark| remark.found.as_str()).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].starts_with("x.example/n/card/bandwidth: 9000000000.5"), "{told:?}");
    assert_eq!(told[1], "x.example/n/board/slots: 4.000000000 drawn, published 3");
}

#[tokio::test]
async fn a_database_of_the_first_version_is_brought_along() {
    let url = testkit::empty_database().await.unwrap();
    let mut db = PgConnection::connect(&url).await.unwrap();
    let mut first = sqlx::migrate!("../../migrations");
    first.migrations.to_mut().retain(|migration| migration.version == 1);
    first.run(&mut db).await.unwrap();

    let published = slices(4, "10G");
    let mut old = slices(3, "99G");
    old[1].metadata.name = "old".into();
    let object = |kind: &str, n: u128, name: &str, body: String| {
        format!(
            "INSERT INTO objects (kind, namespace, name, uid, seq, created_seq, body) VALUES ('{kind}', '', '{name}', '{}', {n}, {n}, '{body}');
             INSERT INTO events (seq, kind, namespace, name, uid, op, at, body) SELECT seq, kind, namespace, name, uid, 0, now(), body FROM objects WHERE seq = {n};
             UPDATE log_head SET seq = {n}; INSERT INTO kind_heads VALUES ('{kind}', {n}) ON CONFLICT (kind) DO UPDATE SET seq = {n};
             INSERT INTO commits VALUES ({n}, {n}, 'old', gen_random_uuid(), now(), '{{}}');",
            Uuid::from_u128(n)
        )
    };
    let claim = |n: u128, results: &[DeviceRequestAllocationResult]| {
        let body =
            serde_json::json!({"metadata": {"name": n.to_string()}, "status": {"allocation": {"devices": {"results": results}}}});
        object("resourceclaims", n, &n.to_string(), body.to_string())
    };
    let hold = |n: u128, device: &str| {
        format!(
            "INSERT INTO holdings (driver, pool, device, claim_uid, seq) VALUES ('x.example', 'n', '{device}', '{}', {n});",
            Uuid::from_u128(n)
        )
    };
    let admin = DeviceRequestAllocationResult {
        admin_access: Some(true),
        ..result("p-4")
    };
    let mut sql = String::new();
    for (index, slice) in [&published[0], &published[1], &old[1]].into_iter().enumerate() {
        let n = index as u128 + 1;
        sql += &object(
            "resourceslices",
            n,
            &slice.metadata.name,
            serde_json::to_string(slice).unwrap(),
        );
    }
    sql += "UPDATE objects SET part_of = 'x.example/n' WHERE kind = 'resourceslices';
            INSERT INTO pools VALUES ('x.example', 'n', 0, NULL, 3, 3);";
    sql += &(claim(4, &[result("p-4")]) + &hold(4, "p-4"));
    sql += &(claim(5, &[share("id-1", "2500M")]) + &hold(5, "card"));
    sql += &claim(6, &[admin]);
    sql += &claim(7, &[]);
    sql += &(claim(8, &[result("gone")]) + &hold(8, "gone"));
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut db).await.unwrap();

    store::migrate(&url).await.unwrap();
    store::migrate(&url).await.unwrap();
    let store = Store::connect(&StoreConfig::new(url.clone(), "test")).unwrap();
    let report = store.audit().await.unwrap();
    assert_eq!(report.violations, []);
    let mut held: Vec<String> = store.holdings().await.unwrap().iter().map(|h| h.device.to_string()).collect();
    held.sort();
    assert_eq!(held, ["gone", "p-4"], "what was held whole still is");
    let shares = store.shares().await.unwrap();
    assert_eq!(
        (shares.len(), shares[0].share_id.as_ref(), shares[0].sequence),
        (1, "id-1", 5)
    );
    let pool_row = store.pool("x.example", "n").await.unwrap().unwrap();
    assert!(pool_row.counted);
    let mut claims = store.held_claims().await.unwrap();
    claims.sort_by_key(|claim| claim.claim_uid);
    let known: Vec<(u128, u64)> = claims
        .iter()
        .map(|c| (c.claim_uid.as_u128(), c.allocation_sequence))
        .collect();
    assert_eq!(known, [(4, 4), (5, 5), (6, 6), (7, 7), (8, 8)]);

    // What was given away before counts: three slots of seven are left, and 7.5 of 10 gigabit.
    let mut tasks = JoinSet::new();
    let writer = writer(&store, "test", &mut tasks);
    let try_one = async |results: &[DeviceRequestAllocationResult]| {
        writer
            .commit(allocation(Uuid::now_v7(), results, &published, 3))
            .await
            .unwrap()
    };
    last(try_one(&[result("p-2")]).await);
    assert!(matches!(
        try_one(&[share("id-2", "7501M")]).await,
        Outcome::CapacityExceeded { .. }
    ));
    last(try_one(&[share("id-2", "7500M")]).await);
    last(try_one(&[result("p-1")]).await);
    assert_eq!(store.audit().await.unwrap().violations, []);
    let sum: String = sqlx::query("SELECT consumed::text AS sum FROM counters")
        .fetch_one(&mut db)
        .await
        .unwrap()
        .get("sum");
    assert_eq!(f64::from_str(&sum).unwrap(), 7.0);
}

#[tokio::test]
async fn writers_that_fight_for_one_device_never_take_more_than_there_is() {
    let url = testkit::fresh_database().await.unwrap();
    let store = Store::connect(&StoreConfig::new(url.clone(), "test")).unwrap();
    let mut tasks = JoinSet::new();
    let writers = [writer(&store, "one", &mut tasks), writer(&store, "two", &mut tasks)];
    let published = slices(1, "10G");
    let inventory = last(writers[0].commit(publication(&published, true)).await.unwrap());
    let mut fights = JoinSet::new();
    for n in 0_u128..8 {
        let (writer, published) = (writers[n as usize % 2].clone(), published.clone());
        fights.spawn(async move {
            let mut won = [0_usize; 3];
            for round in 0..40_u128 {
                let claim = Uuid::from_u128(1_000 + n * 1_000 + round);
                let (sort, results) = match (n + round) % 4 {
                    0 => (0, vec![result("card")]),
                    1 => (1, vec![result(["p-4", "p-2", "p-1"][round as usize % 3])]),
                    _ => (2, vec![share(&claim.to_string(), "3G")]),
                };
                let outcome = writer
                    .commit(allocation(claim, &results, &published, inventory))
                    .await
                    .unwrap();
                if !matches!(outcome, Outcome::Won { .. }) {
                    continue;
                }
                won[sort] += 1;
                let mode = ReleaseMode::Free;
                let op = Op::Delete { expected: None };
                let release = Mutation {
                    writes: vec![write("resourceclaims", &claim.to_string(), claim, op, "{}".into())],
                    releases: vec![Release { claim, mode }],
                    ..Mutation::default()
                };
                last(writer.commit(release).await.unwrap());
            }
            won
        });
    }
    let mut watch = PgConnection::connect(&url).await.unwrap();
    let mut most = 0;
    while !fights.is_empty() {
        while let Some(ended) = fights.try_join_next() {
            ended.unwrap();
        }
        let row = sqlx::query(
            "SELECT (SELECT coalesce(max(shares), 0) FROM holdings) AS shares,
                    (SELECT count(*) FROM capacities WHERE consumed > 10000000000) + (SELECT count(*) FROM counters WHERE consumed > 7) AS over",
        )
        .fetch_one(&mut watch)
        .await
        .unwrap();
        most = most.max(row.get::<i32, _>("shares"));
        assert_eq!(row.get::<i64, _>("over"), 0);
    }
    assert!(most <= 3, "three shares of 3G fit 10G, {most} were out");
    let left: i64 = sqlx::query(
        "SELECT (SELECT count(*) FROM holdings) + (SELECT count(*) FROM shares) + (SELECT count(*) FROM capacities)
              + (SELECT count(*) FROM counters) + (SELECT count(*) FROM counter_draws) + (SELECT count(*) FROM share_consumption) AS n",
    )
    .fetch_one(&mut watch)
    .await
    .unwrap()
    .get("n");
    assert_eq!(left, 0, "everything came back");
    assert!(store.audit().await.unwrap().is_clean());
}
