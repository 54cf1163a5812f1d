//! How deep and how rich a body may be, found out before it is decoded: one pass over its bytes, no memory.
//!
//! Decoding makes an object of some hundred bytes out of each `{}`, and raw parts such as opaque parameters are kept
//! without being looked into. So depth and number are limited here, for all of a body alike; its bytes are limited by
//! whoever reads it from a connection.

/// Objects and lists within each other. Far more than any object needs; less than what any reader of raw parts takes.
pub const DEPTH_MAX: usize = 1000;

/// Objects and lists in all. The largest valid object has about 40,000.
pub const CONTAINERS_MAX: usize = 100_000;

/// A body that is not worth decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExtentError {
    #[error("values are nested more than {DEPTH_MAX} levels deep")]
    TooDeep,
    #[error("there are more than {CONTAINERS_MAX} objects and lists")]
    TooMany,
}

/// Checks the depth and the number of objects and lists of a JSON text. A text that is not JSON passes or not.
pub(crate) fn check(body: &[u8]) -> Result<(), ExtentError> {
    let (mut depth, mut containers) = (0_usize, 0_usize);
    let (mut in_string, mut escaped) = (false, false);
    for byte in body {
        if in_string {
            in_string = escaped || *byte != b'"';
            escaped = !escaped && *byte == b'\\';
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => {
                depth += 1;
                containers += 1;
                if depth > DEPTH_MAX {
                    return Err(ExtentError::TooDeep);
                }
                if containers > CONTAINERS_MAX {
                    return Err(ExtentError::TooMany);
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_text(text: &str, wanted: Result<(), ExtentError>) {
        assert_eq!(check(text.as_bytes()), wanted, "{text:.40}");
    }

    #[test]
    fn depth_and_number_are_limited() {
        check_text(&"[".repeat(DEPTH_MAX), Ok(()));
        check_text(&"[".repeat(DEPTH_MAX + 1), Err(ExtentError::TooDeep));
        check_text(&"{}".repeat(CONTAINERS_MAX), Ok(()));
        check_text(&"[]".repeat(CONTAINERS_MAX + 1), Err(ExtentError::TooMany));
    }

    #[test]
    fn what_is_in_strings_is_text() {
        let brackets = "[{".repeat(CONTAINERS_MAX);
        check_text(&format!(r#"["a\"{brackets}", "\\"]"#), Ok(()));
        check_text(&format!(r#"["a\\"{brackets}]"#), Err(ExtentError::TooDeep));
    }
}
