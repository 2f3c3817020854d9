//! How fast the simulator is behind our client, and behind its own.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use lens_env::scienceworld::{Replay, ScienceWorld, ScienceWorldEnvironment};
use lens_env::{Environment, Snapshot};

use super::Simulator;
use super::courses::{self, Course};
use super::peer::Peer;
use crate::cpu_time::CpuTime;
use crate::failure::Failure;

/// Time the real simulator behind our client
///
/// With --python the same courses are played by the simulator's own Python client in the same run,
/// in turns, and ratios are printed; on a busy computer only the ratios mean anything.
#[derive(Debug, clap::Args)]
pub(crate) struct Bench {
    #[command(flatten)]
    simulator: Simulator,
    /// A Python in which the package scienceworld is installed.
    #[arg(long, value_name = "PROGRAM")]
    python: Option<PathBuf>,
    /// Rounds that are timed, after those that warm the machines up. A round is eight courses.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Rounds that are not timed: the simulator's code is compiled while it runs.
    #[arg(long, default_value_t = 2)]
    warm_up: usize,
    /// Actions in a course.
    #[arg(long, default_value_t = 30)]
    turns: usize,
    /// How long the history of a restored state is.
    #[arg(long, default_value_t = 15)]
    prefix: usize,
    /// Environments that run at once in the last measurement. The Python client starts a machine for each.
    #[arg(long, default_value_t = 16)]
    environments: usize,
    /// Actions of each of them.
    #[arg(long, default_value_t = 10)]
    turns_at_once: usize,
}

/// Seconds by the clock and on processors, and how many things were done in them.
#[derive(Debug, Default, Clone, Copy)]
struct Cost {
    clock: f64,
    processor: f64,
    count: usize,
}

impl Cost {
    fn add(&mut self, clock: f64, processor: f64, count: usize) {
        self.clock += clock;
        self.processor += processor;
        self.count += count;
    }

    /// Milliseconds for one thing: clock, processor.
    fn each(self) -> (f64, f64) {
        let count = self.count.max(1) as f64;
        (1e3 * self.clock / count, 1e3 * self.processor / count)
    }
}

/// One line of the table.
struct Row {
    what: String,
    ours: Cost,
    theirs: Option<Cost>,
}

