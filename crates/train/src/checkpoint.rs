//! Checkpoints that are whole or not there.
//!
//! A checkpoint is written into a folder aside; the manifest, with a hash of every file, is written last; everything is
//! made durable; then one rename publishes it. Reading checks every hash, so a damaged checkpoint is found out and
//! the one before it is used.

use std::collections::{BTreeMap, BTreeSet};
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

/// The part of a manifest that every layout has.
#[derive(Deserialize)]
struct Layout {
    layout: u32,
}

/// The checkpoints of one run.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    folder: PathBuf,
    /// Steps whose checkpoint was written or verified by this process.
    good: BTreeSet<u64>,
}

/// A checkpoint that was found damaged and passed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damaged {
    /// The checkpoint.
    pub path: PathBuf,
    /// What is wrong with it.
    pub message: String,
}

/// The step that is resumed and what was loaded from its checkpoint; `None` without a usable one.
pub type Resumed<T> = Option<(u64, T)>;

/// Endings of a folder that a kill in the middle of saving leaves behind: the new copy before it is in its place, and the
/// old copy of the same step after it was moved aside.
const LEFT_BEHIND: [&str; 2] = [".partial", ".replaced"];

impl Checkpoints {
    /// The checkpoints in `folder`.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), good: BTreeSet::new() }
    }

    /// Writes the checkpoint of `step`: `fill` puts its files into the folder it is given. An earlier checkpoint of the
    /// same step stays usable until the new one is in its place.
    pub fn write(
        &mut self,
        step: u64,
        fill: impl FnOnce(&Path) -> Result<(), TrainError>,
    ) -> Result<PathBuf, TrainError> {
        let place = self.path(step);
        let [aside, replaced] = LEFT_BEHIND.map(|ending| self.left_behind(step, ending));
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
        if place.exists() {
            clear(&replaced)?;
            publish_folder(&place, &replaced)?;
        }
        publish_folder(&aside, &place)?;
        clear(&replaced)?;
        self.good.insert(step);
        Ok(place)
    }

    /// The steps that have a checkpoint, oldest first.
    pub fn steps(&self) -> Vec<u64> {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut steps: Vec<u64> = entries
            .filter_map(|entry| {
                let name = entry.file_name();
                let name = name.to_str()?.strip_prefix("step-")?;
                let name =
                    LEFT_BEHIND.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
                name.parse().ok()
            })
            .collect();
        steps.sort_unstable();
        steps.dedup();
        steps
    }

    /// The folder of a step's checkpoint.
    pub fn path(&self, step: u64) -> PathBuf {
        self.folder.join(name(step))
    }

    fn left_behind(&self, step: u64, ending: &str) -> PathBuf {
        self.folder.join(format!("{}{ending}", name(step)))
    }

    /// The newest checkpoint that is whole and that `load` accepts, and what was passed over on the way. A checkpoint of
    /// a later release ends the search: what came before it may be long out of date.
    pub fn resume<T>(
        &mut self,
        mut load: impl FnMut(&Path) -> Result<T, TrainError>,
    ) -> Result<(Resumed<T>, Vec<Damaged>), TrainError> {
        let mut damaged = Vec::new();
        for step in self.steps().into_iter().rev() {
            let place = self.path(step);
            // What has no manifest was never whole: a kill or a full disk ended its writing, and nothing is lost with it.
            let copies = LEFT_BEHIND
                .iter()
                .map(|ending| self.left_behind(step, ending))
                .filter(|path| path.join(MANIFEST).exists());
            for path in std::iter::once(place.clone()).filter(|path| path.exists()).chain(copies) {
                let found = match verify(&path) {
                    Err(Flaw::Newer(found)) => {
                        let supported = LAYOUT;
                        return Err(TrainError::NewerCheckpoint { path, found, supported });
                    }
                    Err(Flaw::Damaged(message)) => Err(message),
                    Ok(()) => load(&path).map_err(|error| full_message(&error)),
                };
                match found {
                    Ok(loaded) => {
                        if path != place {
                            clear(&place)?;
                            publish_folder(&path, &place)?;
                        }
                        self.good.insert(step);
                        return Ok((Some((step, loaded)), damaged));
                    }
                    Err(message) => damaged.push(Damaged { path, message }),
                }
            }
        }
        Ok((None, damaged))
    }

    /// The newest checkpoint that is whole.
    pub fn newest_whole(&self) -> Option<PathBuf> {
        let newest_first = self.steps().into_iter().rev();
        newest_first.map(|step| self.path(step)).find(|path| verify(path).is_ok())
    }

    /// Removes all but the newest `keep` of the good ones, and the one of step `best`. A checkpoint that this process has
    /// neither written nor verified is left alone, and so is a folder that cannot be removed.
    pub fn prune(&mut self, keep: usize, best: Option<u64>) {
        let old: Vec<u64> = self.good.iter().rev().skip(keep.max(1)).copied().collect();
        for step in old.into_iter().filter(|step| Some(*step) != best) {
            if std::fs::remove_dir_all(self.path(step)).is_ok() {
                self.good.remove(&step);
            }
        }
    }
}

