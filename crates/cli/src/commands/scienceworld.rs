//! What the verbs do for ScienceWorld.

mod bench;
mod courses;
mod data;
mod peer;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

pub(crate) use bench::Bench;
pub(crate) use data::Data;
use lens_env::Benchmark;
use lens_env::scienceworld::golden::{self, Recording};
use lens_env::scienceworld::{Options, PoolLimits, Rules, ScienceWorld};

use super::play::Choice;
use crate::failure::Failure;

/// Which simulator, and what it may use.
#[derive(Debug, clap::Args)]
pub(crate) struct Simulator {
    /// The simulator: scienceworld.jar, the wheel, or a folder with either; by default LENS_SCIENCEWORLD and the usual
    /// places of Python packages are searched.
    #[arg(long, value_name = "PATH")]
    simulator: Option<PathBuf>,
    /// The Java program; JAVA_HOME and the search path by default.
    #[arg(long, value_name = "PROGRAM")]
    java: Option<PathBuf>,
    /// "easy", nothing, or names joined by commas.
    #[arg(long, default_value = "easy")]
    simplifications: String,
    /// How many Java virtual machines; one per processor by default, at most eight.
    #[arg(long, value_name = "NUMBER")]
    machines: Option<usize>,
}

impl Simulator {
    fn options(&self) -> Options {
        let mut limits = PoolLimits::default();
        if let Some(machines) = self.machines {
            limits.hosts = machines.max(1);
        }
        Options {
            package: self.simulator.clone(),
            java: self.java.clone(),
            cache: None,
            rules: Rules { simplifications: self.simplifications.clone(), ..Rules::default() },
            limits,
        }
    }

    fn open(&self) -> Result<Arc<ScienceWorld>, Failure> {
        Ok(ScienceWorld::open(self.options())?)
    }

    fn open_cold(&self) -> Result<Arc<ScienceWorld>, Failure> {
        Ok(ScienceWorld::open_cold(self.options())?)
    }
}

/// Play primary-school science in text: boil, grow, measure, connect, find
#[derive(Debug, clap::Args)]
pub(crate) struct Play {
    #[command(flatten)]
    simulator: Simulator,
    #[command(flatten)]
    choice: Choice,
}

impl Play {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        // One person plays one world.
        let mut options = self.simulator.options();
        options.limits.hosts = self.simulator.machines.unwrap_or(1);
        let benchmark: Arc<dyn Benchmark> = ScienceWorld::open(options)?;
        self.choice.play(&benchmark, out)
    }
}

/// Replay recordings of ScienceWorld's own Python package and print every difference
///
/// A recording is a JSON line about the package it was made with, then a line per episode: its task, variation and seed,
/// and what every step answered (`Recording` in crates/env/src/scienceworld/golden.rs has the fields). None is shipped.
#[derive(Debug, clap::Args)]
pub(crate) struct Replay {
    #[command(flatten)]
    simulator: Simulator,
    /// Files of recordings (.jsonl or .jsonl.zst).
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    golden: Vec<PathBuf>,
    /// Episodes played side by side; three per machine by default.
    #[arg(long, value_name = "NUMBER")]
    workers: Option<usize>,
    /// Print at most this many differences of each file.
    #[arg(long, default_value_t = 10)]
    show: usize,
}

impl Replay {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let benchmark = self.simulator.open()?;
        let workers = self.workers.unwrap_or(3 * benchmark.pool().limits().hosts);
        let mut differences = 0;
        for path in &self.golden {
            let recording = Recording::read(path)?;
            let episodes: Vec<_> = recording.episodes.iter().collect();
            let steps: usize = episodes.iter().map(|episode| episode.steps.len()).sum();
            let limit = recording.meta.step_limit;
            let mismatches = golden::replay_all(benchmark.pool(), &episodes, limit, workers)?;
            writeln!(
                out,
                "{}: {} episodes, {steps} steps, {} mismatches",
                path.display(),
                episodes.len(),
                mismatches.len()
            )?;
            for mismatch in mismatches.iter().take(self.show) {
                writeln!(out, "  {mismatch}")?;
            }
            out.flush()?;
            differences += mismatches.len();
        }
        let incidents = benchmark.incidents();
        if incidents.failures() > 0 {
            writeln!(out, "machines replaced: {incidents:?}")?;
        }
        if differences > 0 {
            return Err(Failure::user(format!("{differences} mismatches with the recordings")));
        }
        Ok(())
    }
}
