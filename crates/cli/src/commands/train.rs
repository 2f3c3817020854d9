//! `lens train`: a run of the method a configuration names.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lens_config::{Config, resolve};
use lens_train::{Finish, Opening};

use super::config::ConfigArgs;
use crate::assemble;
use crate::failure::Failure;
use crate::interrupt;
use crate::progress::TrainingBars;
use crate::run_seed::run_seed;

/// Train a student with the method the configuration names.
#[derive(Debug, clap::Args)]
pub(crate) struct Train {
    #[command(flatten)]
    config: ConfigArgs,
    /// Resume the run in this folder from its last checkpoint; --set may change steps, intervals and paths.
    #[arg(long, value_name = "RUN", conflicts_with_all = ["files", "seed", "force"])]
    resume: Option<PathBuf>,
    /// Train this seed only, instead of every seed in the configuration.
    #[arg(long)]
    seed: Option<u64>,
    /// Start over where a run is already; the old one is moved aside.
    #[arg(long)]
    force: bool,
}

impl Train {
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        let stop = interrupt::stop_flag()?;
        if let Some(folder) = &self.resume {
            let (config, seed) = of_folder(folder, &self.config.overrides)?;
            return train(&config, seed, Opening::Resume, &stop, out).map(|_| ());
        }
        let config = self.config.resolve()?.config;
        let seeds = match self.seed {
            Some(seed) => vec![seed],
            None => config.seeds.clone(),
        };
        let opening = if self.force { Opening::Replace } else { Opening::New };
        for seed in seeds {
            train(&config, seed, opening, &stop, out)?;
        }
        Ok(())
    }
}

/// The configuration and seed of a run that is there.
fn of_folder(folder: &Path, overrides: &[String]) -> Result<(Config, u64), Failure> {
    let file = folder.join("config.toml");
    if !file.exists() {
        return Err(Failure::user(format!(
            "{} is not a run: it has no config.toml; give a folder such as runs/NAME/seed-42",
            folder.display()
        )));
    }
    let mut config = resolve(&[file], overrides)?.config;
    let wrong = || Failure::user(format!("{} is not a run's folder NAME/seed-N", folder.display()));
    let absolute = folder.canonicalize()?;
    let seed = absolute
        .file_name()
        .and_then(|name| name.to_str()?.strip_prefix("seed-")?.parse().ok())
        .ok_or_else(wrong)?;
    let named = absolute.parent().ok_or_else(wrong)?;
    config.name = named.file_name().and_then(|name| name.to_str()).ok_or_else(wrong)?.to_owned();
    config.output = named.parent().ok_or_else(wrong)?.to_owned();
    Ok((config, seed))
}

/// Runs one seed; gives the path of the trained model.
pub(crate) fn train(
    config: &Config,
    seed: u64,
    opening: Opening,
    stop: &Arc<AtomicBool>,
    out: &mut dyn Write,
) -> Result<PathBuf, Failure> {
    assemble::set_threads(config.threads)?;
    let mut bars = TrainingBars::new(config);
    let (run, finish) = run_seed(config, seed, opening, stop, &mut bars, |bars, run| {
        bars.resumed_at(run.step());
    })?;
    bars.finish();
    match finish {
        Finish::Done => {
            writeln!(
                out,
                "trained {} steps; the student is in {}",
                run.step(),
                run.model_folder().display()
            )?;
            if run.skipped() > 0 {
                writeln!(
                    out,
                    "{} steps were skipped because a number was not finite; see dumps/",
                    run.skipped()
                )?;
            }
            Ok(run.model_folder())
        }
        Finish::Interrupted => Err(Failure::Interrupted(format!(
            "stopped after {} steps, everything is saved; go on with: {} train --resume {}",
            run.step(),
            assemble::called_as(),
            run.path().display()
        ))),
    }
}
