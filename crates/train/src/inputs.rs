//! What a run is made from, by content: a resumed run must meet the same models, data and references.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use lens_config::Config;
use serde::{Deserialize, Serialize};

use crate::error::TrainError;
use crate::files::write_atomically;
use crate::references::EXPERT_PLANS;

const FILE: &str = "inputs.json";

/// Files up to this size are hashed whole; of larger ones, evenly spaced blocks.
const WHOLE: u64 = 256 << 20;
const BLOCK: usize = 1 << 20;
const BLOCKS: u64 = 64;

/// Content hashes by what they are of: `student`, `teacher`, `data`, `prompt`, `references`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Inputs {
    /// How hashes are made; another way gives other hashes.
    scheme: String,
    hashes: BTreeMap<String, String>,
}

impl Inputs {
    /// Hashes what a configuration names. What is built in or on another machine has no file to hash.
    pub(crate) fn of(config: &Config) -> Result<Self, TrainError> {
        let references = &config.task.references;
        let collected = !references.is_empty() && references != EXPERT_PLANS;
        let named: [(&str, Option<PathBuf>); 5] = [
            ("student", Some(config.student.path.clone())),
            ("teacher", Some(config.teacher.path.clone())),
            ("data", Some(config.task.data.clone())),
            ("prompt", Some(config.prompt.template.clone())),
            ("references", collected.then(|| PathBuf::from(references))),
        ];
        let mut hashes = BTreeMap::new();
        for (name, path) in named {
            let path = path.filter(|path| !path.as_os_str().is_empty() && path.exists());
            if let Some(path) = path {
                hashes.insert(name.to_owned(), hash_path(&path)?);
            }
        }
        Ok(Self { scheme: "blake3, 64 blocks of 1 MiB above 256 MiB".to_owned(), hashes })
    }

    /// Writes them into a run's folder.
    pub(crate) fn write(&self, folder: &Path) -> Result<(), TrainError> {
        let path = folder.join(FILE);
        let json = serde_json::to_vec_pretty(self).map_err(|error| TrainError::Checkpoint {
            path: path.clone(),
            message: error.to_string(),
        })?;
        write_atomically(&path, &json)
    }

    /// Refuses inputs that are not the ones the run began with. A run of a release that recorded none is not refused.
    pub(crate) fn check(&self, folder: &Path) -> Result<(), TrainError> {
        let Ok(json) = std::fs::read(folder.join(FILE)) else { return Ok(()) };
        let Ok(began) = serde_json::from_slice::<Self>(&json) else { return Ok(()) };
        if began.scheme != self.scheme {
            return Ok(());
        }
        for (what, hash) in &began.hashes {
            let difference = match self.hashes.get(what) {
                Some(found) if found == hash => continue,
                Some(_) => "its content has changed".to_owned(),
                None => "it is gone".to_owned(),
            };
            let (path, what) = (folder.to_owned(), what.clone());
            return Err(TrainError::Changed { path, what, difference });
        }
        Ok(())
    }
}

/// Refuses a run's folder that was begun with other models, data or references than the configuration names now.
pub fn check(config: &Config, folder: &Path) -> Result<(), TrainError> {
    Inputs::of(config)?.check(folder)
}

/// One hash of all that a configuration names: models, data, prompt and references.
pub fn fingerprint(config: &Config) -> Result<String, TrainError> {
    let hashes = Inputs::of(config)?.hashes;
    let lines: Vec<String> = hashes.iter().map(|(what, hash)| format!("{what} {hash}")).collect();
    Ok(hash_text(&lines.join("\n")))
}

/// Notes in a folder what a configuration names, for [`check`].
pub fn record(config: &Config, folder: &Path) -> Result<(), TrainError> {
    Inputs::of(config)?.write(folder)
}

/// The hash of a file or a folder.
pub fn hash_path(path: &Path) -> Result<String, TrainError> {
    let mut hasher = blake3::Hasher::new();
    hash_tree(path, &mut hasher).map_err(TrainError::file("read", path))?;
    Ok(hasher.finalize().to_hex().to_string())
}

/// The hash of a text, such as a configuration's.
pub fn hash_text(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().to_string()
}

fn hash_tree(path: &Path, hasher: &mut blake3::Hasher) -> std::io::Result<()> {
    if !path.is_dir() {
        return hash_file(path, hasher);
    }
    let mut entries: Vec<PathBuf> = std::fs::read_dir(path)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()?;
    entries.sort();
    for entry in entries {
        hasher.update(entry.file_name().unwrap_or_default().as_encoded_bytes());
        hash_tree(&entry, hasher)?;
    }
    Ok(())
}

fn hash_file(path: &Path, hasher: &mut blake3::Hasher) -> std::io::Result<()> {
    let mut file = File::open(path)?;
    let data = file.metadata()?;
    if !data.is_file() {
        return Ok(());
    }
    hasher.update(&data.len().to_le_bytes());
    if data.len() <= WHOLE {
        std::io::copy(&mut file, hasher)?;
        return Ok(());
    }
    let mut block = vec![0; BLOCK];
    for index in 0..BLOCKS {
        file.seek(SeekFrom::Start((data.len() - BLOCK as u64) / (BLOCKS - 1) * index))?;
        file.read_exact(&mut block)?;
        hasher.update(&block);
    }
    Ok(())
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the test changes files on purpose")]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_teacher_is_noticed() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let teacher = folder.path().join("teacher");
        std::fs::create_dir(&teacher).expect("made");
        std::fs::write(teacher.join("model.safetensors"), b"weights").expect("written");
        let mut config = Config::default();
        config.teacher.path.clone_from(&teacher);
        let began = Inputs::of(&config).expect("readable");
        began.write(folder.path()).expect("written");
        began.check(folder.path()).expect("the same");
        std::fs::write(teacher.join("model.safetensors"), b"Weights").expect("written");
        let changed = Inputs::of(&config).expect("readable").check(folder.path());
        let message = changed.expect_err("it has changed").to_string();
        assert!(message.contains("teacher is not what the run began with"), "{message}");
    }
}
