//! `lens train`: a run of the method a configuration names.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lens_config::{Config, resolve};
use lens_report::doctor;
use lens_train::{Finish, Opening};

use super::config::ConfigArgs;
use crate::assemble;
use crate::failure::Failure;
use crate::interrupt;
use crate::progress::TrainingBar;
use crate::results::{Results, open_run};
use crate::run_seed::run_seed;
use crate::wording::counted;

/// Train a student with the method the configuration names
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lens train configs/laboratory.toml --set method=opd --seed 42
  lens train --resume runs/laboratory/seed-42 --set train.steps=120")]
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
        let stop = interrupt::stop_flag();
        if let Some(folder) = &self.resume {
            let (config, seed) = of_folder(folder, &self.config.overrides)?;
            return train(&config, seed, Opening::Resume, &stop, out);
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
    open_run(folder)?;
    let mut config = resolve(&[folder.join("config.toml")], overrides)?.config;
    let wrong = || {
        Failure::user_with_hint(
            format!("{} is not a run's folder", folder.display()),
            "a run's folder is called NAME/seed-N",
        )
    };
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

/// Runs one seed and prints a summary.
fn train(
    config: &Config,
    seed: u64,
    opening: Opening,
    stop: &Arc<AtomicBool>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    assemble::set_threads(config.threads)?;
    let mut bar = TrainingBar::new(config);
    let (run, finish) =
        run_seed(config, seed, opening, stop, &mut bar, |bar, run| bar.start_at(run.step()))?;
    bar.finish();
    if finish == Finish::Interrupted {
        return Err(Failure::Interrupted(format!(
            "stopped after {}, everything is saved; resume with: {} train --resume {}",
            counted(run.step(), "step"),
            assemble::called_as(),
            run.path().display()
        )));
    }
    let student = run.model_folder();
    writeln!(
        out,
        "{}, seed {seed}: {} done; the student is in {}",
        config.method,
        counted(run.step(), "step"),
        student.display()
    )?;
    let results = Results::read(&open_run(run.path())?);
    results.print_success(out)?;
    if let Some((best, model)) = run.best().filter(|(_, model)| *model != student) {
        writeln!(
            out,
            "  best: {:.1} % after {}, in {}",
            best.success_rate,
            counted(best.step, "step"),
            model.display()
        )?;
    }
    results.print_costs(out)?;
    if run.skipped() > 0 {
        let steps = counted(run.skipped(), "step");
        writeln!(out, "  skipped: {steps} with a number that is not finite; see dumps/")?;
    }
    print_findings(run.path(), out)
}

/// What the doctor says of a run, in three lines at most.
pub(crate) fn print_findings(folder: &Path, out: &mut dyn Write) -> Result<(), Failure> {
    let findings = doctor::examine(&lens_report::Run::load(open_run(folder)?));
    for line in doctor::brief(&findings, 3) {
        writeln!(out, "  {line}")?;
    }
    Ok(())
}
