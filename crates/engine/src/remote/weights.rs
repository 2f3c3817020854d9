//! Published weights on disk: checked before any server reads them, and only the last ones kept.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::error::EngineError;

/// Versions that stay on disk: the one in use and the one before.
const KEPT: usize = 2;

/// What the worker says it wrote.
#[derive(Debug, Deserialize)]
pub(super) struct Published {
    pub(super) version: u64,
    pub(super) files: Vec<WeightFile>,
}

/// One file of a published model.
#[derive(Debug, Deserialize)]
pub(super) struct WeightFile {
    name: String,
    bytes: u64,
    sha256: String,
}

/// The folder of a version.
pub(super) fn folder(weights: &Path, version: u64) -> PathBuf {
    weights.join(format!("v{version:06}"))
}

/// Refuses a folder that is not what the worker wrote: a server that loads one is ruined.
pub(super) fn verify(folder: &Path, published: &Published) -> Result<(), EngineError> {
    for file in &published.files {
        let path = folder.join(&file.name);
        let mut found = std::fs::File::open(&path).map_err(|error| {
            let advice = "learner.weights must be on storage that this machine, the worker and the servers share";
            EngineError::unusable(&path, format!("{error}; {advice}"))
        })?;
        let bytes = found.metadata().map_err(EngineError::state(&path))?.len();
        if bytes != file.bytes {
            let message = format!("it has {bytes} bytes, and the worker wrote {}", file.bytes);
            return Err(EngineError::unusable(&path, message));
        }
        let mut hasher = Sha256::new();
        let mut block = vec![0; 1 << 20];
        loop {
            let read = found.read(&mut block).map_err(EngineError::state(&path))?;
            if read == 0 {
                break;
            }
            hasher.update(&block[..read]);
        }
        if hex(&hasher.finalize()) != file.sha256 {
            return Err(EngineError::unusable(
                &path,
                "its content is not what the worker wrote".to_owned(),
            ));
        }
    }
    let named = |name: &str| published.files.iter().any(|file| file.name.ends_with(name));
    if named("config.json") && named(".safetensors") {
        return Ok(());
    }
    Err(EngineError::unusable(folder, "the worker wrote no model into it".to_owned()))
}

fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('?');
    bytes.iter().flat_map(|&byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Removes versions that are not needed: all but the newest ones up to `version`. What is left behind by a failure is not
/// worth stopping for.
pub(super) fn prune(weights: &Path, version: u64) {
    let entries = std::fs::read_dir(weights).into_iter().flatten().flatten();
    let mut found: Vec<(u64, PathBuf)> = entries
        .filter_map(|entry| {
            let name = entry.file_name();
            let number = name.to_str()?.strip_prefix('v')?.parse().ok()?;
            Some((number, entry.path()))
        })
        .collect();
    found.sort_unstable();
    // Versions above this one belong to steps that are done again.
    let (old, new): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|(number, _)| *number <= version);
    let spare = old.len().saturating_sub(KEPT);
    for (_, path) in old.into_iter().take(spare).chain(new) {
        let _ = std::fs::remove_dir_all(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_weights_are_refused_and_old_ones_go() {
        let weights = tempfile::tempdir().expect("a temporary folder");
        for version in [3, 4, 5, 9] {
            std::fs::create_dir(folder(weights.path(), version)).expect("made");
        }
        prune(weights.path(), 5);
        let left = |version| folder(weights.path(), version).exists();
        assert_eq!([3, 4, 5, 9].map(left), [false, true, true, false]);
        let folder = folder(weights.path(), 5);
        std::fs::write(folder.join("config.json"), b"{}").expect("written");
        std::fs::write(folder.join("model.safetensors"), b"abc").expect("written");
        let files = serde_json::json!({"version": 5, "files": [
            {"name": "config.json", "bytes": 2,
             "sha256": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"},
            {"name": "model.safetensors", "bytes": 3,
             "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        ]});
        let published: Published = serde_json::from_value(files).expect("as the worker answers");
        verify(&folder, &published).expect("as it was written");
        std::fs::write(folder.join("model.safetensors"), b"abd").expect("written");
        let error = verify(&folder, &published).expect_err("changed").to_string();
        assert!(error.contains("not what the worker wrote"), "{error}");
        std::fs::remove_file(folder.join("model.safetensors")).expect("removed");
        let error = verify(&folder, &published).expect_err("gone").to_string();
        assert!(error.contains("learner.weights"), "{error}");
    }
}
