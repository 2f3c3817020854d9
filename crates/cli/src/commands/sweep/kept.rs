//! `lens sweep --results DIR`: every run's result as a small file of its own, to be committed or carried elsewhere.
//!
//! A result counts as the run itself: a sweep that finds it does not train again. So it says which settings and which
//! models it is of, and a sweep with others refuses it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lens_config::{Config, changes, resolve};
use lens_opd::episode::EpisodeEnd;
use lens_records::metrics::SpentTokens;
use lens_train::evaluate::{Evaluation, Measures, TaskResult};
use lens_train::files::write_atomically;
use serde::{Deserialize, Serialize};

use super::{Final, Job, OFFICIAL};
use crate::assemble;
use crate::failure::Failure;

/// The version of the files.
const FORMAT: u32 = 1;

/// Keys that a resumed run may change, although they decide what a result is worth.
const DECISIVE: [&str; 5] =
    ["train.steps", "train.budget_tokens", "task.data", "task.references", "prompt.template"];

/// The file of one result.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Kept {
    format: u32,
    /// Settings that differ from the defaults, as `--set` takes them.
    settings: BTreeMap<String, String>,
    /// Hashes of both models' weights.
    models: BTreeMap<String, String>,
    /// Tasks played of each split, official ones aside, if not all.
    limit: Option<usize>,
    spent: SpentTokens,
    splits: Vec<Split>,
}

/// How the tasks of a split ended, in the split's order.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Split {
    split: String,
    /// `1` for a solved task, `0` for any other.
    solved: String,
    turns: Vec<usize>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    scores: Vec<f64>,
}

/// A folder of results.
#[derive(Debug)]
pub(super) struct Results {
    pub(super) folder: PathBuf,
    pub(super) limit: Option<usize>,
    /// Whether the official tasks are part of a result.
    pub(super) official: bool,
}

impl Results {
    fn file(&self, job: &Job) -> PathBuf {
        self.folder.join(&job.config.name).join(format!("seed-{}.json", job.seed))
    }

    /// The result of a job, if it is there and has every split that is asked for.
    pub(super) fn read(&self, job: &Job) -> Result<Option<Final>, Failure> {
        let path = self.file(job);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let kept: Kept = serde_json::from_slice(&text).map_err(|error| {
            Failure::user_with_hint(
                format!("{} is not a result of a sweep: {error}", path.display()),
                "delete it, and the run is repeated",
            )
        })?;
        kept.check(&path, job)?;
        if kept.limit != self.limit {
            let limit = kept
                .limit
                .map_or_else(|| "without --limit".to_owned(), |n| format!("with --limit {n}"));
            return Err(Failure::user_with_hint(
                format!("{} was played {limit}", path.display()),
                "sweep with the same limit, or keep results of another one in a folder of their own",
            ));
        }
        let has_official = kept.splits.iter().any(|one| one.split.starts_with(OFFICIAL));
        if self.official && !has_official {
            return Ok(None);
        }
        let wanted = |split: &&Split| self.official || !split.split.starts_with(OFFICIAL);
        let evaluations = kept.splits.iter().filter(wanted).map(|split| split.evaluation(job.seed));
        Ok(Some(Final { evaluations: evaluations.collect(), spent: Some(kept.spent) }))
    }

    /// Writes the result of a job.
    pub(super) fn write(&self, job: &Job, result: &Final) -> Result<(), Failure> {
        let kept = Kept {
            format: FORMAT,
            settings: settings(&job.config),
            models: models(&job.config)?,
            limit: self.limit,
            spent: result.spent.unwrap_or_default(),
            splits: result.evaluations.iter().map(Split::new).collect(),
        };
        let path = self.file(job);
        std::fs::create_dir_all(path.parent().unwrap_or(&self.folder))?;
        let mut json = serde_json::to_vec(&kept).map_err(|error| Failure::Runtime(error.into()))?;
        json.push(b'\n');
        Ok(write_atomically(&path, &json)?)
    }
}

impl Kept {
    /// Refuses a result of other settings or other models.
    fn check(&self, path: &Path, job: &Job) -> Result<(), Failure> {
        let refuse = |what: String| {
            Err(Failure::user_with_hint(
                format!("{} is a result of another run: {what}", path.display()),
                "give this sweep another name with --set name=NAME, or delete the file",
            ))
        };
        if self.format != FORMAT {
            return refuse(format!("its format is {}, not {FORMAT}", self.format));
        }
        let overrides: Vec<String> =
            self.settings.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let kept = resolve(&[], &overrides)?.config;
        if let Some(change) = changes::between(&kept, &job.config).into_iter().find(decides) {
            return refuse(format!(
                "`{}` was {} and is {}",
                change.key, change.before, change.after
            ));
        }
        let models = models(&job.config)?;
        match self.models.iter().find(|(name, hash)| models.get(*name) != Some(hash)) {
            Some((name, _)) => refuse(format!("the {name} was another model")),
            None => Ok(()),
        }
    }
}

