//! `lens eval`: how well a model plays.

use std::io::Write;
use std::path::PathBuf;

use lens_agent::Episode;
use lens_config::Config;
use lens_config::schema::WeightsName;
use lens_engine::Policy;
use lens_opd::stats::proportion::wilson;
use lens_opd::stats::summary;
use lens_records::{EpisodeLine, RunFolder, write};
use lens_train::evaluate::{Evaluation, Evaluator, Measures, TaskResult, transcript};
use lens_train::run::{evaluator, rollout_config};
use serde_json::json;

use super::config::ConfigArgs;
use crate::assemble;
use crate::failure::Failure;
use crate::memory;
use crate::progress::PlayingBar;
use crate::results::newest_model;
use crate::terminal::say;
use crate::values::{at_least_one, weights};
use crate::wording::{interval, solved};

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Table,
    Json,
    Csv,
}

/// Play a benchmark with a model and print success rate, score and rounds
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lens eval runs/laboratory/seed-42 --limit 50
  lens eval assets/lab/student-small configs/laboratory.toml --split valid_unseen --format json")]
pub(crate) struct Eval {
    /// A model's Hugging Face directory, or a run's folder: then its newest checkpoint plays, with the run's own
    /// configuration unless files are given.
    model: PathBuf,
    #[command(flatten)]
    config: ConfigArgs,
    /// Splits to play; the configuration's task.eval_splits by default.
    #[arg(long)]
    split: Vec<String>,
    /// Play only the first N tasks of each split.
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    limit: Option<usize>,
    /// How weights are held.
    #[arg(long, default_value = "f32", value_parser = weights())]
    weights: WeightsName,
    /// Write every episode with its prompts and responses to this file, as JSON lines (zstd if it ends in .zst).
    #[arg(long, value_name = "FILE")]
    episodes: Option<PathBuf>,
    /// How results are printed.
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

impl Eval {
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        let (model, config) = self.model_and_config()?;
        assemble::set_threads(config.threads)?;
        let policy = assemble::policy(&model, "the model to evaluate", self.weights)?;
        policy.limit_cache(memory::budget(&config, policy.model().kv_bytes_per_token()));
        let benchmark = assemble::benchmark(&config)?;
        let evaluator = evaluator(&config, &rollout_config(&config, &benchmark)?);
        let splits =
            if self.split.is_empty() { config.task.eval_splits.clone() } else { self.split };
        let mut evaluations: Vec<Evaluation> = Vec::new();
        let mut transcripts: Vec<EpisodeLine> = Vec::new();
        let keep = self.episodes.is_some();
        for split in &splits {
            let mut tasks = benchmark.tasks(split)?;
            tasks.truncate(self.limit.unwrap_or(usize::MAX));
            for &seed in &config.seeds {
                let mut bar = PlayingBar::new(tasks.len(), split);
                let what = format!("seed {seed}");
                let evaluation = evaluator.evaluate_keeping(
                    &policy,
                    split,
                    &tasks,
                    seed,
                    0,
                    |done| bar.turn(&what, done),
                    |episode: &Episode| {
                        if keep {
                            let number = transcripts.len() as u64;
                            transcripts.push(transcript(episode, number, policy.codec()));
                        }
                    },
                )?;
                bar.finish();
                evaluations.push(evaluation);
            }
        }
        if let Some(file) = &self.episodes {
            write_episodes(file, &transcripts)?;
        }
        match self.format {
            Format::Table => table(&evaluator, &splits, &evaluations, out),
            Format::Json => {
                let text = serde_json::to_string_pretty(&json!({ "evaluations": evaluations }))
                    .map_err(|error| Failure::Runtime(error.into()))?;
                Ok(writeln!(out, "{text}")?)
            }
            Format::Csv => csv(&evaluations, out),
        }
    }

    /// What plays, and how.
    fn model_and_config(&self) -> Result<(PathBuf, Config), Failure> {
        let run = RunFolder::open(&self.model).filter(|_| !self.model.join("config.json").exists());
        let Some(run) = run else {
            return Ok((self.model.clone(), self.config.resolve()?.config));
        };
        let model = newest_model(&run).ok_or_else(|| {
            Failure::user_with_hint(
                format!("the run in {} has no complete checkpoint", self.model.display()),
                "let it train until it saves one",
            )
        })?;
        say(&format!("evaluating {}", model.display()));
        let mut args = self.config.clone();
        if args.files.is_empty() {
            args.files.push(run.path().join("config.toml"));
        }
        Ok((model, args.resolve()?.config))
    }
}

