//! `lens data scienceworld`: where the simulator comes from, whether it is right, and its solutions.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use lens_env::scienceworld::catalog::{Split, TASK_TYPES, TaskType};
use lens_env::scienceworld::gold::GoldPath;
use lens_env::scienceworld::java::Java;
use lens_env::scienceworld::package::{self, Package};
use lens_env::{Benchmark, EnvError, Task};

use super::Simulator;
use crate::failure::Failure;

/// Show where to get ScienceWorld's simulator, and verify a local copy
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Data {
    #[command(flatten)]
    simulator: Simulator,
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Solve tasks with the simulator, keep the solutions, and count the complete ones
    Gold(Gold),
}

impl Data {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        match &self.what {
            None => self.verify(out),
            Some(What::Gold(gold)) => gold.run(out),
        }
    }

    fn verify(&self, out: &mut dyn Write) -> Result<(), Failure> {
        writeln!(
            out,
            "The simulator is inside the Python package scienceworld {} (Apache-2.0). Python is not needed to run it:\n  {}\n\
             gets the wheel and a py4j that asks for a token; then {}=scienceworld, or --simulator scienceworld.\n\
             Java {} or newer must be installed (Debian and Ubuntu: apt-get install default-jre-headless).\n",
            package::VERSION,
            package::DOWNLOAD,
            package::VARIABLE,
            8
        )?;
        Self::count(out)?;
        let cache = package::cache_folder();
        let package = Package::find(self.simulator.simulator.as_deref(), &cache);
        let java = match &self.simulator.java {
            Some(program) => Java::at(program),
            None => Java::find(),
        };
        // Both are looked for before either is missed, so that one run tells everything.
        match (package, java) {
            (Ok(package), Ok(java)) => {
                writeln!(out, "simulator  {} (SHA-256 verified)", package.jar().display())?;
                match package.gateway_jar() {
                    Some(jar) => writeln!(out, "gateway    {} (asks for a token)", jar.display())?,
                    None => writeln!(
                        out,
                        "gateway    the one inside the simulator: bound to this computer's loopback address, no token"
                    )?,
                }
                writeln!(
                    out,
                    "java       {} (version {})",
                    java.program().display(),
                    java.version()
                )?;
                writeln!(out, "cache      {}", cache.display())?;
                Ok(())
            }
            (Err(simulator), Err(java)) => Err(Failure::user(format!("{simulator}\nand {java}"))),
            (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(error.into()),
        }
    }

    fn count(out: &mut dyn Write) -> Result<(), Failure> {
        write!(out, "{:<6}{:<50}", "id", "kind of task")?;
        for split in Split::ALL {
            write!(out, "{:>16}", split.name())?;
        }
        writeln!(out)?;
        for kind in &TASK_TYPES {
            write!(out, "{:<6}{:<50}", kind.id, kind.name)?;
            for split in Split::ALL {
                write!(out, "{:>16}", split.variations(kind).len())?;
            }
            writeln!(out)?;
        }
        write!(out, "{:<56}", "all")?;
        for split in Split::ALL {
            write!(out, "{:>16}", split.info().tasks)?;
        }
        writeln!(out, "\n")?;
        Ok(())
    }
}

/// Solve tasks with the simulator, keep the solutions, and count the complete ones
#[derive(Debug, clap::Args)]
struct Gold {
    #[command(flatten)]
    simulator: Simulator,
    /// The split.
    #[arg(long, default_value = "train")]
    split: String,
    /// Only these kinds of task, by name or number.
    #[arg(long, num_args = 1.., value_name = "KIND")]
    kind: Vec<String>,
    /// Only so many tasks of each kind, the first ones.
    #[arg(long, value_name = "NUMBER")]
    limit: Option<usize>,
    /// Print the solution of one task instead, such as boil/3.
    #[arg(long, value_name = "TASK", conflicts_with_all = ["split", "kind", "limit"])]
    task: Option<String>,
}

