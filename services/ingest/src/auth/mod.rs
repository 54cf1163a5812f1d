//! Who calls, and what they may do.

pub(crate) mod credentials;
pub(crate) mod roles;