fn write_episodes(file: &std::path::Path, episodes: &[EpisodeLine]) -> Result<(), Failure> {
    let runtime = |error: lens_records::WriteError| Failure::Runtime(error.into());
    let bytes = if file.extension().is_some_and(|end| end == "zst") {
        write::packed_episodes(episodes).map_err(runtime)?
    } else {
        let lines: Result<Vec<Vec<u8>>, _> = episodes.iter().map(write::line).collect();
        lines.map_err(runtime)?.concat()
    };
    Ok(lens_train::files::write_atomically(file, &bytes)?)
}

/// Mean and, over several seeds, deviation.
pub(crate) fn mean_and_deviation(values: &[f64]) -> String {
    match summary(values) {
        Ok(summary) => match summary.std {
            Some(deviation) => format!("{:.1} ± {deviation:.1}", summary.mean),
            None => format!("{:.1}", summary.mean),
        },
        Err(_) => "-".to_owned(),
    }
}

fn table(
    evaluator: &Evaluator,
    splits: &[String],
    evaluations: &[Evaluation],
    out: &mut dyn Write,
) -> Result<(), Failure> {
    writeln!(
        out,
        "{:<34} {:>6} {:>12} {:>14} {:>12} {:>12}",
        "", "tasks", "success %", "95 % interval", "score", "rounds"
    )?;
    let mut line = |name: &str, groups: &[Vec<&TaskResult>]| -> Result<(), Failure> {
        let all = groups
            .iter()
            .filter(|group| !group.is_empty())
            .map(|group| evaluator.measures(group))
            .collect::<Result<Vec<Measures>, _>>()?;
        let column = |value: fn(&Measures) -> Option<f64>| {
            mean_and_deviation(&all.iter().filter_map(value).collect::<Vec<_>>())
        };
        let tasks = all.first().map_or(0, |measures| measures.tasks);
        let played: u64 = all.iter().map(|measures| measures.tasks as u64).sum();
        let won: u64 = all.iter().map(|one| solved(one.success_rate, one.tasks as u64)).sum();
        let bounds = interval(wilson(won, played));
        let (success, score, rounds) =
            (column(|m| Some(m.success_rate)), column(|m| m.score), column(|m| Some(m.rounds)));
        Ok(writeln!(
            out,
            "{name:<34} {tasks:>6} {success:>12} {bounds:>14} {score:>12} {rounds:>12}"
        )?)
    };
    for split in splits {
        let of_split: Vec<&Evaluation> =
            evaluations.iter().filter(|one| one.split == *split).collect();
        let groups: Vec<Vec<&TaskResult>> =
            of_split.iter().map(|one| one.tasks.iter().collect()).collect();
        line(split, &groups)?;
        let kinds = of_split.first().map(|one| one.kinds.keys().cloned().collect::<Vec<_>>());
        for kind in kinds.unwrap_or_default() {
            let groups: Vec<Vec<&TaskResult>> = of_split
                .iter()
                .map(|one| one.tasks.iter().filter(|task| task.kind == kind).collect())
                .collect();
            line(&format!("  {kind}"), &groups)?;
        }
    }
    let pooled = &evaluator.config.benchmark.profile().pooled_splits;
    if pooled.len() > 1 && pooled.iter().all(|name| splits.iter().any(|split| split == name)) {
        let mut seeds: Vec<u64> = evaluations.iter().map(|one| one.seed).collect();
        seeds.sort_unstable();
        seeds.dedup();
        let groups: Vec<Vec<&TaskResult>> = seeds
            .iter()
            .map(|seed| {
                evaluations
                    .iter()
                    .filter(|one| one.seed == *seed && pooled.iter().any(|name| *name == one.split))
                    .flat_map(|one| &one.tasks)
                    .collect()
            })
            .collect();
        line(&format!("{} pooled", pooled.join(" and ")), &groups)?;
    }
    Ok(())
}

fn csv(evaluations: &[Evaluation], out: &mut dyn Write) -> Result<(), Failure> {
    writeln!(out, "split,seed,task,kind,success,score,turns")?;
    for evaluation in evaluations {
        for task in &evaluation.tasks {
            writeln!(
                out,
                "{},{},\"{}\",{},{},{},{}",
                evaluation.split,
                evaluation.seed,
                task.task.replace('"', "\"\""),
                task.kind,
                u8::from(task.success),
                task.score,
                task.turns
            )?;
        }
    }
    Ok(())
}
