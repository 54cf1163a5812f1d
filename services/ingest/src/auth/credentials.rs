//! From what a caller shows to who it is: a client certificate, a token from a file, a token signed by an issuer.
//!
//! Tokens are kept as digests, so that they cannot leak from memory dumps or by the time that a comparison takes. They never appear
//! in messages.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use apiserver::authz::{AUTHENTICATED, User};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::roles::Binding;

/// The file that says who may call: YAML with `tokens` and `bindings`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct AccessFile {
    #[serde(default)]
    tokens: Vec<TokenEntry>,
    #[serde(default)]
    bindings: Vec<Binding>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenEntry {
    token: String,
    user: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    groups: Vec<String>,
    /// What else is known of the user.
    #[serde(default)]
    extra: BTreeMap<String, Vec<String>>,
}

impl std::fmt::Debug for TokenEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a token of {:?}", self.user)
    }
}

impl TokenEntry {
    fn user(self) -> User {
        let Self {
            user: name,
            uid,
            groups,
            extra,
            ..
        } = self;
        authenticated(User {
            name,
            uid,
            groups,
            extra,
        })
    }
}

/// Marks a user who has shown a credential.
fn authenticated(mut user: User) -> User {
    if !user.is_in(AUTHENTICATED) {
        user.groups.push(AUTHENTICATED.to_owned());
    }
    user
}

/// Why the access file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    #[error("{path} cannot be read")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    // The source may quote a line of the file, and with it a token: only the place is told.
    #[error("{path} is no access file: see line {line}")]
    Form { path: PathBuf, line: usize },
    #[error("{path}: the token of user {user:?} is shorter than {least} characters")]
    ShortToken { path: PathBuf, user: String, least: usize },
}

/// Shorter tokens can be guessed.
const TOKEN_LENGTH_MIN: usize = 16;

/// Who is who, and who may do what.
#[derive(Debug, Default)]
pub(crate) struct Access {
    by_token: HashMap<[u8; 32], User>,
    pub(crate) bindings: Vec<Binding>,
}

/// The caller showed something that is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadCredentials;

impl Access {
    /// Reads the file.
    pub(crate) fn read(path: &Path) -> Result<Self, AccessError> {
        let text = std::fs::read_to_string(path).map_err(|source| AccessError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text, path)
    }

    fn parse(text: &str, path: &Path) -> Result<Self, AccessError> {
        let file: AccessFile = serde_yaml_ng::from_str(text).map_err(|error| AccessError::Form {
            path: path.to_owned(),
            line: error.location().map_or(1, |location| location.line()),
        })?;
        let short = file.tokens.iter().find(|entry| entry.token.len() < TOKEN_LENGTH_MIN);
        if let Some(entry) = short {
            return Err(AccessError::ShortToken {
                path: path.to_owned(),
                user: entry.user.clone(),
                least: TOKEN_LENGTH_MIN,
            });
        }
        let tokens = file.tokens.into_iter();
        Ok(Self {
            by_token: tokens.map(|entry| (digest(&entry.token), entry.user())).collect(),
            bindings: file.bindings,
        })
    }

    /// Who the caller is. A token counts before a certificate; without either, nobody in particular.
    ///
    /// - `authorization`: the header. `certificate`: DER, checked already.
    pub(crate) fn who(&self, authorization: Option<&str>, certificate: Option<&[u8]>) -> Result<User, BadCredentials> {
        if let Some(authorization) = authorization {
            let (scheme, token) = authorization.trim().split_once(' ').ok_or(BadCredentials)?;
            if !scheme.eq_ignore_ascii_case("bearer") {
                return Err(BadCredentials);
            }
            return self.by_token.get(&digest(token.trim())).cloned().ok_or(BadCredentials);
        }
        match certificate {
            Some(certificate) => of_certificate(certificate).ok_or(BadCredentials),
            None => Ok(User::anonymous()),
        }
    }
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// User = common name, groups = organizations, as Kubernetes reads certificates.
fn of_certificate(der: &[u8]) -> Option<User> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?;
    let groups = subject.iter_organization().filter_map(|group| group.as_str().ok());
    Some(authenticated(User {
        name: name.to_owned(),
        groups: groups.map(str::to_owned).collect(),
        ..User::default()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "
tokens:
  - token: 0123456789abcdef
    user: ann
    groups: [team-a]
    extra: {authentication.kubernetes.io/node-name: [n1]}
bindings:
  - {role: submitter, groups: [team-a], namespaces: [a]}
";

    fn access(text: &str) -> Result<Access, AccessError> {
        Access::parse(text, Path::new("access.yaml"))
    }

    #[test]
    fn tokens_tell_who_calls() {
        let access = access(FILE).expect("it is well-formed");
        let ann = access.who(Some("Bearer 0123456789abcdef"), None).expect("it is known");
        assert_eq!(ann.name, "ann");
        assert_eq!(ann.extra["authentication.kubernetes.io/node-name"], ["n1"]);
        assert_eq!(ann.groups, ["team-a", "system:authenticated"]);
        for wrong in [
            "Bearer 0123456789abcdeF",
            "Basic 0123456789abcdef",
            "0123456789abcdef",
            "Bearer ",
        ] {
            assert_eq!(access.who(Some(wrong), None), Err(BadCredentials), "{wrong}");
        }
        assert_eq!(access.who(None, None), Ok(User::anonymous()));
        assert_eq!(access.who(None, Some(b"no certificate")), Err(BadCredentials));
    }

    #[test]
    fn faults_of_the_file_never_show_a_token() {
        let faults = [
            "tokens: [{token: secret-secret-secret, user: a, groups: x}]",
            "tokens: [{token: short, user: a}]",
            "bindings: [{role: king}]",
        ];
        for text in faults {
            let error = access(text).expect_err(text);
            let told = format!("{error} {error:?}");
            assert!(!told.contains("secret-secret") && !told.contains("short,"), "{told}");
        }
    }
}
