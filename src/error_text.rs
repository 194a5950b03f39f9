//! What texts of errors share.

use std::error::Error;
use std::fmt;

/// Shows an error as `Display` does, and behind it the sources that it does not repeat.
pub(crate) fn debug(error: &dyn Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut said = error.to_string();
    f.write_str(&said)?;
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        // Most messages end in what their source says.
        if !said.contains(&text) {
            write!(f, "\ncaused by: {text}")?;
            said.push_str(&text);
        }
        source = cause.source();
    }
    Ok(())
}

/// With its sign, in hexadecimal.
pub(crate) fn signed_hex(value: i64) -> String {
    format!("{}{:#x}", if value < 0 { "-" } else { "" }, value.unsigned_abs())
}

/// What the last in a chain of errors says: wrappers say less.
pub(crate) fn innermost(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}
