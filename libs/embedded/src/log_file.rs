//! A server's log file: its end is what we show when the server does not start, and it does not grow for ever.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// A log larger than this is set aside as `<name>.old` before the next start.
const SIZE_MAX_BYTES: u64 = 64 << 20;

/// How much of the end is shown in errors.
const TAIL_BYTES: u64 = 2_000;

/// Where the log ends now; what a start writes comes after it.
pub(crate) fn end(path: &Path) -> u64 {
    std::fs::metadata(path).map(|meta| meta.len()).unwrap_or(0)
}

/// The end of what was written after `from`, at most [`TAIL_BYTES`]; empty when there is nothing to read.
pub(crate) fn tail(path: &Path, from: u64) -> String {
    let start = from.max(end(path).saturating_sub(TAIL_BYTES));
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|mut file| {
        file.seek(SeekFrom::Start(start))?;
        file.take(TAIL_BYTES).read_to_end(&mut bytes)
    });
    match read {
        Ok(_) => String::from_utf8_lossy(&bytes).trim().to_owned(),
        Err(_) => String::new(),
    }
}

/// Sets a log aside that has grown too large.
pub(crate) fn set_aside_if_large(path: &Path) -> std::io::Result<()> {
    if end(path) > SIZE_MAX_BYTES {
        std::fs::rename(path, path.with_extension("log.old"))
    } else {
        Ok(())
    }
}
