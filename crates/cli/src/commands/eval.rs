//! `lens eval`: how well a model plays.

use std::io::Write;
use std::path::PathBuf;

use lens_config::schema::WeightsName;
use lens_opd::stats::summary;
use lens_train::evaluate::{Evaluation, Evaluator, Measures, TaskResult};
use lens_train::run::{evaluator, rollout_config};
use serde_json::json;

use super::config::ConfigArgs;
use crate::assemble;
use crate::failure::Failure;
use crate::progress::bar;

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Table,
    Json,
    Csv,
}

/// Let a model play a benchmark and print success rate, score and rounds, per split and task type.
#[derive(Debug, clap::Args)]
pub(crate) struct Eval {
    /// The model: a Hugging Face directory, such as a run's checkpoints/step-000060/model.
    model: PathBuf,
    #[command(flatten)]
    config: ConfigArgs,
    /// Splits to play; the configuration's task.eval_splits by default.
    #[arg(long)]
    split: Vec<String>,
    /// Only the first N tasks of each split.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// How weights are held.
    #[arg(long, default_value = "f32")]
    weights: String,
    /// How results are printed.
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

impl Eval {
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        let config = self.config.resolve()?.config;
        assemble::set_threads(config.threads)?;
        let weights = match self.weights.as_str() {
            "f32" => WeightsName::F32,
            "bf16" => WeightsName::Bf16,
            "int8" => WeightsName::Int8,
            other => {
                return Err(Failure::user(format!(
                    "--weights {other}: expected f32, bf16 or int8"
                )));
            }
        };
        let policy = assemble::policy(&self.model, weights)?;
        let benchmark = assemble::benchmark(&config)?;
        let evaluator = evaluator(&config, &rollout_config(&config, &benchmark));
        let splits =
            if self.split.is_empty() { config.task.eval_splits.clone() } else { self.split };
        let mut evaluations: Vec<Evaluation> = Vec::new();
        for split in &splits {
            let mut tasks = benchmark.tasks(split)?;
            tasks.truncate(self.limit.unwrap_or(usize::MAX));
            for &seed in &config.seeds {
                let bar = bar(tasks.len() as u64, split);
                bar.set_message(format!("seed {seed}"));
                let evaluation = evaluator.evaluate(&policy, split, &tasks, seed, 0, |done| {
                    bar.set_position(done as u64);
                })?;
                bar.finish_and_clear();
                evaluations.push(evaluation);
            }
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
        "{:<36} {:>6} {:>14} {:>14} {:>12}",
        "", "tasks", "success %", "score", "rounds"
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
        let (success, score, rounds) =
            (column(|m| Some(m.success_rate)), column(|m| m.score), column(|m| Some(m.rounds)));
        Ok(writeln!(out, "{name:<36} {tasks:>6} {success:>14} {score:>14} {rounds:>12}")?)
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