/// What became of the tasks of one kind.
#[derive(Debug, Default)]
struct Tally {
    tasks: usize,
    solved: Vec<usize>,
    longest_seconds: f64,
}

impl Gold {
    fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        match &self.task {
            Some(task) => self.show(task, out),
            None => self.table(out),
        }
    }

    fn show(&self, task: &str, out: &mut dyn Write) -> Result<(), Failure> {
        let (kind, variation) = TaskType::of_task(task)?;
        let benchmark = self.simulator.open_cold()?;
        let path = benchmark.gold_path(&kind.task(variation))?;
        for action in &path.actions {
            writeln!(out, "{action}")?;
        }
        let verdict = match &path.solution {
            Some(solution) => format!("completes the task after {} actions", solution.len()),
            None => "does not complete the task by the rules".to_owned(),
        };
        writeln!(out, "\n{} actions; {verdict}", path.actions.len())?;
        Ok(())
    }

    fn tasks(&self) -> Result<Vec<Task>, Failure> {
        let split = Split::parse(&self.split)?;
        for name in &self.kind {
            if TaskType::find(name).is_none() {
                return Err(Failure::user(format!("there is no kind of task \"{name}\"")));
            }
        }
        let mut tasks = Vec::new();
        for kind in &TASK_TYPES {
            let wanted = self.kind.is_empty()
                || self.kind.iter().any(|name| name == kind.name || name == kind.id);
            if wanted {
                let variations = split.variations(kind).take(self.limit.unwrap_or(usize::MAX));
                tasks.extend(variations.map(|variation| kind.task(variation)));
            }
        }
        Ok(tasks)
    }

    fn table(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let tasks = self.tasks()?;
        let benchmark = self.simulator.open_cold()?;
        let turns = benchmark.profile().turn_limit;
        let next = AtomicUsize::new(0);
        /// A variation's place, its path, and how long it took.
        type Found = (usize, Result<GoldPath, EnvError>, f64);
        let found: Mutex<Vec<Found>> = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..benchmark.pool().limits().hosts {
                scope.spawn(|| {
                    while let Some((place, task)) = {
                        let place = next.fetch_add(1, Ordering::Relaxed);
                        tasks.get(place).map(|task| (place, task))
                    } {
                        let begin = Instant::now();
                        let path = benchmark.gold_path(task);
                        let seconds = begin.elapsed().as_secs_f64();
                        let mut found =
                            found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                        found.push((place, path, seconds));
                    }
                });
            }
        });
        let mut found = found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        found.sort_by_key(|(place, ..)| *place);
        let mut tallies: BTreeMap<usize, Tally> = BTreeMap::new();
        for (place, path, seconds) in found {
            let kind = TASK_TYPES.iter().position(|kind| kind.name == tasks[place].kind);
            let tally = tallies.entry(kind.unwrap_or(usize::MAX)).or_default();
            tally.tasks += 1;
            tally.longest_seconds = tally.longest_seconds.max(seconds);
            tally.solved.extend(path?.solution.map(|solution| solution.len()));
        }
        writeln!(
            out,
            "{:<50}{:>7}{:>11}{:>11}{:>13}{:>9}{:>11}",
            "kind of task",
            "tasks",
            "completed",
            format!("within {turns}"),
            "mean actions",
            "longest",
            "slowest"
        )?;
        for (kind, tally) in &tallies {
            let name = TASK_TYPES.get(*kind).map_or("?", |kind| kind.name);
            let within = tally.solved.iter().filter(|length| **length <= turns).count();
            let mean = tally.solved.iter().sum::<usize>() as f64 / tally.solved.len().max(1) as f64;
            writeln!(
                out,
                "{name:<50}{:>7}{:>11}{within:>11}{mean:>13.1}{:>9}{:>9.1} s",
                tally.tasks,
                tally.solved.len(),
                tally.solved.iter().max().copied().unwrap_or(0),
                tally.longest_seconds
            )?;
        }
        Ok(())
    }
}
