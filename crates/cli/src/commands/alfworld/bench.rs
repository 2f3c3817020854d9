//! How fast the engine is, in CPU time.

use std::io::Write;
use std::sync::Arc;

use lens_env::alfworld::{Alfworld, AlfworldEnvironment};
use lens_env::{Actions, Benchmark, Environment, Status, Task, View};
use lens_opd::random::{Purpose, Stream, StreamKey};

use super::Games;
use crate::cpu_time::CpuTime;
use crate::failure::Failure;

/// Turns of one episode, the paper's limit.
const TURNS: usize = 30;

/// Time the native engine
#[derive(Debug, clap::Args)]
pub(crate) struct Bench {
    #[command(flatten)]
    games: Games,
    /// Steps to time.
    #[arg(long, default_value_t = 300_000)]
    steps: usize,
    /// Environments that run at once in the last measurement.
    #[arg(long, default_value_t = 1000)]
    environments: usize,
}

impl Bench {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let start = CpuTime::now();
        let alfworld = self.games.open(&[])?;
        let tasks = Self::tasks(&alfworld)?;
        writeln!(out, "{:<44}{:>12.3} s", format!("open {} games", tasks.len()), start.seconds())?;
        let start = CpuTime::now();
        for task in &tasks {
            alfworld.game(&task.id)?;
        }
        let each = start.seconds() / tasks.len() as f64;
        writeln!(
            out,
            "{:<44}{:>12.1} us a game",
            "make ready (generated games are made here)",
            each * 1e6
        )?;
        Self::resets(&alfworld, &tasks, out)?;
        self.steps(&alfworld, &tasks, out)?;
        Self::snapshots(&alfworld, &tasks, out)?;
        self.many(&alfworld, &tasks, out)
    }

    fn tasks(alfworld: &Alfworld) -> Result<Vec<Task>, Failure> {
        let mut tasks = Vec::new();
        for split in alfworld.splits() {
            tasks.extend(alfworld.tasks(&split.name)?);
        }
        Ok(tasks)
    }

    fn resets(
        alfworld: &Arc<Alfworld>,
        tasks: &[Task],
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let mut environment = Arc::clone(alfworld).environment()?;
        let start = CpuTime::now();
        for task in tasks {
            environment.reset(task)?;
        }
        let each = start.seconds() / tasks.len() as f64;
        writeln!(out, "{:<44}{:>12.1} us", "reset, with observation and command list", each * 1e6)?;
        Ok(())
    }

    /// Random play in fresh episodes; choosing the commands is timed as well.
    fn steps(
        &self,
        alfworld: &Arc<Alfworld>,
        tasks: &[Task],
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let mut environment = Arc::clone(alfworld).environment()?;
        let mut stream = stream();
        let mut commands = 0;
        let mut in_steps = 0.0;
        let mut done = 0;
        for task in tasks.iter().cycle() {
            let mut view = environment.reset(task)?;
            let start = CpuTime::now();
            for _ in 0..TURNS {
                commands += count(&view);
                view = environment.step(&choose(&view, &mut stream))?;
                done += 1;
            }
            in_steps += start.seconds();
            if done >= self.steps {
                break;
            }
        }
        let rate = done as f64 / in_steps;
        let mean = commands as f64 / done as f64;
        let label = format!("steps, with observation and {mean:.1} commands");
        writeln!(out, "{label:<44}{rate:>12.0} steps per CPU-second")?;
        Ok(())
    }

    fn snapshots(
        alfworld: &Arc<Alfworld>,
        tasks: &[Task],
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let mut environment = Arc::clone(alfworld).environment()?;
        let mut stream = stream();
        let rounds = 20_000;
        let mut in_snapshots = 0.0;
        let mut done = 0;
        for task in tasks.iter().cycle().take(200) {
            let mut view = environment.reset(task)?;
            for _ in 0..10 {
                view = environment.step(&choose(&view, &mut stream))?;
            }
            let start = CpuTime::now();
            for _ in 0..rounds / 200 {
                let snapshot = environment.snapshot()?;
                environment.restore(&snapshot)?;
                done += 1;
            }
            in_snapshots += start.seconds();
        }
        let each = in_snapshots / f64::from(done);
        writeln!(out, "{:<44}{:>12.2} us", "snapshot and restore, with observation", each * 1e6)?;
        Ok(())
    }

    /// Many environments, each on a game of its own where there are enough, stepped in turn.
    fn many(
        &self,
        alfworld: &Arc<Alfworld>,
        tasks: &[Task],
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let start = CpuTime::now();
        let mut running: Vec<(AlfworldEnvironment, View)> = Vec::with_capacity(self.environments);
        let mut games = 0;
        for task in tasks.iter().cycle().take(self.environments) {
            games += alfworld.game(&task.id)?.heap_bytes();
            let mut environment = alfworld.play();
            let view = environment.reset(task)?;
            running.push((environment, view));
        }
        let mut stream = stream();
        let mut done = 0;
        for _ in 0..TURNS {
            for (environment, view) in &mut running {
                if view.status == Status::Running {
                    *view = environment.step(&choose(view, &mut stream))?;
                    done += 1;
                }
            }
        }
        let seconds = start.seconds();
        let label = format!("{} environments at once, {done} steps", running.len());
        writeln!(out, "{label:<44}{:>12.0} steps per CPU-second", f64::from(done) / seconds)?;
        let each = |bytes: usize| bytes as f64 / running.len().max(1) as f64 / 1e3;
        writeln!(out, "{:<44}{:>12.1} kB", "a game, shared by its players", each(games))?;
        let environments = running.iter().map(|(environment, _)| environment.bytes()).sum();
        writeln!(out, "{:<44}{:>12.1} kB", "a live environment", each(environments))?;
        let views = running.iter().map(|(_, view)| view_bytes(view)).sum();
        writeln!(out, "{:<44}{:>12.1} kB", "its latest view, kept by the player", each(views))?;
        Ok(())
    }
}

fn view_bytes(view: &View) -> usize {
    let commands = match &view.actions {
        Actions::Commands(commands) => commands.as_slice(),
        Actions::Templates { .. } | Actions::Free => &[],
    };
    let text = |text: &String| size_of::<String>() + text.capacity();
    let listed: usize = commands.iter().map(text).sum();
    size_of::<View>() + view.task.capacity() + view.observation.capacity() + listed
}

fn stream() -> Stream {
    StreamKey::new(0, 0, 0, Purpose::Rollout, 0).open()
}

fn count(view: &View) -> usize {
    match &view.actions {
        Actions::Commands(commands) => commands.len(),
        Actions::Templates { .. } | Actions::Free => 0,
    }
}

fn choose(view: &View, stream: &mut Stream) -> String {
    match &view.actions {
        Actions::Commands(commands) => {
            let index = stream.below(commands.len() as u64).unwrap_or(0) as usize;
            commands.get(index).cloned().unwrap_or_default()
        }
        Actions::Templates { .. } | Actions::Free => String::new(),
    }
}
