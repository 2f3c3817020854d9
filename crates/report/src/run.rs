//! A run, loaded: configuration, metrics and timings in memory, episodes on disk.

use std::path::Path;

use lens_records::episodes::EpisodeText;
use lens_records::metrics::{BatchLine, EvalLine, Record, StepLine};
use lens_records::{ReadProblem, RunFolder, RunState, TimingLine};

/// A loaded run.
#[derive(Debug)]
pub struct Run {
    /// Where it lies.
    pub folder: RunFolder,
    /// The configuration; empty where it cannot be read.
    pub config: toml::Table,
    /// Explorer batches, in order.
    pub batches: Vec<BatchLine>,
    /// Optimizer steps, in order.
    pub steps: Vec<StepLine>,
    /// Evaluations, in order.
    pub evals: Vec<EvalLine>,
    /// Timings; of stages that were repeated after a resume the last.
    pub timings: Vec<TimingLine>,
    /// What could not be read.
    pub problems: Vec<String>,
    /// What the run is doing.
    pub state: RunState,
    position: (u64, u64),
}

impl Run {
    /// Loads a run. Damaged lines are noted in [`Run::problems`].
    pub fn load(folder: RunFolder) -> Self {
        let mut run = Self {
            config: toml::Table::new(),
            batches: Vec::new(),
            steps: Vec::new(),
            evals: Vec::new(),
            timings: Vec::new(),
            problems: Vec::new(),
            state: RunState::Empty,
            position: (0, 0),
            folder,
        };
        match run.folder.config() {
            Err(problem) => run.note(&problem),
            Ok(text) => match text.parse() {
                Ok(config) => run.config = config,
                Err(error) => run.problems.push(format!("`config.toml`: {error}")),
            },
        }
        run.refresh();
        run
    }

    /// Reads what was written since the last time; says whether there was anything.
    pub fn refresh(&mut self) -> bool {
        let before = (self.position, self.state);
        match self.folder.metrics_since(self.position) {
            Err(_) if self.position == (0, 0) => {}
            Err(problem) => self.note(&problem),
            Ok((mut lines, again)) => {
                if again {
                    self.batches.clear();
                    self.steps.clear();
                    self.evals.clear();
                    self.problems.clear();
                }
                for line in &mut lines {
                    match line {
                        Ok(Record::Batch(line)) => self.batches.push(*line),
                        Ok(Record::Step(line)) => self.steps.push(line),
                        Ok(Record::Eval(line)) => self.evals.push(line),
                        Err(problem) if problem.may_pass() => {}
                        Err(problem) => self.note(&problem),
                    }
                }
                self.position = lines.position();
            }
        }
        if before.0 != self.position || self.timings.is_empty() {
            self.load_timings();
        }
        self.state = self.folder.state(self.last_step());
        before != (self.position, self.state)
    }

    fn load_timings(&mut self) {
        let Ok(lines) = self.folder.timings() else { return };
        self.timings.clear();
        for line in lines.flatten() {
            let same = |old: &TimingLine| old.stage == line.stage && old.batch == line.batch;
            match self.timings.iter_mut().rev().take(8).find(|old| same(old)) {
                Some(old) => *old = line,
                None => self.timings.push(line),
            }
        }
    }

    fn note(&mut self, problem: &ReadProblem) {
        // A file full of damage need not be listed line by line.
        if self.problems.len() < 20 {
            self.problems.push(problem.to_string());
        }
    }

    /// Every run in or below the given folders.
    pub fn load_all(paths: &[impl AsRef<Path>]) -> Vec<Self> {
        let folders = paths.iter().flat_map(|path| RunFolder::find(path.as_ref(), 4));
        folders.map(Self::load).collect()
    }

    /// A value of the configuration, such as `train.steps`.
    pub fn setting(&self, key: &str) -> Option<&toml::Value> {
        let mut parts = key.split('.');
        let first = self.config.get(parts.next()?)?;
        parts.try_fold(first, |value, part| value.get(part))
    }

    /// A whole number of the configuration.
    pub fn number(&self, key: &str) -> Option<u64> {
        u64::try_from(self.setting(key)?.as_integer()?).ok()
    }

    /// A text of the configuration; empty where it is not set.
    pub fn word(&self, key: &str) -> &str {
        self.setting(key).and_then(toml::Value::as_str).unwrap_or_default()
    }

    /// The run's name: its configuration's, or its folder's.
    pub fn name(&self) -> String {
        match self.word("name") {
            "" => self.folder_name(),
            name => name.to_owned(),
        }
    }

    fn folder_name(&self) -> String {
        let path = self.folder.path();
        path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }

    /// The seed, from the folder's name `seed-N`.
    pub fn seed(&self) -> Option<u64> {
        self.folder_name().strip_prefix("seed-")?.parse().ok()
    }

    /// Name and seed.
    pub fn label(&self) -> String {
        match self.seed() {
            Some(seed) => format!("{} · seed {seed}", self.name()),
            None => self.name(),
        }
    }

    /// The student's short name: the last part of its path.
    pub fn student(&self) -> &str {
        let path = self.word("student.path");
        path.rsplit('/').find(|part| !part.is_empty()).unwrap_or(path)
    }

    /// The last optimizer step in the metrics.
    pub fn last_step(&self) -> u64 {
        self.steps.iter().filter(|step| !step.skipped).map(|step| step.step).max().unwrap_or(0)
    }

    /// Optimizer steps the configuration asks for.
    pub fn planned_steps(&self) -> Option<u64> {
        self.number("train.steps")
    }

    /// The splits that were evaluated, in the order of their first evaluation.
    pub fn splits(&self) -> Vec<&str> {
        let mut splits: Vec<&str> = Vec::new();
        for eval in &self.evals {
            if !splits.contains(&eval.split.as_str()) {
                splits.push(&eval.split);
            }
        }
        splits
    }

    /// The last evaluation of a split.
    pub fn last_eval(&self, split: &str) -> Option<&EvalLine> {
        self.evals.iter().rfind(|eval| eval.split == split)
    }

    /// The texts of the episodes of the last `batches` batches, as far as they can be read.
    pub fn last_texts(&self, batches: usize) -> Vec<EpisodeText> {
        let numbers = self.folder.episode_batches();
        let skip = numbers.len().saturating_sub(batches);
        let lines = numbers[skip..].iter().filter_map(|&batch| self.folder.texts(batch).ok());
        lines.flat_map(|lines| lines.filter_map(Result::ok)).collect()
    }
}
