//! A run's folder, as it is found: finished, running, stopped or damaged.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use crate::episodes::{EpisodeLine, EpisodeText};
use crate::lines::{Lines, open_regular, read_text};
use crate::metrics::Record;
use crate::timings::TimingLine;
use crate::{ReadProblem, Versioned};

/// The largest `config.toml` that is read.
const CONFIG_LIMIT: u64 = 4 << 20;

/// What a run is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunState {
    /// A process holds the folder.
    Running,
    /// All steps are done.
    Finished,
    /// It stopped when asked to, and everything it wrote is in its last checkpoint.
    Interrupted,
    /// It stopped without saving: lines behind the last checkpoint are cut when it is resumed.
    Killed,
    /// There is no metrics file yet.
    Empty,
}

impl RunState {
    /// The state in one word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Interrupted => "interrupted",
            Self::Killed => "killed",
            Self::Empty => "empty",
        }
    }
}

/// A checkpoint of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Optimizer steps done.
    pub step: u64,
    /// Its folder.
    pub path: PathBuf,
    /// Whether its manifest, which is written last, is there.
    pub complete: bool,
}

/// A run's folder. Nothing is held open: every call looks again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    /// The run in `path`, if there is one: a folder with `config.toml` or `metrics.jsonl`.
    pub fn open(path: &Path) -> Option<Self> {
        let found = ["config.toml", "metrics.jsonl"].iter().any(|name| path.join(name).is_file());
        found.then(|| Self { path: path.to_owned() })
    }

    /// Every run in `path` or below it, such as the seeds of a run and the runs of a sweep, sorted by path. Checkpoints
    /// and episodes are not searched, links are not followed, and nothing deeper than `depth` folders is.
    pub fn find(path: &Path, depth: usize) -> Vec<Self> {
        let mut found = Vec::new();
        Self::find_into(path, depth, &mut found);
        found.sort_by(|first, second| first.path.cmp(&second.path));
        found
    }

    fn find_into(path: &Path, depth: usize, found: &mut Vec<Self>) {
        if let Some(run) = Self::open(path) {
            found.push(run);
            return;
        }
        if depth == 0 {
            return;
        }
        for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                Self::find_into(&entry.path(), depth - 1, found);
            }
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The text of `config.toml`.
    pub fn config(&self) -> Result<String, ReadProblem> {
        read_text(&self.path.join("config.toml"), CONFIG_LIMIT)
    }

    /// One number of the configuration, such as `train.steps`: enough to know when a run is done without knowing what a
    /// configuration is. `config.toml` is written by a run itself, one `key = value` per line.
    pub fn config_number(&self, section: &str, key: &str) -> Option<u64> {
        let text = self.config().ok()?;
        let mut here = section.is_empty();
        for line in text.lines().map(str::trim) {
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                here = name.trim() == section;
            } else if let (true, Some((name, value))) = (here, line.split_once('='))
                && name.trim() == key
            {
                let value = value.split('#').next().unwrap_or_default();
                return value.trim().replace('_', "").parse().ok();
            }
        }
        None
    }

    /// The metrics, from the beginning.
    pub fn metrics(&self) -> Result<Lines<Record>, ReadProblem> {
        Lines::open(&self.path.join("metrics.jsonl"))
    }

    /// The metrics behind a position that [`Lines::position`] gave. A file that has become shorter, because the run was
    /// resumed, is read from its beginning; the flag says so.
    pub fn metrics_since(
        &self,
        (offset, line): (u64, u64),
    ) -> Result<(Lines<Record>, bool), ReadProblem> {
        let path = self.path.join("metrics.jsonl");
        let length = std::fs::metadata(&path).map_or(0, |data| data.len());
        if length < offset {
            return Ok((Lines::open(&path)?, true));
        }
        Ok((Lines::open_at(&path, offset, line)?, false))
    }

    /// The timings.
    pub fn timings(&self) -> Result<Lines<TimingLine>, ReadProblem> {
        Lines::open(&self.path.join("timings.jsonl"))
    }

    /// The numbers of the batches whose episodes are there, ascending.
    pub fn episode_batches(&self) -> Vec<u64> {
        let entries = std::fs::read_dir(self.path.join("episodes")).into_iter().flatten();
        let mut batches: Vec<u64> = entries
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                name.strip_prefix("batch-")?.strip_suffix(".jsonl.zst")?.parse().ok()
            })
            .collect();
        batches.sort_unstable();
        batches
    }

    /// The file of a batch's episodes.
    pub fn episode_path(&self, batch: u64) -> PathBuf {
        self.path.join("episodes").join(format!("batch-{batch:06}.jsonl.zst"))
    }

    /// The episodes of a batch.
    pub fn episodes(&self, batch: u64) -> Result<Lines<EpisodeLine>, ReadProblem> {
        Lines::open_packed(&self.episode_path(batch))
    }

    /// The texts of a batch's episodes, tokens passed over.
    pub fn texts(&self, batch: u64) -> Result<Lines<EpisodeText>, ReadProblem> {
        Lines::open_packed(&self.episode_path(batch))
    }

    /// One episode of a batch. Those before it are passed over without being unpacked, or at least without being
    /// understood, as far as the file allows.
    pub fn episode(&self, batch: u64, episode: u64) -> Result<Option<EpisodeLine>, ReadProblem> {
        let path = self.episode_path(batch);
        if let Some(Ok(line)) = Lines::open_frame(&path, episode)?
            .and_then(|mut lines: Lines<EpisodeLine>| lines.next())
            && line.episode == episode
        {
            return Ok(Some(line));
        }
        let mut lines = self.episodes(batch)?;
        // Episodes are written in the order of their keys, from 0 on.
        for _ in 0..episode {
            if !lines.skip_line()? {
                break;
            }
        }
        if let Some(Ok(line)) = lines.next()
            && line.episode == episode
        {
            return Ok(Some(line));
        }
        let mut problem = None;
        for line in Lines::<EpisodeLine>::open_packed(&path)? {
            match line {
                Ok(line) if line.episode == episode => return Ok(Some(line)),
                Ok(_) => {}
                Err(found) => problem = problem.or(Some(found)),
            }
        }
        problem.map_or(Ok(None), Err)
    }

    /// The checkpoints, by step.
    pub fn checkpoints(&self) -> Vec<Checkpoint> {
        let entries = std::fs::read_dir(self.path.join("checkpoints")).into_iter().flatten();
        let mut found: Vec<Checkpoint> = entries
            .flatten()
            .filter_map(|entry| {
                let step = entry.file_name().to_str()?.strip_prefix("step-")?.parse().ok()?;
                let path = entry.path();
                let complete = path.join("manifest.json").is_file();
                Some(Checkpoint { step, path, complete })
            })
            .collect();
        found.sort_by_key(|checkpoint| checkpoint.step);
        found
    }

    /// What the run is doing. `last_step` is the last optimizer step of the metrics.
    pub fn state(&self, last_step: u64) -> RunState {
        if self.is_held() {
            return RunState::Running;
        }
        let Ok(metrics) = std::fs::metadata(self.path.join("metrics.jsonl")) else {
            return RunState::Empty;
        };
        if self.config_number("train", "steps").is_some_and(|steps| last_step >= steps) {
            return RunState::Finished;
        }
        let saved = self.checkpoints().into_iter().rfind(|checkpoint| checkpoint.complete);
        let recorded = saved.and_then(|checkpoint| recorded_length(&checkpoint.path));
        if recorded == Some(metrics.len()) { RunState::Interrupted } else { RunState::Killed }
    }

    /// Whether a process holds the folder. The lock is tried for a moment, shared, so that readers do not disturb each
    /// other; a trainer that starts in that moment tries again.
    fn is_held(&self) -> bool {
        let Ok(file) = open_regular(&self.path.join("lock")) else { return false };
        let held = matches!(File::try_lock_shared(&file), Err(TryLockError::WouldBlock));
        drop(file);
        held
    }
}

/// The length of `metrics.jsonl` that a checkpoint vouches for.
fn recorded_length(checkpoint: &Path) -> Option<u64> {
    let text = read_text(&checkpoint.join("state").join("state.json"), CONFIG_LIMIT).ok()?;
    let state: serde_json::Value = serde_json::from_str(&text).ok()?;
    state.get("metrics_length")?.as_u64()
}

/// Reads everything a source still has, problems apart.
pub fn collect<T: serde::de::DeserializeOwned + Versioned>(
    lines: Lines<T>,
) -> (Vec<T>, Vec<ReadProblem>) {
    let (mut records, mut problems) = (Vec::new(), Vec::new());
    for line in lines {
        match line {
            Ok(record) => records.push(record),
            Err(problem) => problems.push(problem),
        }
    }
    (records, problems)
}