impl Bench {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let cold = self.cold_start()?;
        let benchmark = self.simulator.open()?;
        let mut peer = self.python.as_deref().map(Peer::start).transpose()?;
        let courses = courses::walk(&benchmark, self.turns)?;
        let mut rows = vec![cold];
        if let Some(peer) = &mut peer {
            let first = courses.first().into_iter().collect::<Vec<_>>();
            let before = peer.processor_seconds();
            let clock = peer.ask("start", &first)?;
            let mut theirs = Cost::default();
            theirs.add(clock, peer.processor_seconds() - before, 1);
            rows[0].theirs = Some(theirs);
        }
        rows.extend(self.measure(&benchmark, &courses, &mut peer)?);
        let (together, memory) = self.together(&benchmark, &courses, &mut peer)?;
        rows.push(together);
        print(&rows, out)?;
        writeln!(out, "{memory}")?;
        let restored = benchmark.replay_report();
        writeln!(
            out,
            "machines replaced {}, fast restores that had to be repeated {}",
            benchmark.incidents().failures(),
            restored.fast_replays_refused
        )?;
        Ok(())
    }

    /// From nothing to a first observation.
    fn cold_start(&self) -> Result<Row, Failure> {
        let mut options = self.simulator.options();
        options.limits.hosts = 1;
        let begin = Instant::now();
        let benchmark = ScienceWorld::open_cold(options)?;
        let mut environment = benchmark.scienceworld_environment();
        environment.reset(&lens_env::scienceworld::catalog::TASK_TYPES[0].task(0))?;
        let mut ours = Cost::default();
        ours.add(begin.elapsed().as_secs_f64(), machines_seconds(&benchmark), 1);
        Ok(Row { what: "start, to a first observation".to_owned(), ours, theirs: None })
    }

    /// Resets, steps and restores, both sides in turns.
    fn measure(
        &self,
        benchmark: &Arc<ScienceWorld>,
        courses: &[Course],
        peer: &mut Option<Peer>,
    ) -> Result<Vec<Row>, Failure> {
        let [mut reset, mut step, mut fast, mut exact] = [Cost::default(); 4];
        let [mut peer_reset, mut peer_step, mut peer_restore] = [Cost::default(); 3];
        // One machine, so that both sides use the same.
        let mut environment = benchmark.scienceworld_environment();
        for round in 0..self.warm_up + self.rounds {
            let timed = round >= self.warm_up;
            for course in courses {
                let task = course.kind.task(course.variation);
                let steps = course.actions.len();
                let taken = Self::time(benchmark, || environment.reset(&task).map(drop))?;
                note(&mut reset, taken, 1, timed);
                let mut middle = None;
                let taken = Self::time(benchmark, || {
                    for (turn, action) in course.actions.iter().enumerate() {
                        if turn == self.prefix {
                            middle = Some(environment.snapshot()?);
                        }
                        environment.step(action)?;
                    }
                    Ok(())
                })?;
                note(&mut step, taken, steps, timed);
                if let Some(middle) = middle {
                    for (replay, cost) in [(Replay::Fast, &mut fast), (Replay::Exact, &mut exact)] {
                        let taken = Self::restore(benchmark, &middle, replay)?;
                        note(cost, taken, 1, timed);
                    }
                }
                if let Some(peer) = peer {
                    let before = peer.processor_seconds();
                    let clock = peer.ask("resets", &[course])?;
                    let after_reset = peer.processor_seconds();
                    note(&mut peer_reset, (clock, after_reset - before), 1, timed);
                    let clock = peer.ask("steps", &[course])?;
                    let after_steps = peer.processor_seconds();
                    // The answer's seconds are those of the steps alone; the processor's include a reset.
                    let processor = after_steps - after_reset - (after_reset - before);
                    note(&mut peer_step, (clock, processor.max(0.0)), steps, timed);
                    let clock = peer.ask("restore", &[&course.prefix(self.prefix)])?;
                    note(
                        &mut peer_restore,
                        (clock, peer.processor_seconds() - after_steps),
                        1,
                        timed,
                    );
                }
            }
        }
        let theirs = |cost: Cost| peer.is_some().then_some(cost);
        let prefix = self.prefix;
        Ok(vec![
            Row {
                what: "reset, all prompt fields".to_owned(),
                ours: reset,
                theirs: theirs(peer_reset),
            },
            Row {
                what: "step, all prompt fields".to_owned(),
                ours: step,
                theirs: theirs(peer_step),
            },
            Row {
                what: format!("restore a state {prefix} steps deep"),
                ours: fast,
                theirs: theirs(peer_restore),
            },
            Row {
                what: "the same, every question repeated".to_owned(),
                ours: exact,
                theirs: theirs(peer_restore),
            },
        ])
    }

    fn restore(
        benchmark: &Arc<ScienceWorld>,
        snapshot: &Snapshot,
        replay: Replay,
    ) -> Result<(f64, f64), Failure> {
        let mut other = benchmark.scienceworld_environment();
        Self::time(benchmark, || other.restore_by(snapshot, replay).map(drop))
    }

    /// Many environments at once; and what one of them takes in memory.
    fn together(
        &self,
        benchmark: &Arc<ScienceWorld>,
        courses: &[Course],
        peer: &mut Option<Peer>,
    ) -> Result<(Row, String), Failure> {
        let count = self.environments.max(1);
        let chosen: Vec<Course> = courses
            .iter()
            .cycle()
            .take(count)
            .map(|course| course.prefix(self.turns_at_once))
            .collect();
        let steps: usize = chosen.iter().map(|course| course.actions.len()).sum();
        let mut environments: Vec<ScienceWorldEnvironment> =
            chosen.iter().map(|_| benchmark.scienceworld_environment()).collect();
        let taken = Self::time(benchmark, || {
            let results: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = environments
                    .iter_mut()
                    .zip(&chosen)
                    .map(|(environment, course)| scope.spawn(|| play(environment, course)))
                    .collect();
                threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
            });
            results.into_iter().try_for_each(|result| {
                result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        })?;
        let mut ours = Cost::default();
        ours.add(taken.0, taken.1, steps);
        let bytes: u64 =
            benchmark.pool().hosts().iter().filter_map(|host| host.jvm().resident_bytes()).sum();
        let mut memory = format!(
            "memory, {count} environments at once: ours {:.0} MB in {} machines ({:.0} MB each environment)",
            bytes as f64 / 1e6,
            benchmark.pool().hosts().len(),
            bytes as f64 / 1e6 / count as f64
        );
        drop(environments);
        let mut theirs = None;
        if let Some(peer) = peer {
            for course in chosen.iter().skip(1) {
                peer.ask("start", &[course])?;
            }
            let before = peer.processor_seconds();
            let references: Vec<&Course> = chosen.iter().collect();
            let clock = peer.ask("together", &references)?;
            let mut cost = Cost::default();
            cost.add(clock, peer.processor_seconds() - before, steps);
            theirs = Some(cost);
            let peer_bytes = peer.resident_bytes() as f64;
            memory += &format!(
                ", Python {:.0} MB ({:.0} MB each), ratio {:.1}",
                peer_bytes / 1e6,
                peer_bytes / 1e6 / count as f64,
                peer_bytes / bytes.max(1) as f64
            );
        }
        let what = format!("step, {count} environments at once, with resets");
        Ok((Row { what, ours, theirs }, memory))
    }

    /// Clock and processor seconds of some work: this process and the machines.
    fn time(
        benchmark: &ScienceWorld,
        work: impl FnOnce() -> Result<(), lens_env::EnvError>,
    ) -> Result<(f64, f64), Failure> {
        let machines = machines_seconds(benchmark);
        let own = CpuTime::now();
        let begin = Instant::now();
        work()?;
        let clock = begin.elapsed().as_secs_f64();
        Ok((clock, own.seconds() + machines_seconds(benchmark) - machines))
    }
}

