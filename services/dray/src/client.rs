//! The client's commands: each is one file, and all speak gRPC to ingest, except `audit` and `migrate`, which ask the
//! database, and `ready`, which asks a service's health port.

pub(crate) mod apply;
pub(crate) mod audit;
pub(crate) mod columns;
pub(crate) mod connect;
pub(crate) mod delete;
pub(crate) mod describe;
pub(crate) mod events;
pub(crate) mod failure;
pub(crate) mod fetch;
pub(crate) mod gates;
pub(crate) mod get;
pub(crate) mod kind;
pub(crate) mod migrate;
pub(crate) mod progress;
pub(crate) mod ready;
pub(crate) mod submit;
pub(crate) mod table;
pub(crate) mod wait;
pub(crate) mod yaml;
