//! `lens env check`: does an environment repeat itself, and how are its states put back?

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lens_env::{Actions, Benchmark, EnvError, Snapshot, Status, View};
use lens_opd::random::{Purpose, Stream, StreamKey};

use super::source::Source;
use crate::failure::Failure;

/// Play random episodes, fork each in the middle and count how often both agree
#[derive(Debug, clap::Args)]
pub(crate) struct Check {
    #[command(flatten)]
    source: Source,
    /// The split; the one to train on by default.
    #[arg(long)]
    split: Option<String>,
    /// Episodes to play.
    #[arg(long, value_name = "N", default_value_t = 20)]
    episodes: usize,
    /// Turns before the fork, at most.
    #[arg(long, value_name = "TURNS", default_value_t = 10)]
    turns: usize,
    /// Turns of each branch after the fork.
    #[arg(long, value_name = "TURNS", default_value_t = 3)]
    branch: usize,
    /// An action to try where the environment lists none; may be given several times.
    #[arg(long = "action", value_name = "TEXT", default_value = "look")]
    actions: Vec<String>,
    /// The seed of the draws.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, Default)]
struct Tally {
    episodes: usize,
    steps: usize,
    forks: usize,
    repeated: usize,
    differing: Vec<String>,
    failed: Vec<String>,
    stepping: Duration,
    restoring: Duration,
}

impl Check {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let benchmark = self.source.open()?;
        let split =
            self.split.clone().unwrap_or_else(|| benchmark.profile().train_split.to_string());
        let tasks = benchmark.tasks(&split)?;
        let mut tally = Tally::default();
        for number in 0..self.episodes {
            let Some(task) = tasks.get(number % tasks.len().max(1)) else { break };
            let key = StreamKey::new(self.seed, 0, number as u64, Purpose::Data, 0);
            tally.episodes += 1;
            if let Err(error) = self.episode(&benchmark, task, &mut key.open(), &mut tally) {
                let list = match error {
                    EnvError::NotRepeatable(_) | EnvError::Restore(_) => &mut tally.differing,
                    _ => &mut tally.failed,
                };
                list.push(format!("{}: {error}", task.id));
            }
        }
        self.report(&tally, out)?;
        if tally.forks == 0 || tally.repeated < tally.forks {
            return Err(Failure::user(
                "the environment does not repeat itself, so forks of it would be dropped; seed everything random by the task",
            ));
        }
        Ok(())
    }

    /// Plays to a random turn, forks twice and compares the branches.
    fn episode(
        &self,
        benchmark: &Arc<dyn Benchmark>,
        task: &lens_env::Task,
        draws: &mut Stream,
        tally: &mut Tally,
    ) -> Result<(), EnvError> {
        let mut environment = Arc::clone(benchmark).environment()?;
        let mut view = environment.reset(task)?;
        let turns = draws.below(self.turns as u64 + 1).unwrap_or_default();
        let mut saved = environment.snapshot()?;
        for _ in 0..turns {
            let action = self.some_action(&view, draws);
            let started = Instant::now();
            let next = environment.step(&action)?;
            tally.stepping += started.elapsed();
            tally.steps += 1;
            if next.status != Status::Running {
                break;
            }
            view = next;
            saved = environment.snapshot()?;
        }
        tally.forks += 1;
        let plan: Vec<f64> = (0..self.branch).map(|_| draws.uniform()).collect();
        let first = self.branch(benchmark, &saved, &plan, tally)?;
        let second = self.branch(benchmark, &saved, &plan, tally)?;
        if first.first() != Some(&view) || first != second {
            return Err(EnvError::Restore("two branches with the same actions differ".to_owned()));
        }
        tally.repeated += 1;
        Ok(())
    }

    fn branch(
        &self,
        benchmark: &Arc<dyn Benchmark>,
        saved: &Snapshot,
        plan: &[f64],
        tally: &mut Tally,
    ) -> Result<Vec<View>, EnvError> {
        let mut environment = Arc::clone(benchmark).environment()?;
        let started = Instant::now();
        let mut views = vec![environment.restore(saved)?];
        tally.restoring += started.elapsed();
        for share in plan {
            let Some(view) = views.last().filter(|view| view.status == Status::Running) else {
                break;
            };
            let action = self.listed(view, |count| (share * count as f64) as usize);
            views.push(environment.step(&action)?);
        }
        Ok(views)
    }

    fn some_action(&self, view: &View, draws: &mut Stream) -> String {
        self.listed(view, |count| draws.below(count as u64).unwrap_or_default() as usize)
    }

    /// One of the listed actions, or of those given where none is listed.
    fn listed(&self, view: &View, choose: impl FnOnce(usize) -> usize) -> String {
        let listed = match &view.actions {
            Actions::Commands(commands) if !commands.is_empty() => commands,
            _ => &self.actions,
        };
        listed.get(choose(listed.len())).cloned().unwrap_or_default()
    }

    fn report(&self, tally: &Tally, out: &mut dyn Write) -> Result<(), Failure> {
        let each = |time: Duration, count: usize| 1000.0 * time.as_secs_f64() / count.max(1) as f64;
        writeln!(
            out,
            "{}: {} episodes, {} steps",
            self.source.benchmark, tally.episodes, tally.steps
        )?;
        writeln!(
            out,
            "repeatable: {} of {} forks ({:.1} %)",
            tally.repeated,
            tally.forks,
            100.0 * tally.repeated as f64 / tally.forks.max(1) as f64
        )?;
        writeln!(
            out,
            "a step takes {:.2} ms, putting a state back {:.2} ms",
            each(tally.stepping, tally.steps),
            each(tally.restoring, 2 * tally.forks)
        )?;
        for (what, list) in [("not repeatable", &tally.differing), ("failed", &tally.failed)] {
            for line in list.iter().take(5) {
                writeln!(out, "{what}: {line}")?;
            }
        }
        Ok(())
    }
}