fn play(
    environment: &mut ScienceWorldEnvironment,
    course: &Course,
) -> Result<(), lens_env::EnvError> {
    environment.reset(&course.kind.task(course.variation))?;
    course.actions.iter().try_for_each(|action| environment.step(action).map(drop))
}

fn machines_seconds(benchmark: &ScienceWorld) -> f64 {
    let hosts = benchmark.pool().hosts();
    hosts.iter().filter_map(|host| host.jvm().processor_time()).map(|time| time.as_secs_f64()).sum()
}

fn note(cost: &mut Cost, (clock, processor): (f64, f64), count: usize, timed: bool) {
    if timed {
        cost.add(clock, processor, count);
    }
}

fn print(rows: &[Row], out: &mut dyn Write) -> Result<(), Failure> {
    writeln!(
        out,
        "{:<46}{:>14}{:>14}{:>14}{:>14}{:>9}{:>9}",
        "milliseconds each",
        "ours, clock",
        "Python, clock",
        "ours, CPU",
        "Python, CPU",
        "ratio",
        "CPU"
    )?;
    for row in rows {
        let (clock, processor) = row.ours.each();
        write!(out, "{:<46}{clock:>14.1}", row.what)?;
        match row.theirs.map(Cost::each) {
            Some((peer_clock, peer_processor)) => writeln!(
                out,
                "{peer_clock:>14.1}{processor:>14.1}{peer_processor:>14.1}{:>9.1}{:>9.1}",
                peer_clock / clock,
                peer_processor / processor
            )?,
            None => writeln!(out, "{:>14}{processor:>14.1}", "")?,
        }
    }
    Ok(())
}
