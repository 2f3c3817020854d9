//! `lens env bench` for environments in other processes: steps per second with many sessions at once, beside one of our
//! benchmarks in this process and behind a socket.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use lens_env::remote::EnvironmentOptions;
use lens_env::{
    Actions, Benchmark, BenchmarkOptions, EnvError, Status, Task, View, openenv, registry,
};
use lens_opd::random::{Purpose, Stream, StreamKey};
use lens_serve::{ServeOptions, Server};

use super::source::Reach;
use crate::failure::Failure;

/// Time steps of an environment in another process, with many sessions at once
///
/// Every session plays random listed actions, all of them the same number of steps. The rate is all steps over the time
/// from the first to the last, less what an average session spent in resets; those are timed apart.
#[derive(Debug, clap::Args)]
pub(crate) struct RemoteBench {
    #[command(flatten)]
    reach: Reach,
    /// Sessions at once; several numbers are measured one after another.
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "1,16")]
    sessions: Vec<usize>,
    /// Steps to time, all sessions together.
    #[arg(long, value_name = "N", default_value_t = 2000)]
    steps: usize,
    /// Turns of one episode, at most.
    #[arg(long, value_name = "TURNS", default_value_t = 30)]
    turns: usize,
    /// The split; the one to train on by default.
    #[arg(long)]
    split: Option<String>,
    /// An action to try where the environment lists none; may be given several times.
    #[arg(long = "action", value_name = "TEXT", default_value = "look")]
    actions: Vec<String>,
    /// Also time this benchmark of ours, in this process and served, and print how they compare.
    #[arg(long, value_name = "BENCHMARK")]
    against: Option<String>,
    /// The official data of that benchmark; what is built in by default.
    #[arg(long, value_name = "PATH", requires = "against")]
    data: Option<PathBuf>,
}

/// What was measured of one environment.
#[derive(Debug, Clone, Copy)]
struct Speed {
    steps_per_second: f64,
    reset: Duration,
}

/// What one session did.
#[derive(Debug)]
struct Share {
    steps: usize,
    begun: Instant,
    ended: Instant,
    resets: u32,
    resetting: Duration,
}

impl RemoteBench {
    pub(crate) fn run(&self, name: &str, out: &mut dyn Write) -> Result<(), Failure> {
        let theirs = self.reach.open(name)?;
        if self.sessions.contains(&0) || self.steps == 0 || self.turns == 0 {
            return Err(Failure::user("--sessions, --steps and --turns are at least 1"));
        }
        let Some(against) = &self.against else {
            writeln!(out, "{:>8} {:>14} {:>12}", "sessions", "steps/s", "reset, ms")?;
            for &count in &self.sessions {
                let speed = self.measure(&theirs, count)?;
                let reset = 1000.0 * speed.reset.as_secs_f64();
                writeln!(out, "{count:>8} {:>14.0} {reset:>12.2}", speed.steps_per_second)?;
            }
            return Ok(());
        };
        let options = BenchmarkOptions { data: self.data.clone(), ..BenchmarkOptions::default() };
        let ours = registry::open(against, &options)?;
        let most = self.sessions.iter().copied().max().unwrap_or(1);
        let serving = ServeOptions {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            max_sessions: most + 1,
            ..ServeOptions::default()
        };
        let server = Server::start(Arc::clone(&ours), &serving)
            .map_err(|error| Failure::Runtime(error.into()))?;
        let url = format!("http://{}", server.address());
        let reached = EnvironmentOptions {
            observation: "{{ observation.text }}".to_owned(),
            url,
            ..EnvironmentOptions::default()
        };
        let served: Arc<dyn Benchmark> = openenv::open(&reached)?;
        writeln!(out, "steps per second; the machine's other work counts against all columns")?;
        writeln!(
            out,
            "{:>8} {:>14} {:>14} {:>14} {:>16} {:>18}",
            "sessions",
            "in process",
            "our server",
            "their server",
            "ours / theirs",
            "socket, us a step"
        )?;
        for &count in &self.sessions {
            let inside = self.measure(&ours, count)?.steps_per_second;
            let socket = self.measure(&served, count)?.steps_per_second;
            let other = self.measure(&theirs, count)?.steps_per_second;
            writeln!(
                out,
                "{count:>8} {inside:>14.0} {socket:>14.0} {other:>14.0} {:>16.1} {:>18.1}",
                socket / other,
                1e6 / socket - 1e6 / inside
            )?;
        }
        Ok(())
    }

