//! `lens references`: successful episodes of the run's own teacher, for methods that replay them.

use std::io::Write;
use std::path::PathBuf;

use lens_engine::Sampling;
use lens_train::references::{Collection, EXPERT_PLANS};
use lens_train::run::rollout_config;

use super::config::ConfigArgs;
use crate::assemble;
use crate::engines;
use crate::failure::Failure;
use crate::progress::Tracker;
use crate::values::at_least_one;

/// Collect the successful episodes that backward curricula replay
#[derive(Debug, clap::Subcommand)]
#[command(after_help = "\
Examples:
  lens references collect configs/laboratory.toml --out references.jsonl
  lens references collect configs/laboratory.toml --out references.jsonl --attempts 3 --limit 100")]
pub(crate) enum References {
    /// Play each training task with the configuration's teacher and keep its successes
    ///
    /// Run an interrupted collection again to resume it. Set `task.references` to the file to
    /// use it; the run records a hash of it.
    Collect(Collect),
}

impl References {
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        let Self::Collect(collect) = self;
        collect.run(out)
    }
}

/// Options of `lens references collect`.
#[derive(Debug, clap::Args)]
pub(crate) struct Collect {
    #[command(flatten)]
    config: ConfigArgs,
    /// Play each task up to N times.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    attempts: u32,
    /// Collect for the first N tasks only.
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    limit: Option<usize>,
    /// Write to this file instead of the one `task.references` names.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Collect {
    fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        let config = self.config.resolve()?.config;
        assemble::set_threads(config.threads)?;
        let named = &config.task.references;
        let path = match (self.out, named.as_str()) {
            (Some(path), _) => path,
            (None, "" | EXPERT_PLANS) => {
                return Err(Failure::user_with_hint(
                    "`task.references` names no file to collect into",
                    "pass --out FILE, or --set task.references=FILE",
                ));
            }
            (None, path) => PathBuf::from(path),
        };
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder)
                .map_err(|error| Failure::user(format!("{}: {error}", folder.display())))?;
        }
        let benchmark = assemble::benchmark(&config)?;
        let teacher = engines::player("teacher", &config.teacher)?;
        let mut tasks = benchmark.tasks(&config.task.train_split)?;
        tasks.truncate(self.limit.unwrap_or(usize::MAX));
        let collection = Collection {
            config: rollout_config(&config, &benchmark)?,
            sampling: Sampling::at(config.rollout.temperature as f32),
            seed: config.seeds.first().copied().unwrap_or(0),
            attempts: self.attempts,
            workers: config.eval.workers,
        };
        let mut bar = Tracker::new(tasks.len() as u64, "task");
        let found = collection.collect(&*teacher, &tasks, &path, |settled, solved| {
            bar.move_to(settled as u64);
            bar.doing(&format!("{solved} solved"));
        })?;
        bar.finish();
        let solved =
            found.iter().filter(|one| tasks.iter().any(|task| task.id == one.task)).count();
        let mean = found.iter().map(|one| one.actions.len()).sum::<usize>() as f64
            / found.len().max(1) as f64;
        writeln!(
            out,
            "{solved} of {} tasks solved within {} attempts, {mean:.1} actions on average: {}",
            tasks.len(),
            self.attempts,
            path.display()
        )?;
        Ok(())
    }
}
