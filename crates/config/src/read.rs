//! Reading configuration files: regular files of a sane size, and not too many of them, so that a pipe, a device or
//! includes that double end in an error instead of a stall.

use std::io::Read;
use std::path::Path;

use crate::error::ConfigError;

/// The largest file; real ones have a few kilobytes.
pub(crate) const LARGEST: u64 = 1 << 20;
/// The most files one configuration is made of, each counted as often as it is included.
pub(crate) const MOST_FILES: usize = 64;

/// The text of a configuration file.
pub(crate) fn text(path: &Path) -> Result<String, ConfigError> {
    let failed = |source| ConfigError::Read { path: path.to_owned(), source };
    let too_large = || ConfigError::TooLarge { path: path.to_owned(), limit: LARGEST };
    // Asked before opening: opening a pipe waits for a writer.
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() {
        return Err(ConfigError::NotAFile { path: path.to_owned() });
    }
    if metadata.len() > LARGEST {
        return Err(too_large());
    }
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    // The file may have grown since it was asked.
    file.take(LARGEST + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > LARGEST { Err(too_large()) } else { Ok(text) }
}
