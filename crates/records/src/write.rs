//! Writing lines: one record, one line, the same bytes every time.

use std::io::Write;

use serde::Serialize;

use crate::EpisodeLine;

/// A record that could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The record cannot be expressed as JSON.
    #[error("a record cannot be written as JSON")]
    Json(#[source] serde_json::Error),
    /// Compression failed.
    #[error("episodes cannot be compressed")]
    Pack(#[source] std::io::Error),
}

/// Level 3: level 9 saves a tenth of the bytes for four times the time.
const LEVEL: i32 = 3;

/// A record as one line, newline included. JSON escapes newlines inside texts, so there is exactly one.
pub fn line(record: &impl Serialize) -> Result<Vec<u8>, WriteError> {
    let mut bytes = serde_json::to_vec(record).map_err(WriteError::Json)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// The content of an episode file: the lines in order, each compressed on its own, so that one can be read without the
/// others, with a checksum so that damage is noticed.
pub fn packed_episodes<'a>(
    episodes: impl IntoIterator<Item = &'a EpisodeLine>,
) -> Result<Vec<u8>, WriteError> {
    let mut packed = Vec::new();
    for episode in episodes {
        let mut packer = zstd::Encoder::new(&mut packed, LEVEL).map_err(WriteError::Pack)?;
        packer.include_checksum(true).map_err(WriteError::Pack)?;
        packer.write_all(&line(episode)?).map_err(WriteError::Pack)?;
        packer.finish().map_err(WriteError::Pack)?;
    }
    Ok(packed)
}
