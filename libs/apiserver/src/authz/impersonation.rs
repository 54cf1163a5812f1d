//! Acting as somebody else: `kubectl --as`. The caller must be allowed to take on each part of the identity; then the request is
//! decided on as if the other one had sent it.
//!
//! Source: `k8s.io/apiserver/pkg/endpoints/filters/impersonation.go`.

use super::{ANONYMOUS, AUTHENTICATED, Attributes, ResourceAttributes, UNAUTHENTICATED, User};
use crate::request::query;
use crate::status::Status;

/// Headers that one request may have for this: groups and extras come one by one.
const HEADERS_MAX: usize = 256;

/// Who is to be acted as, and what the caller must be allowed to do for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Impersonation {
    pub user: User,
    /// All must be allowed; a refusal is [`Attributes::forbidden`] of the caller.
    pub needs: Vec<Attributes>,
}

/// Reads the `Impersonate-…` headers among those of a request; names in any case. `None` if there are none.
///
/// 400 if groups, uid or extras are given without a user, or if there are too many.
pub fn read<'a>(headers: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Option<Impersonation>, Status> {
    let mut user = User::default();
    let mut count = 0;
    for (name, value) in headers {
        let name = name.to_ascii_lowercase();
        let Some(part) = name.strip_prefix("impersonate-") else {
            continue;
        };
        count += 1;
        if count > HEADERS_MAX {
            return Err(Status::bad_request(format!(
                "more than {HEADERS_MAX} headers for impersonation"
            )));
        }
        match part {
            "user" => user.name = value.to_owned(),
            "uid" => user.uid = value.to_owned(),
            "group" => user.groups.push(value.to_owned()),
            _ => {
                if let Some(key) = part.strip_prefix("extra-") {
                    // Keys that are no header names come percent-encoded.
                    let key = query::decode(key, false).unwrap_or_else(|| key.to_owned());
                    user.extra.entry(key).or_default().push(value.to_owned());
                }
            }
        }
    }
    if count == 0 {
        return Ok(None);
    }
    if user.name.is_empty() {
        let text = "requested impersonation without a user: groups, uid and extras belong to one";
        return Err(Status::bad_request(text));
    }
    let needs = needs(&user);
    complete_groups(&mut user);
    Ok(Some(Impersonation { user, needs }))
}

fn needs(user: &User) -> Vec<Attributes> {
    let asked = |group: &str, resource: &str, subresource: &str, namespace: &str, name: &str| {
        Attributes::Resource(ResourceAttributes {
            verb: "impersonate".to_owned(),
            group: group.to_owned(),
            version: "v1".to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    };
    let mut needs = vec![match service_account(&user.name) {
        Some((namespace, name)) => asked("", "serviceaccounts", "", namespace, name),
        None => asked("", "users", "", "", &user.name),
    }];
    needs.extend(user.groups.iter().map(|group| asked("", "groups", "", "", group)));
    if !user.uid.is_empty() {
        needs.push(asked("authentication.k8s.io", "uids", "", "", &user.uid));
    }
    for (key, values) in &user.extra {
        needs.extend(
            values
                .iter()
                .map(|value| asked("authentication.k8s.io", "userextras", key, "", value)),
        );
    }
    needs
}

/// Namespace and name of a service account, if the user is one.
fn service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
}

/// A service account without groups gets its own; everybody is authenticated or not.
fn complete_groups(user: &mut User) {
    if let Some((namespace, _)) = service_account(&user.name).filter(|_| user.groups.is_empty()) {
        user.groups = vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
        ];
    }
    let last = if user.name == ANONYMOUS {
        UNAUTHENTICATED
    } else {
        AUTHENTICATED
    };
    if !user.is_in(AUTHENTICATED) && !user.is_in(UNAUTHENTICATED) {
        user.groups.push(last.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_a_user_with_groups() {
        let headers = [
            ("Accept", "*/*"),
            ("Impersonate-User", "bob"),
            ("impersonate-group", "dev"),
            ("Impersonate-Uid", "7"),
            ("Impersonate-Extra-Example.com%2fScope", "a"),
        ];
        let found = read(headers).expect("is good").expect("is asked for");
        assert_eq!(found.user.groups, ["dev", "system:authenticated"]);
        assert_eq!(found.user.extra.get("example.com/scope"), Some(&vec!["a".to_owned()]));
        let needs: Vec<String> = found
            .needs
            .iter()
            .map(|needed| needed.forbidden(&User::anonymous(), "").message)
            .collect();
        assert_eq!(
            needs[0],
            "users \"bob\" is forbidden: User \"system:anonymous\" cannot impersonate resource \"users\" in API group \"\" at \
             the cluster scope"
        );
        assert_eq!(needs.len(), 4);
        assert!(needs[3].contains("resource \"userextras/example.com/scope\" in API group \"authentication.k8s.io\""));
    }

    #[test]
    fn as_a_service_account() {
        let found = read([("Impersonate-User", "system:serviceaccount:demo:drv")])
            .expect("is good")
            .expect("is asked for");
        let groups = [
            "system:serviceaccounts",
            "system:serviceaccounts:demo",
            "system:authenticated",
        ];
        assert_eq!(found.user.groups, groups);
        assert!(
            matches!(&found.needs[0], Attributes::Resource(asked) if asked.resource == "serviceaccounts" && asked.namespace == "demo")
        );
    }

    #[test]
    fn not_asked_for_and_not_complete() {
        assert_eq!(read([("Authorization", "x")]), Ok(None));
        assert_eq!(read([("Impersonate-Group", "dev")]).map_err(|status| status.code), Err(400));
        let many = std::iter::repeat_n(("Impersonate-Group", "g"), HEADERS_MAX + 1);
        assert_eq!(read(many).map_err(|status| status.code), Err(400));
        let anonymous = read([("Impersonate-User", ANONYMOUS)])
            .expect("is good")
            .expect("is asked for");
        assert_eq!(anonymous.user.groups, [UNAUTHENTICATED]);
    }
}
