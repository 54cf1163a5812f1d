//! Running one service: its settings from defaults, file, environment and flags, its health, and its end.
//!
//! A service's crate knows nothing of files and flags: each file below turns settings into that crate's `Config`, and names
//! the checks of `/readyz`.

mod allocator;
mod args;
mod controller;
mod ingest;
mod node_agent;
mod sim_driver;

pub(crate) use allocator::{AllocatorArgs, run as run_allocator};
pub(crate) use args::{DatabaseServiceArgs, stop_with_stdin};
pub(crate) use controller::run as run_controller;
pub(crate) use ingest::{IngestArgs, run as run_ingest};
pub(crate) use node_agent::{NodeAgentArgs, run as run_node_agent};
pub(crate) use sim_driver::{SimDriverArgs, run as run_sim_driver};
