//! `lens lab`: build the laboratory models.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use lens_env::Benchmark;
use lens_env::alfworld::{self, Alfworld};
use lens_lab::corpus::{CorpusOptions, corpus};
use lens_lab::recipe::{self, LabError};

use crate::failure::Failure;
use crate::progress::{bar, note_step};

/// What to do in the laboratory.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Lab {
    /// Train the tokenizer, the teachers and the students from scratch on generated games.
    Build(Build),
}

/// Train the tokenizer, the teachers and the students from scratch on generated games.
#[derive(Debug, clap::Args)]
pub(crate) struct Build {
    /// Where the models go, one folder each.
    #[arg(long, default_value = "runs/lab")]
    out: PathBuf,
    /// The seed of the games, the draws and the weights.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only these models (teacher, student-small, ...); all by default. The tokenizer is made whenever it is not there.
    #[arg(long)]
    only: Vec<String>,
    /// Optimiser steps instead of the recipe's.
    #[arg(long)]
    steps: Option<u64>,
    /// Houses to generate games from, besides the built-in training games.
    #[arg(long, default_value_t = 6)]
    extra_sets: u64,
}

impl Lab {
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        match self {
            Self::Build(build) => build.run(out),
        }
    }
}

impl From<LabError> for Failure {
    fn from(error: LabError) -> Self {
        Self::Runtime(error.into())
    }
}

impl Build {
    fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        let plans: Vec<_> = recipe::plans()
            .into_iter()
            .filter(|plan| self.only.is_empty() || self.only.iter().any(|name| name == plan.name))
            .collect();
        if plans.is_empty() {
            let names: Vec<_> = recipe::plans().iter().map(|plan| plan.name).collect();
            return Err(Failure::user(format!(
                "--only names no model; there are {}",
                names.join(", ")
            )));
        }
        let options = CorpusOptions {
            seed: self.seed,
            stray: 0.12,
            comments: 0.25,
            history: 2,
            turn_limit: 30,
        };
        let mut texts = Vec::new();
        for set in 0..=self.extra_sets {
            let benchmark: Arc<dyn Benchmark> = if set == 0 {
                Arc::new(Alfworld::built_in(&alfworld::Options::default())?)
            } else {
                // Games of other houses: none of them is in a validation split of the built-in set.
                Arc::new(Alfworld::generated(
                    1_000_000 + self.seed * 1000 + set,
                    &alfworld::Options::default(),
                )?)
            };
            let tasks = benchmark.tasks("train")?;
            texts.extend(corpus(&benchmark, &tasks, &options)?.unwrap_or_default());
        }
        writeln!(out, "{} texts from the expert's play", texts.len())?;
        std::fs::create_dir_all(&self.out)?;
        let tokenizer_path = self.out.join("tokenizer.json");
        let tokenizer = if let Ok(tokenizer) = std::fs::read(&tokenizer_path) {
            tokenizer
        } else {
            let tokenizer = recipe::tokenizer(&texts, 4000)?;
            lens_train::files::write_atomically(&tokenizer_path, &tokenizer)?;
            tokenizer
        };
        for mut plan in plans {
            plan.steps = self.steps.unwrap_or(plan.steps);
            let steps = plan.steps;
            let folder = self.out.join(plan.name);
            let bar = bar(plan.steps, plan.name);
            let mut last = f64::NAN;
            recipe::build(&plan, &tokenizer, &texts, self.seed, &folder, |step, report| {
                last = report.loss;
                note_step(&bar, plan.name, step, steps, report.loss);
            })?;
            bar.finish_and_clear();
            let parameters = plan.config.parameter_count();
            writeln!(
                out,
                "{}: {parameters} parameters, {} steps, last loss {last:.4}, in {}",
                plan.name,
                plan.steps,
                folder.display()
            )?;
        }
        Ok(())
    }
}
