//! The mechanics of a Kubernetes REST API, without I/O and without DRA: schemas and bodies, requests, selectors, patches, answers.

pub mod apply;
pub mod authz;
pub mod body;
pub mod discovery;
pub mod faults;
pub mod list;
pub mod negotiate;
pub mod object;
pub mod openapi;
pub mod patch;
pub mod protobuf;
pub mod request;
pub mod resources;
pub mod rules;
pub mod schema;
pub mod selectors;
pub mod status;
pub mod table;
pub mod watch;
