use super::*;
use crate::resources::Catalog;

const HORIZON: Horizon = Horizon {
    oldest: 100,
    current: 300,
};

fn resource(plural: &str) -> ResourceType {
    let catalog = Catalog::standard(|_| true);
    (**catalog.find("resource.k8s.io", "v1", plural).expect("is served")).clone()
}

fn options(version: Option<u64>, version_match: Option<VersionMatch>, limit: Option<u64>) -> ListOptions {
    ListOptions {
        version,
        version_match,
        limit,
        ..ListOptions::default()
    }
}

fn decided(options: &ListOptions) -> Result<ListPlan, (u16, String)> {
    let claims = resource("resourceclaims");
    let listed = Listed {
        resource: &claims,
        namespace: "",
    };
    decide(options, listed, HORIZON).map_err(|status| (status.code, status.message))
}

#[test]
fn versions_matches_and_limits() {
    let exact = Some(VersionMatch::Exact);
    let newer = Some(VersionMatch::NotOlderThan);
    for (version, version_match, limit, freshness, wanted_limit) in [
        (None, None, None, Freshness::Latest, None),
        (None, None, Some(500), Freshness::Latest, Some(500)),
        (Some(0), None, Some(500), Freshness::Any, None),
        (Some(0), newer, Some(500), Freshness::Any, None),
        (Some(200), None, None, Freshness::AtLeast(200), None),
        (Some(200), None, Some(1), Freshness::Exactly(200), Some(1)),
        (Some(200), newer, Some(1), Freshness::AtLeast(200), Some(1)),
        (Some(200), exact, None, Freshness::Exactly(200), None),
        (Some(50), newer, None, Freshness::AtLeast(50), None),
    ] {
        let plan = decided(&options(version, version_match, limit));
        let wanted = ListPlan {
            freshness,
            after: None,
            limit: wanted_limit,
        };
        assert_eq!(plan, Ok(wanted));
    }
}

#[test]
fn versions_that_are_not_there() {
    let future = (504, "Timeout: Too large resource version: 301, current: 300".to_owned());
    assert_eq!(decided(&options(Some(301), None, None)), Err(future));
    let gone = decided(&options(Some(99), Some(VersionMatch::Exact), None));
    assert_eq!(gone.map_err(|(code, _)| code), Err(410));
    assert!(decided(&options(Some(100), Some(VersionMatch::Exact), None)).is_ok());
}

fn position(namespace: &str, name: &str) -> Position {
    Position {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

fn token(listed: Listed<'_>, version: u64) -> String {
    let next = NextPage {
        after: position("demo", "c1"),
        remaining: Some(3),
    };
    let metadata = metadata(listed, version, Some(next));
    assert_eq!(metadata["remainingItemCount"], 3);
    assert_eq!(metadata["resourceVersion"], version.to_string());
    metadata["continue"].as_str().expect("has a token").to_owned()
}

#[test]
fn pages_show_the_state_of_the_first() {
    let claims = resource("resourceclaims");
    let listed = Listed {
        resource: &claims,
        namespace: "",
    };
    let continued = |version: u64| ListOptions {
        continue_token: Some(token(listed, version)),
        limit: Some(2),
        ..ListOptions::default()
    };
    let wanted = ListPlan {
        freshness: Freshness::Exactly(240),
        after: Some(position("demo", "c1")),
        limit: Some(2),
    };
    assert_eq!(decide(&continued(240), listed, HORIZON), Ok(wanted));
    assert_eq!(
        decide(&continued(301), listed, HORIZON).map_err(|status| status.code),
        Err(504)
    );

    let expired = decide(&continued(99), listed, HORIZON).expect_err("is too old");
    assert_eq!((expired.code, expired.reason.text()), (410, "Expired"));
    let again = ListOptions {
        continue_token: expired.continue_token,
        ..ListOptions::default()
    };
    let wanted = ListPlan {
        freshness: Freshness::Latest,
        after: Some(position("demo", "c1")),
        limit: None,
    };
    assert_eq!(decide(&again, listed, HORIZON), Ok(wanted));

    let with_version = ListOptions {
        version: Some(7),
        ..continued(240)
    };
    let refused = decide(&with_version, listed, HORIZON).map_err(|status| (status.code, status.message));
    let rule = "specifying resource version is not allowed when using continue";
    assert_eq!(refused, Err((400, rule.to_owned())));
}

#[test]
fn tokens_of_other_lists_and_damaged_ones() {
    let (claims, templates) = (resource("resourceclaims"), resource("resourceclaimtemplates"));
    let listed = Listed {
        resource: &claims,
        namespace: "",
    };
    let good = token(listed, 240);
    let check = |listed: Listed<'_>, token: &str| {
        let options = ListOptions {
            continue_token: Some(token.to_owned()),
            ..ListOptions::default()
        };
        decide(&options, listed, HORIZON).map_err(|status| status.code)
    };
    assert!(check(listed, &good).is_ok());
    let other_resource = Listed {
        resource: &templates,
        ..listed
    };
    assert_eq!(check(other_resource, &good), Err(400));
    let other_namespace = Listed {
        namespace: "demo",
        ..listed
    };
    assert_eq!(check(other_namespace, &good), Err(400));
    let upstream = URL_SAFE_NO_PAD.encode(r#"{"v":"meta.k8s.io/v1","rv":243,"start":"/demo/bad\u0000"}"#);
    for token in [
        "",
        "x",
        "%",
        &good[1..],
        &good[..good.len() - 4],
        &upstream,
        &"A".repeat(TOKEN_BYTES_MAX + 1),
    ] {
        assert_eq!(check(listed, token), Err(400), "{token}");
    }
    let text = URL_SAFE_NO_PAD
        .decode(&good)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let forged = text.unwrap_or_default().replace("\"c1\"", "\"c2\"");
    assert_eq!(check(listed, &URL_SAFE_NO_PAD.encode(forged)), Err(400));
}

#[test]
fn last_page_has_no_token() {
    let claims = resource("resourceclaims");
    let listed = Listed {
        resource: &claims,
        namespace: "",
    };
    let metadata = metadata(listed, 7, None);
    assert_eq!(metadata, json!({"resourceVersion": "7"}));
    assert_eq!(
        body(&claims, Vec::new(), metadata),
        json!({"kind": "ResourceClaimList", "apiVersion": "resource.k8s.io/v1", "metadata": {"resourceVersion": "7"}, "items": []})
    );
}
