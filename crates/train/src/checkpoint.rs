//! Checkpoints that are whole or not there.
//!
//! A checkpoint is written into a folder aside; the manifest, with a hash of every file, is written last; everything is
//! made durable; then one rename publishes it. Reading checks every hash, so a damaged checkpoint is found out and
//! the one before it is used.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::TrainError;
use crate::files::{publish_folder, write_durably};

const MANIFEST: &str = "manifest.json";
const LAYOUT: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    layout: u32,
    step: u64,
    /// File name inside the checkpoint to blake3 hash.
    files: BTreeMap<String, String>,
}

/// The checkpoints of one run.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    folder: PathBuf,
}

/// A checkpoint that was found damaged and passed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damaged {
    /// The checkpoint.
    pub path: PathBuf,
    /// What is wrong with it.
    pub message: String,
}

impl Checkpoints {
    /// The checkpoints in `folder`.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Writes the checkpoint of `step`: `fill` puts its files into the folder it is given.
    pub fn write(
        &self,
        step: u64,
        fill: impl FnOnce(&Path) -> Result<(), TrainError>,
    ) -> Result<PathBuf, TrainError> {
        let place = self.folder.join(name(step));
        let aside = self.folder.join(format!("{}.partial", name(step)));
        let clear = |path: &Path| match std::fs::remove_dir_all(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(TrainError::file("clear", path)(error))
            }
            _ => Ok(()),
        };
        clear(&aside)?;
        std::fs::create_dir_all(&aside).map_err(TrainError::file("make", &aside))?;
        fill(&aside)?;
        let mut files = BTreeMap::new();
        hash_files(&aside, "", &mut files)?;
        let manifest = Manifest { layout: LAYOUT, step, files };
        let path = aside.join(MANIFEST);
        let json = serde_json::to_vec_pretty(&manifest).map_err(|error| {
            TrainError::Checkpoint { path: path.clone(), message: error.to_string() }
        })?;
        write_durably(&path, &json)?;
        // The same step may have been saved before, by an attempt that was resumed from further back.
        clear(&place)?;
        publish_folder(&aside, &place)?;
        Ok(place)
    }

    /// The steps that have a checkpoint, oldest first.
    pub fn steps(&self) -> Vec<u64> {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut steps: Vec<u64> = entries
            .filter_map(|entry| entry.file_name().to_str()?.strip_prefix("step-")?.parse().ok())
            .collect();
        steps.sort_unstable();
        steps
    }

    /// The folder of a step's checkpoint.
    pub fn path(&self, step: u64) -> PathBuf {
        self.folder.join(name(step))
    }

    /// The newest checkpoint that is whole, and the damaged ones passed over on the way.
    pub fn latest(&self) -> (Option<(u64, PathBuf)>, Vec<Damaged>) {
        let mut damaged = Vec::new();
        for step in self.steps().into_iter().rev() {
            let path = self.path(step);
            match verify(&path) {
                Ok(()) => return (Some((step, path)), damaged),
                Err(message) => damaged.push(Damaged { path, message }),
            }
        }
        (None, damaged)
    }

    /// Removes all but the newest `keep`. A folder that cannot be removed does not stop the run.
    pub fn prune(&self, keep: usize) {
        let steps = self.steps();
        for step in steps.iter().take(steps.len().saturating_sub(keep.max(1))) {
            let _ = std::fs::remove_dir_all(self.path(*step));
        }
    }
}

fn name(step: u64) -> String {
    format!("step-{step:06}")
}

/// Checks every file of a checkpoint against its manifest.
pub fn verify(path: &Path) -> Result<(), String> {
    let manifest =
        std::fs::read(path.join(MANIFEST)).map_err(|error| format!("{MANIFEST}: {error}"))?;
    let manifest: Manifest =
        serde_json::from_slice(&manifest).map_err(|error| format!("{MANIFEST}: {error}"))?;
    if manifest.layout > LAYOUT {
        return Err(format!(
            "it has layout {}, this build reads up to {LAYOUT}; use a newer lens",
            manifest.layout
        ));
    }
    for (file, expected) in &manifest.files {
        let found = hash(&path.join(file)).map_err(|error| format!("{file}: {error}"))?;
        if found != *expected {
            return Err(format!("{file} was changed or damaged after it was saved"));
        }
    }
    Ok(())
}

