//! Targets in a checkpoint. What the frozen teacher gives again is not written; a snapshot's hidden states are, because
//! that snapshot is gone.

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::EngineError;
use crate::target::{Kind, Target};

const VALUES: &str = "queue-targets.f32";

/// A target as it is kept beside its row.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Saved {
    /// The teacher's distribution, asked for again; log-probabilities where the estimator needs them.
    Teacher {
        teacher_logprobs: Option<Vec<f32>>,
        rollout_logprobs: Option<Vec<f32>>,
        #[serde(default)]
        top: bool,
    },
    /// Hidden states in the file of values.
    Snapshot { start: usize, values: usize, version: u64 },
    /// The tokens themselves.
    Tokens,
}

/// The snapshot versions that targets refer to, ascending.
pub(super) fn versions(targets: &[&Target]) -> Vec<u64> {
    let mut versions: Vec<u64> = targets
        .iter()
        .filter_map(|target| match &target.0 {
            Kind::Snapshot { version, .. } => Some(*version),
            _ => None,
        })
        .collect();
    versions.sort_unstable();
    versions.dedup();
    versions
}

/// Writes what must be written into `state` and gives what is kept beside each row.
pub(super) fn save(
    state: &Path,
    targets: &[&Target],
) -> Result<Vec<serde_json::Value>, EngineError> {
    let mut bytes: Vec<u8> = Vec::new();
    let mut entries = Vec::with_capacity(targets.len());
    for target in targets {
        let entry = match &target.0 {
            Kind::Tokens => Saved::Tokens,
            Kind::TeacherStates(_) => {
                Saved::Teacher { teacher_logprobs: None, rollout_logprobs: None, top: false }
            }
            Kind::TeacherTop(_) => {
                Saved::Teacher { teacher_logprobs: None, rollout_logprobs: None, top: true }
            }
            Kind::Sampled { teacher, rollout } => Saved::Teacher {
                teacher_logprobs: Some(teacher.clone()),
                rollout_logprobs: Some(rollout.clone()),
                top: false,
            },
            Kind::Kept { .. } => {
                return Err(EngineError::Request(
                    "a target of the training worker cannot be saved by the native engine"
                        .to_owned(),
                ));
            }
            Kind::Snapshot { hidden, version } => {
                let start = bytes.len();
                bytes.extend(hidden.iter().flat_map(|value| value.to_le_bytes()));
                Saved::Snapshot { start, values: hidden.len(), version: *version }
            }
        };
        let path = state.join(VALUES);
        let value = serde_json::to_value(entry)
            .map_err(|error| EngineError::unusable(&path, error.to_string()))?;
        entries.push(value);
    }
    let path = state.join(VALUES);
    std::fs::write(&path, &bytes).map_err(EngineError::state(&path))?;
    Ok(entries)
}

/// Reads what [`save`] wrote.
pub(super) fn load(
    state: &Path,
    entries: &[serde_json::Value],
) -> Result<Vec<Target>, EngineError> {
    let path = state.join(VALUES);
    let bytes = std::fs::read(&path).map_err(EngineError::state(&path))?;
    entries
        .iter()
        .map(|entry| {
            let saved = Saved::deserialize(entry)
                .map_err(|error| EngineError::unusable(&path, error.to_string()))?;
            Ok(Target(match saved {
                Saved::Tokens => Kind::Tokens,
                Saved::Teacher {
                    teacher_logprobs: Some(teacher),
                    rollout_logprobs: Some(rollout),
                    ..
                } => Kind::Sampled { teacher, rollout },
                Saved::Teacher { top: true, .. } => Kind::TeacherTop(None),
                Saved::Teacher { .. } => Kind::TeacherStates(None),
                Saved::Snapshot { start, values, version } => {
                    let end = values.checked_mul(4).and_then(|length| start.checked_add(length));
                    let hidden = end.and_then(|end| bytes.get(start..end)).ok_or_else(|| {
                        EngineError::unusable(&path, "a target lies outside it".to_owned())
                    })?;
                    let hidden = hidden
                        .chunks_exact(4)
                        .map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]]));
                    Kind::Snapshot { hidden: Arc::new(hidden.collect()), version }
                }
            }))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_targets_come_back_as_they_were() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let hidden = Arc::new(vec![0.1, -2.5e-8, f32::MIN_POSITIVE]);
        let sampled = Kind::Sampled { teacher: vec![-0.1, -0.3], rollout: vec![-0.2, -0.4] };
        let kinds = [
            Kind::Tokens,
            Kind::Snapshot { hidden, version: 3 },
            sampled,
            Kind::TeacherStates(None),
            Kind::TeacherTop(None),
        ];
        let targets: Vec<Target> = kinds.into_iter().map(Target).collect();
        let borrowed: Vec<&Target> = targets.iter().collect();
        let entries = save(folder.path(), &borrowed).expect("it can be written");
        assert_eq!(load(folder.path(), &entries).expect("it can be read"), targets);
        assert_eq!(versions(&borrowed), [3]);
        let outside = serde_json::json!({"snapshot": {"start": 4, "values": 3, "version": 3}});
        assert!(load(folder.path(), &[outside]).is_err());
    }
}
