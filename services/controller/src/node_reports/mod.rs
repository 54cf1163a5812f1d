//! What agents report: recorded first, answered then, and devices are free once their node has let go.

mod decide;
mod run;

pub(crate) use run::{run, sweep};
