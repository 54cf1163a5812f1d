//! The mechanics of a Kubernetes REST API, without I/O and without DRA: schemas and bodies, requests, selectors, patches, answers.

pub mod object;
pub mod resources;
pub mod selectors;
pub mod status;
