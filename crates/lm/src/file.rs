//! Opening files that others wrote: regular files only, and of a size that was checked.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::error::LmError;

/// Opens a regular file and gives its length. Pipes and devices are refused before they are opened: opening a pipe waits
/// for a writer, and a device has no end.
pub(crate) fn open_regular(path: &Path) -> Result<(File, u64), LmError> {
    let metadata = std::fs::metadata(path).map_err(LmError::io(path, "open it"))?;
    if !metadata.is_file() {
        return Err(LmError::malformed(path, "not a regular file; a model's parts are files"));
    }
    let file = File::open(path).map_err(LmError::io(path, "open it"))?;
    Ok((file, metadata.len()))
}

/// Reads a regular file of at most `limit` bytes.
pub(crate) fn read_limited(path: &Path, limit: u64) -> Result<Vec<u8>, LmError> {
    let (file, length) = open_regular(path)?;
    let mut bytes = Vec::new();
    if length <= limit {
        // The file may have grown since it was asked.
        file.take(limit + 1).read_to_end(&mut bytes).map_err(LmError::io(path, "read it"))?;
    }
    let length = length.max(bytes.len() as u64);
    if length > limit {
        return Err(LmError::malformed(
            path,
            format!("{length} bytes are too many for such a file; at most {limit} are read"),
        ));
    }
    Ok(bytes)
}
