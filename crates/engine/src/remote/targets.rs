//! Targets in a checkpoint. A teacher elsewhere may be gone or changed when the run is resumed, so what it said is
//! written whole; what the worker keeps is part of the worker's own checkpoint and is written as its key.

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::EngineError;
use crate::target::{Kind, Target, TopTokens};

const WORDS: &str = "queue-targets.u32";

/// A target as it is kept beside its row; ranges are words of the file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Saved {
    /// The tokens themselves.
    Tokens,
    /// The worker's own teacher, asked again.
    Teacher,
    /// Ids, then log-probabilities.
    Top { k: usize, start: usize, values: usize },
    /// The teacher's, then the rollout's log-probabilities.
    Sampled { start: usize, values: usize },
    /// Hidden states.
    Snapshot { start: usize, values: usize, version: u64 },
    /// Kept by the worker.
    Kept { key: i64, version: u64 },
}

/// The versions of snapshots that targets refer to, ascending.
pub(super) fn versions(targets: &[&Target]) -> Vec<u64> {
    let found = targets.iter().filter_map(|target| match &target.0 {
        Kind::Snapshot { version, .. } | Kind::Kept { version, .. } => Some(*version),
        _ => None,
    });
    let mut versions: Vec<u64> = found.collect();
    versions.sort_unstable();
    versions.dedup();
    versions
}

/// Writes what must be written into `state` and gives what is kept beside each row.
pub(super) fn save(
    state: &Path,
    targets: &[&Target],
) -> Result<Vec<serde_json::Value>, EngineError> {
    let path = state.join(WORDS);
    let mut words: Vec<u32> = Vec::new();
    let mut entries = Vec::with_capacity(targets.len());
    for target in targets {
        let start = words.len();
        let mut keep = |values: &[f32]| words.extend(values.iter().map(|value| value.to_bits()));
        let entry = match &target.0 {
            Kind::Tokens => Saved::Tokens,
            Kind::TeacherStates(_) => Saved::Teacher,
            Kind::TeacherTop(None) => {
                return Err(EngineError::Request("a teacher's list is missing".to_owned()));
            }
            Kind::TeacherTop(Some(top)) => {
                keep(&top.logprobs);
                words.extend(&top.ids);
                Saved::Top { k: top.k, start, values: top.logprobs.len() }
            }
            Kind::Sampled { teacher, rollout } => {
                keep(teacher);
                keep(rollout);
                Saved::Sampled { start, values: teacher.len() }
            }
            Kind::Snapshot { hidden, version } => {
                keep(hidden);
                Saved::Snapshot { start, values: hidden.len(), version: *version }
            }
            Kind::Kept { key, version } => Saved::Kept { key: *key, version: *version },
        };
        let value = serde_json::to_value(entry)
            .map_err(|error| EngineError::unusable(&path, error.to_string()))?;
        entries.push(value);
    }
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    std::fs::write(&path, bytes).map_err(EngineError::state(&path))?;
    Ok(entries)
}

/// Reads what [`save`] wrote.
pub(super) fn load(
    state: &Path,
    entries: &[serde_json::Value],
) -> Result<Vec<Target>, EngineError> {
    let path = state.join(WORDS);
    let bytes = std::fs::read(&path).map_err(EngineError::state(&path))?;
    let words: Vec<u32> = bytes
        .chunks_exact(4)
        .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
        .collect();
    let range = |start: usize, values: usize| {
        let found = start.checked_add(values).and_then(|end| words.get(start..end));
        found.ok_or_else(|| EngineError::unusable(&path, "a target lies outside it".to_owned()))
    };
    let floats = |start, values| {
        let words: &[u32] = range(start, values)?;
        Ok::<_, EngineError>(words.iter().map(|&word| f32::from_bits(word)).collect::<Vec<f32>>())
    };
    let read = |entry: &serde_json::Value| {
        let saved = Saved::deserialize(entry)
            .map_err(|error| EngineError::unusable(&path, error.to_string()))?;
        Ok(Target(match saved {
            Saved::Tokens => Kind::Tokens,
            Saved::Teacher => Kind::TeacherStates(None),
            Saved::Top { k: 0, .. } => {
                let problem = "a list of likely tokens is empty".to_owned();
                return Err(EngineError::unusable(&path, problem));
            }
            Saved::Top { k, start, values } => Kind::TeacherTop(Some(Arc::new(TopTokens {
                k,
                logprobs: floats(start, values)?,
                ids: range(start.saturating_add(values), values)?.to_vec(),
            }))),
            Saved::Sampled { start, values } => Kind::Sampled {
                teacher: floats(start, values)?,
                rollout: floats(start.saturating_add(values), values)?,
            },
            Saved::Snapshot { start, values, version } => {
                Kind::Snapshot { hidden: Arc::new(floats(start, values)?), version }
            }
            Saved::Kept { key, version } => Kind::Kept { key, version },
        }))
    };
    entries.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_targets_come_back_as_they_were() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let top = TopTokens {
            k: 2,
            ids: vec![7, u32::MAX, 0, 1],
            logprobs: vec![-0.1, -1e-8, -2.0, -3.0],
        };
        let kinds = [
            Kind::Tokens,
            Kind::TeacherTop(Some(Arc::new(top))),
            Kind::Snapshot { hidden: Arc::new(vec![0.1, f32::MIN_POSITIVE]), version: 3 },
            Kind::Sampled { teacher: vec![-0.1, -0.3], rollout: vec![-0.2, -0.4] },
            Kind::TeacherStates(None),
            Kind::Kept { key: -5, version: 2 },
        ];
        let targets: Vec<Target> = kinds.into_iter().map(Target).collect();
        let borrowed: Vec<&Target> = targets.iter().collect();
        let entries = save(folder.path(), &borrowed).expect("it can be written");
        assert_eq!(load(folder.path(), &entries).expect("it can be read"), targets);
        assert_eq!(versions(&borrowed), [2, 3]);
        let outside = serde_json::json!({"snapshot": {"start": 4, "values": 30, "version": 3}});
        assert!(load(folder.path(), &[outside]).is_err());
    }
}
