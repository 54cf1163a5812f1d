//! A free TCP port on the loopback address.

use std::net::{Ipv4Addr, TcpListener};

use crate::error::EmbeddedError;

/// The port to use: the wished one, or a free one for `None` and 0.
///
/// Somebody may take a free port before the server does; callers try again with another one.
pub(crate) fn choose(wished: Option<u16>) -> Result<u16, EmbeddedError> {
    if let Some(port) = fixed(wished) {
        return Ok(port);
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(EmbeddedError::io("find a free port"))?;
    Ok(listener.local_addr().map_err(EmbeddedError::io("find a free port"))?.port())
}

/// The port that the caller insists on, if any.
pub(crate) fn fixed(wished: Option<u16>) -> Option<u16> {
    wished.filter(|port| *port != 0)
}
