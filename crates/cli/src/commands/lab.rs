//! `lens lab`: build the laboratory models.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use lens_engine::LearnReport;
use lens_env::Benchmark;
use lens_env::alfworld::{self, Alfworld};
use lens_env::webshop::{self, ObservationMode, WebShop};
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
    /// The benchmark whose expert demonstrates.
    #[arg(long, value_enum, default_value = "alfworld")]
    benchmark: Subject,
    /// The seed of the games, the draws and the weights.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only these models (teacher, student-small, ...); all by default. The tokenizer is made whenever it is not there.
    #[arg(long)]
    only: Vec<String>,
    /// Go on after this many courses: the models in the folder have had them.
    #[arg(long, default_value_t = 0)]
    after_course: usize,
    /// Optimiser steps of every course instead of the recipe's.
    #[arg(long)]
    steps: Option<u64>,
    /// Sets of games or catalogues to generate, besides the built-in one.
    #[arg(long, default_value_t = 1)]
    extra_sets: u64,
}

/// A benchmark with an expert of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Subject {
    Alfworld,
    Webshop,
}

impl Subject {
    /// Set 0 is the built-in one; every other is generated from a seed of its own, so that none of its games is in a
    /// validation split of the built-in set.
    fn set(self, seed: u64, set: u64) -> Result<Arc<dyn Benchmark>, Failure> {
        let other = 1_000_000 + seed * 1000 + set;
        Ok(match self {
            Self::Alfworld => {
                let options = alfworld::Options::default();
                Arc::new(if set == 0 {
                    Alfworld::built_in(&options)?
                } else {
                    Alfworld::generated(other, &options)?
                })
            }
            Self::Webshop => {
                let seed = if set == 0 { webshop::generator::BUILT_IN_SEED } else { other };
                let shop = webshop::generator::shop(seed, webshop::ShopSettings::default())?;
                Arc::new(WebShop::new(Arc::new(shop), ObservationMode::TextRich))
            }
        })
    }
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
        let mut texts = Vec::new();
        for set in 0..=self.extra_sets {
            let benchmark = self.benchmark.set(self.seed, set)?;
            let options = CorpusOptions {
                seed: self.seed,
                stray: 0.12,
                comments: 0.25,
                history: 2,
                turn_limit: benchmark.default_turn_limit().min(30),
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
            let folder = self.out.join(plan.name);
            for course in &mut plan.courses {
                course.steps = self.steps.unwrap_or(course.steps);
            }
            let courses = plan.courses.len();
            for (number, course) in plan.courses.iter().enumerate().skip(self.after_course) {
                let what = format!("{} {}/{courses}", plan.name, number + 1);
                let bar = bar(course.steps, &what);
                let mut last = f64::NAN;
                let on_step = |step: u64, report: &LearnReport| {
                    last = report.loss;
                    note_step(&bar, &what, step, course.steps, report.loss);
                };
                recipe::teach(&plan, number, &tokenizer, &texts, self.seed, &folder, on_step)?;
                bar.finish_and_clear();
                writeln!(
                    out,
                    "{what}: {} parameters, {} steps, last loss {last:.4}, in {}",
                    plan.config.parameter_count(),
                    course.steps,
                    folder.display()
                )?;
                out.flush()?;
            }
        }
        Ok(())
    }
}