/// Whether a changed key makes another result.
pub(super) fn decides(change: &changes::Change) -> bool {
    !change.is_allowed() || DECISIVE.contains(&change.key.as_str())
}

fn settings(config: &Config) -> BTreeMap<String, String> {
    changes::between(&Config::default(), config)
        .into_iter()
        .filter(decides)
        .map(|change| (change.key, change.after))
        .collect()
}

/// Hashes of the weights that a configuration's models have; a model that has no files here has none.
fn models(config: &Config) -> Result<BTreeMap<String, String>, Failure> {
    let mut hashes = BTreeMap::new();
    for (name, path) in [("student", &config.student.path), ("teacher", &config.teacher.path)] {
        // A table can be printed where its models are not.
        let found = assemble::model_folder(path, name);
        let files = weight_files(found.as_deref().unwrap_or(path));
        if files.is_empty() {
            continue;
        }
        let mut hasher = blake3::Hasher::new();
        for file in files {
            hasher.update_reader(std::fs::File::open(file)?)?;
        }
        hashes.insert(name.to_owned(), hasher.finalize().to_hex()[..16].to_owned());
    }
    Ok(hashes)
}

/// The files that hold a model's weights, in order.
fn weight_files(model: &Path) -> Vec<PathBuf> {
    if model.is_file() {
        return vec![model.to_owned()];
    }
    let entries = std::fs::read_dir(model).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|file| file.extension().is_some_and(|end| end == "safetensors"))
        .collect();
    files.sort();
    files
}

impl Split {
    fn new(evaluation: &Evaluation) -> Self {
        let tasks = &evaluation.tasks;
        let has_score = evaluation.all.score.is_some();
        Self {
            split: evaluation.split.clone(),
            solved: tasks.iter().map(|task| if task.success { '1' } else { '0' }).collect(),
            turns: tasks.iter().map(|task| task.turns).collect(),
            scores: if has_score { tasks.iter().map(|task| task.score).collect() } else { vec![] },
        }
    }

    /// The evaluation as a table needs it: tasks are named by their place in the split.
    fn evaluation(&self, seed: u64) -> Evaluation {
        let task = |(number, solved): (usize, char)| TaskResult {
            task: number.to_string(),
            kind: String::new(),
            success: solved == '1',
            score: self.scores.get(number).copied().unwrap_or_default(),
            turns: self.turns.get(number).copied().unwrap_or_default(),
            end: EpisodeEnd::Completed,
        };
        let tasks: Vec<TaskResult> = self.solved.chars().enumerate().map(task).collect();
        let solved = tasks.iter().filter(|task| task.success).count();
        let mean = |sum: f64| sum / tasks.len().max(1) as f64;
        let all = Measures {
            tasks: tasks.len(),
            success_rate: mean(100.0 * solved as f64),
            score: (!self.scores.is_empty()).then(|| mean(self.scores.iter().sum())),
            rounds: mean(self.turns.iter().sum::<usize>() as f64),
        };
        Evaluation { split: self.split.clone(), seed, all, kinds: BTreeMap::new(), tasks }
    }
}

/// Names the tasks by their place, as kept results do, so that runs just made and kept ones can be paired.
pub(super) fn by_place(evaluation: &Evaluation) -> Evaluation {
    Split::new(evaluation).evaluation(evaluation.seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_named_by_its_weights_whether_a_folder_or_one_file() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("model.gguf");
        std::fs::write(&file, b"weights").expect("written");
        let mut config = Config::default();
        config.student.path.clone_from(&file);
        config.teacher.path = folder.path().join("none");
        let first = models(&config).expect("readable");
        assert_eq!(first.keys().collect::<Vec<_>>(), ["student"]);
        std::fs::write(&file, b"others").expect("written");
        assert_ne!(models(&config).expect("readable"), first);
        std::fs::write(folder.path().join("model.safetensors"), b"weights").expect("written");
        config.student.path = folder.path().to_owned();
        assert_eq!(models(&config).expect("readable"), first);
    }
}