    /// Plays `count` sessions at once, all of them started before the clock runs.
    fn measure(&self, benchmark: &Arc<dyn Benchmark>, count: usize) -> Result<Speed, Failure> {
        let profile = benchmark.profile();
        let tasks = benchmark.tasks(self.split.as_deref().unwrap_or(&profile.train_split))?;
        if tasks.is_empty() {
            return Err(Failure::user("the split has no tasks"));
        }
        let steps = self.steps.div_ceil(count);
        let ready = Barrier::new(count);
        let shares: Vec<Result<Share, EnvError>> = std::thread::scope(|scope| {
            let play = |number: usize| self.play(benchmark, &tasks, number, steps, &ready);
            let threads: Vec<_> =
                (0..count).map(|number| scope.spawn(move || play(number))).collect();
            let ended =
                threads.into_iter().map(|thread| thread.join().unwrap_or(Err(EnvError::NotReset)));
            ended.collect()
        });
        let shares = shares.into_iter().collect::<Result<Vec<Share>, EnvError>>()?;
        let played: usize = shares.iter().map(|share| share.steps).sum();
        let begun = shares.iter().map(|share| share.begun).min();
        let ended = shares.iter().map(|share| share.ended).max();
        let whole = begun.zip(ended).map_or(Duration::ZERO, |(begun, ended)| ended - begun);
        let resets: u32 = shares.iter().map(|share| share.resets).sum();
        let resetting: Duration = shares.iter().map(|share| share.resetting).sum();
        let stepping = whole.saturating_sub(resetting / count as u32);
        Ok(Speed {
            steps_per_second: played as f64 / stepping.as_secs_f64().max(1e-9),
            reset: resetting / resets.max(1),
        })
    }

    /// One session. Whatever happens to it, it lets the others start.
    fn play(
        &self,
        benchmark: &Arc<dyn Benchmark>,
        tasks: &[Task],
        number: usize,
        steps: usize,
        ready: &Barrier,
    ) -> Result<Share, EnvError> {
        let mut draws = StreamKey::new(1, 0, number as u64, Purpose::Data, 0).open();
        let mut next = number;
        let started = Arc::clone(benchmark).environment().and_then(|mut environment| {
            let view = environment.reset(&tasks[next % tasks.len()])?;
            Ok((environment, view))
        });
        ready.wait();
        let (mut environment, mut view) = started?;
        let begun = Instant::now();
        let mut share =
            Share { steps: 0, begun, ended: begun, resets: 0, resetting: Duration::ZERO };
        while share.steps < steps {
            if view.status != Status::Running || view.turn >= self.turns {
                next += 1;
                let start = Instant::now();
                view = environment.reset(&tasks[next % tasks.len()])?;
                share.resetting += start.elapsed();
                share.resets += 1;
            }
            let action = self.choose(&view, &mut draws);
            view = environment.step(&action)?;
            share.steps += 1;
        }
        share.ended = Instant::now();
        Ok(share)
    }

    fn choose(&self, view: &View, draws: &mut Stream) -> String {
        let listed = match &view.actions {
            Actions::Commands(commands) if !commands.is_empty() => commands,
            _ => &self.actions,
        };
        let index = draws.below(listed.len() as u64).unwrap_or_default() as usize;
        listed.get(index).cloned().unwrap_or_default()
    }
}