fn clear(path: &Path) -> Result<(), TrainError> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(TrainError::file("clear", path)(error))
        }
        _ => Ok(()),
    }
}

/// An error with all its causes, on one line.
fn full_message(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn name(step: u64) -> String {
    format!("step-{step:06}")
}

/// What is wrong with a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flaw {
    /// A file is missing or changed.
    Damaged(String),
    /// It has this layout, which a later release wrote.
    Newer(u32),
}

/// Checks every file of a checkpoint against its manifest.
pub fn verify(path: &Path) -> Result<(), Flaw> {
    let damaged =
        |what: &str, error: &dyn std::fmt::Display| Flaw::Damaged(format!("{what}: {error}"));
    let manifest = std::fs::read(path.join(MANIFEST)).map_err(|error| damaged(MANIFEST, &error))?;
    let layout: Layout =
        serde_json::from_slice(&manifest).map_err(|error| damaged(MANIFEST, &error))?;
    if layout.layout > LAYOUT {
        return Err(Flaw::Newer(layout.layout));
    }
    let manifest: Manifest =
        serde_json::from_slice(&manifest).map_err(|error| damaged(MANIFEST, &error))?;
    for (file, expected) in &manifest.files {
        let found = hash(&path.join(file)).map_err(|error| damaged(file, &error))?;
        if found != *expected {
            return Err(Flaw::Damaged(format!("{file} was changed or damaged after it was saved")));
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

    fn save(checkpoints: &mut Checkpoints, step: u64) -> PathBuf {
        let fill = |folder: &Path| {
            std::fs::create_dir(folder.join("model")).map_err(TrainError::file("make", folder))?;
            write_durably(&folder.join("model/weights"), &step.to_le_bytes())?;
            write_durably(&folder.join("state.json"), b"{}")
        };
        checkpoints.write(step, fill).expect("it can be written")
    }

    /// The step a fresh process would resume, and how many checkpoints it passes over.
    fn resumed(folder: &Path) -> (Option<u64>, usize) {
        let mut checkpoints = Checkpoints::new(folder);
        let (found, damaged) = checkpoints.resume(|_| Ok(())).expect("it can be searched");
        (found.map(|(step, ())| step), damaged.len())
    }

    #[test]
    fn every_flipped_byte_is_found_and_the_one_before_is_used() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut checkpoints = Checkpoints::new(folder.path());
        save(&mut checkpoints, 10);
        let newest = save(&mut checkpoints, 20);
        assert_eq!(resumed(folder.path()), (Some(20), 0));
        for file in ["model/weights", "state.json", MANIFEST] {
            let path = newest.join(file);
            let good = std::fs::read(&path).expect("it is there");
            for index in 0..good.len() {
                let mut bad = good.clone();
                bad[index] ^= 0x10;
                std::fs::write(&path, &bad).expect("it can be damaged");
                let mut checkpoints = Checkpoints::new(folder.path());
                match checkpoints.resume(|_| Ok(())) {
                    // A damaged manifest may still parse; then its hashes or its layout no longer fit.
                    Ok((Some((20, ())), _)) => {
                        assert_eq!(file, MANIFEST, "byte {index} of {file} went unnoticed");
                    }
                    Ok((found, damaged)) => {
                        assert_eq!(found.map(|(step, ())| step), Some(10));
                        assert_eq!(damaged[0].path, newest);
                    }
                    Err(error) => {
                        assert!(matches!(error, TrainError::NewerCheckpoint { .. }), "{error}");
                    }
                }
            }
            std::fs::write(&path, &good).expect("it can be mended");
        }
        std::fs::remove_file(newest.join("state.json")).expect("it can be removed");
        assert_eq!(resumed(folder.path()), (Some(10), 1));
    }

    #[test]
    fn a_checkpoint_of_a_later_release_is_refused_by_name() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut checkpoints = Checkpoints::new(folder.path());
        save(&mut checkpoints, 10);
        let newest = save(&mut checkpoints, 20);
        std::fs::write(newest.join(MANIFEST), br#"{"layout": 9, "shards": []}"#).expect("written");
        let refused = Checkpoints::new(folder.path()).resume(|_| Ok(()));
        assert!(matches!(refused, Err(TrainError::NewerCheckpoint { found: 9, .. })));
    }

    #[test]
    fn a_checkpoint_that_does_not_load_is_passed_over() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut checkpoints = Checkpoints::new(folder.path());
        save(&mut checkpoints, 10);
        let newest = save(&mut checkpoints, 20);
        let load = |path: &Path| {
            if path == newest {
                let message = "a weight is not finite".to_owned();
                return Err(TrainError::Checkpoint { path: path.to_owned(), message });
            }
            Ok(())
        };
        let (found, damaged) = checkpoints.resume(load).expect("it can be searched");
        assert_eq!((found, damaged.len()), (Some((10, ())), 1));
        assert!(damaged[0].message.contains("not finite"));
    }

    #[test]
    fn a_half_written_checkpoint_is_never_chosen() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut checkpoints = Checkpoints::new(folder.path());
        save(&mut checkpoints, 1);
        let failed = checkpoints.write(2, |folder| {
            write_durably(&folder.join("state.json"), b"half")?;
            Err(TrainError::Folder {
                path: folder.to_owned(),
                message: "the disk is full".to_owned(),
            })
        });
        assert!(failed.is_err());
        assert_eq!(resumed(folder.path()), (Some(1), 0), "it never was a checkpoint");
        save(&mut checkpoints, 2);
        assert_eq!(resumed(folder.path()), (Some(2), 0));
    }

    #[test]
    fn a_kill_between_the_two_renames_of_a_second_save_loses_nothing() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut checkpoints = Checkpoints::new(folder.path());
        let place = save(&mut checkpoints, 7);
        let replaced = folder.path().join("step-000007.replaced");
        std::fs::rename(&place, &replaced).expect("it can be moved");
        assert_eq!(resumed(folder.path()), (Some(7), 0), "the old copy is used");
        assert!(place.exists() && !replaced.exists(), "and put back in its place");
        std::fs::rename(&place, folder.path().join("step-000007.partial")).expect("moved");
        assert_eq!(resumed(folder.path()), (Some(7), 0), "so is a finished new copy");
    }

    #[test]
    fn pruning_keeps_the_newest_and_the_best() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut checkpoints = Checkpoints::new(folder.path());
        for step in [5, 10, 15, 20] {
            save(&mut checkpoints, step);
        }
        checkpoints.prune(2, Some(5));
        assert_eq!(checkpoints.steps(), [5, 15, 20]);
        checkpoints.prune(0, None);
        assert_eq!(checkpoints.steps(), [20]);
    }

    #[test]
    fn damaged_checkpoints_do_not_crowd_out_good_ones() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut earlier = Checkpoints::new(folder.path());
        for step in [10, 20, 30] {
            let path = save(&mut earlier, step);
            if step > 10 {
                std::fs::write(path.join("state.json"), b"{ }").expect("it can be damaged");
            }
        }
        let mut checkpoints = Checkpoints::new(folder.path());
        let (found, damaged) = checkpoints.resume(|_| Ok(())).expect("it can be searched");
        assert_eq!((found, damaged.len()), (Some((10, ())), 2));
        save(&mut checkpoints, 15);
        checkpoints.prune(1, None);
        assert_eq!(resumed(folder.path()), (Some(15), 2), "the one just written is there");
    }
}