fn hash(path: &Path) -> std::io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    let mut file = std::fs::File::open(path)?;
    std::io::copy(&mut file, &mut hasher)?;
    Ok(hasher.finalize().to_hex().to_string())
}

fn hash_files(
    folder: &Path,
    prefix: &str,
    files: &mut BTreeMap<String, String>,
) -> Result<(), TrainError> {
    for entry in std::fs::read_dir(folder).map_err(TrainError::file("read", folder))? {
        let entry = entry.map_err(TrainError::file("read", folder))?;
        let path = entry.path();
        let file = entry.file_name();
        let file = file.to_str().ok_or_else(|| TrainError::Checkpoint {
            path: path.clone(),
            message: "its name is not UTF-8".to_owned(),
        })?;
        if path.is_dir() {
            hash_files(&path, &format!("{prefix}{file}/"), files)?;
        } else {
            let hash = hash(&path).map_err(TrainError::file("read", &path))?;
            files.insert(format!("{prefix}{file}"), hash);
        }
    }
    Ok(())
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the tests damage files on purpose")]
mod tests {
    use super::*;

    fn save(checkpoints: &Checkpoints, step: u64) -> PathBuf {
        let fill = |folder: &Path| {
            std::fs::create_dir(folder.join("model")).map_err(TrainError::file("make", folder))?;
            write_durably(&folder.join("model/weights"), &step.to_le_bytes())?;
            write_durably(&folder.join("state.json"), b"{}")
        };
        checkpoints.write(step, fill).expect("it can be written")
    }

    #[test]
    fn every_flipped_byte_is_found_and_the_one_before_is_used() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let checkpoints = Checkpoints::new(folder.path());
        save(&checkpoints, 10);
        let newest = save(&checkpoints, 20);
        assert_eq!(checkpoints.latest().0, Some((20, newest.clone())));
        for file in ["model/weights", "state.json", MANIFEST] {
            let path = newest.join(file);
            let good = std::fs::read(&path).expect("it is there");
            for place in 0..good.len() {
                let mut bad = good.clone();
                bad[place] ^= 0x10;
                std::fs::write(&path, &bad).expect("it can be damaged");
                let (found, damaged) = checkpoints.latest();
                // A damaged manifest may still parse; then its hashes or its layout no longer fit.
                if let Some((step, _)) = found
                    && step == 20
                {
                    assert_eq!(file, MANIFEST, "byte {place} of {file} went unnoticed");
                } else {
                    assert_eq!(damaged.len(), 1);
                    assert_eq!(damaged[0].path, newest);
                }
            }
            std::fs::write(&path, &good).expect("it can be mended");
        }
        std::fs::remove_file(newest.join("state.json")).expect("it can be removed");
        assert_eq!(checkpoints.latest().0, Some((10, checkpoints.path(10))));
    }

    #[test]
    fn a_half_written_checkpoint_is_never_chosen() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let checkpoints = Checkpoints::new(folder.path());
        save(&checkpoints, 1);
        let failed = checkpoints.write(2, |folder| {
            write_durably(&folder.join("state.json"), b"half")?;
            Err(TrainError::Folder {
                path: folder.to_owned(),
                message: "the disk is full".to_owned(),
            })
        });
        assert!(failed.is_err());
        assert_eq!(checkpoints.latest().0, Some((1, checkpoints.path(1))));
        save(&checkpoints, 2);
        assert_eq!(checkpoints.steps(), [1, 2]);
    }

    #[test]
    fn pruning_keeps_the_newest() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let checkpoints = Checkpoints::new(folder.path());
        for step in [5, 10, 15, 20] {
            save(&checkpoints, step);
        }
        checkpoints.prune(2);
        assert_eq!(checkpoints.steps(), [15, 20]);
        checkpoints.prune(0);
        assert_eq!(checkpoints.steps(), [20]);
    }
}
