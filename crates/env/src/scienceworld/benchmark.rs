//! The benchmark: what all episodes share.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::admission;
use super::catalog::{Split, TaskType};
use super::environment::{Replay, ScienceWorldEnvironment};
use super::expert::Child;
use super::gold::{GoldPath, GoldStore};
use super::java::Java;
use super::package::{self, Package};
use super::pool::{Incidents, Pool, PoolLimits};
use crate::benchmark::{Benchmark, SplitInfo, Task};
use crate::environment::{Environment, View};
use crate::error::EnvError;
use crate::expert::Expert;
use crate::names;
use crate::profile::{CommandStyle, Laboratory, Profile, PromptStyle, ScoreScale};
use crate::registry::BenchmarkOptions;

/// ScienceWorld as the paper plays it.
pub const PROFILE: Profile = Profile {
    name: Cow::Borrowed("scienceworld"),
    summary: Cow::Borrowed("Primary-school science in text: boil, grow, measure, connect, find"),
    turn_limit: 30,
    train_split: Cow::Borrowed("train"),
    eval_splits: names!["test"],
    pooled_splits: names![],
    history: 2,
    prompt: PromptStyle {
        template: Cow::Borrowed(include_str!("prompt.txt")),
        commands: CommandStyle::Quoted,
        hidden_commands: names!["help"],
        fold_history: false,
    },
    score: ScoreScale::Points,
    laboratory: Laboratory {
        expert: true,
        train_split: Cow::Borrowed("official_train"),
        held_out_split: Cow::Borrowed("official_dev"),
        // Those that the expert knows.
        kinds: names![
            "find-living-thing",
            "find-non-living-thing",
            "find-animal",
            "lifespan-longest-lived",
            "lifespan-shortest-lived",
        ],
        numbered_names: false,
        marked_pages: false,
        generated: false,
    },
};

/// What is played.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Given to the simulator as it is: `easy`, nothing, or names joined by commas.
    pub simplifications: String,
    /// The simulator's time after which an episode ends. Most actions take one move, `wait` eleven.
    pub move_limit: i32,
    /// How states are put back.
    pub replay: Replay,
}

impl Default for Rules {
    fn default() -> Self {
        Self { simplifications: "easy".to_owned(), move_limit: 100, replay: Replay::Fast }
    }
}

/// The simulator's simplifications. The word `easy` stands for all that suit a task, except that containers stay shut.
const SIMPLIFICATIONS: [&str; 5] = [
    "teleportAction",
    "openDoors",
    "openContainers",
    "selfWateringFlowerPots",
    "noElectricalAction",
];

impl Rules {
    /// The simulator notices a wrong simplification only in the first step of an episode, so it is checked here.
    fn check(&self) -> Result<(), EnvError> {
        let given = self.simplifications.as_str();
        if given == "easy" || given.is_empty() {
            return Ok(());
        }
        match given.split(',').find(|name| !SIMPLIFICATIONS.contains(name)) {
            None => Ok(()),
            Some(name) => Err(EnvError::Unknown {
                what: "simplification",
                name: name.to_owned(),
                benchmark: "ScienceWorld".to_owned(),
                hint: format!(
                    "give \"easy\" alone, or names joined by commas without spaces: {}",
                    SIMPLIFICATIONS.join(", ")
                ),
            }),
        }
    }
}

/// Where things are and how they run.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The simulator: a JAR, a wheel or a folder. `None` searches.
    pub package: Option<PathBuf>,
    /// The Java program. `None` searches.
    pub java: Option<PathBuf>,
    /// Where unpacked files and gold paths are kept. `None` is the user's cache folder.
    pub cache: Option<PathBuf>,
    /// What is played.
    pub rules: Rules,
    /// What the machines may use.
    pub limits: PoolLimits,
}

/// What restoring cost so far.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) episodes_resumed: AtomicUsize,
    pub(super) replayed_steps: AtomicUsize,
    pub(super) fast_replays_refused: AtomicUsize,
}

/// How often states were put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayReport {
    /// Episodes that lost their machine and went on in another.
    pub episodes_resumed: usize,
    /// Actions carried out again.
    pub replayed_steps: usize,
    /// Fast replays that came out different and were repeated exactly.
    pub fast_replays_refused: usize,
}

/// ScienceWorld.
#[derive(Debug)]
pub struct ScienceWorld {
    rules: Rules,
    pool: Arc<Pool>,
    /// Machines for gold paths alone, which can occupy one for minutes.
    gold_pool: OnceLock<Arc<Pool>>,
    gold: GoldStore,
    pub(super) counters: Counters,
}

impl ScienceWorld {
    /// Finds Java and the simulator, and starts the machines in the background.
    pub fn open(options: Options) -> Result<Arc<Self>, EnvError> {
        let benchmark = Self::open_cold(options)?;
        benchmark.pool.warm();
        Ok(benchmark)
    }

    /// Finds Java and the simulator; machines start when they are needed.
    pub fn open_cold(options: Options) -> Result<Arc<Self>, EnvError> {
        options.rules.check()?;
        let java = match &options.java {
            Some(program) => Java::at(program)?,
            None => Java::find()?,
        };
        let cache = options.cache.unwrap_or_else(package::cache_folder);
        let package = Package::find(options.package.as_deref(), &cache)?;
        let gold = GoldStore::new(&cache, &options.rules.simplifications);
        let pool = Arc::new(Pool::new(java, package, options.limits));
        Ok(Arc::new(Self {
            rules: options.rules,
            pool,
            gold_pool: OnceLock::new(),
            gold,
            counters: Counters::default(),
        }))
    }

    /// Opens the simulator at the options' path, or the one that is found.
    pub(crate) fn from_options(options: &BenchmarkOptions) -> Result<Arc<dyn Benchmark>, EnvError> {
        options.without_goals(&PROFILE)?;
        options.without_seed(&PROFILE)?;
        let package = options.data.clone();
        Ok(Self::open(Options { package, ..Options::default() })?)
    }

    /// What is played.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The machines.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// What went wrong so far and was mended.
    pub fn incidents(&self) -> Incidents {
        self.pool.incidents()
    }

    /// How often states were put back.
    pub fn replay_report(&self) -> ReplayReport {
        let read = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        ReplayReport {
            episodes_resumed: read(&self.counters.episodes_resumed),
            replayed_steps: read(&self.counters.replayed_steps),
            fast_replays_refused: read(&self.counters.fast_replays_refused),
        }
    }

    /// A fresh environment of its own type.
    pub fn scienceworld_environment(self: &Arc<Self>) -> ScienceWorldEnvironment {
        ScienceWorldEnvironment::new(Arc::clone(self))
    }

    /// The simulator's own solution of a task, from the cache or from its solver. The solver takes from a tenth of a
    /// second to minutes and works in a machine apart.
    pub fn gold_path(&self, task: &Task) -> Result<GoldPath, EnvError> {
        let (kind, variation) = TaskType::of_task(&task.id)?;
        if let Some(path) = self.gold.read(kind, variation)? {
            return Ok(path);
        }
        let pool = self.gold_pool.get_or_init(|| {
            let (java, package) = (self.pool.java().clone(), self.pool.package().clone());
            Arc::new(Pool::new(java, package, self.pool.limits()))
        });
        let path = super::gold::solve(pool, kind, variation, &self.rules)?;
        self.gold.write(kind, variation, &path)?;
        Ok(path)
    }
}

/// How long the simulator's solver may think. The slowest task seen took four minutes on a busy machine.
pub(super) const SOLVER_PATIENCE: Duration = Duration::from_mins(30);

impl Benchmark for ScienceWorld {
    fn profile(&self) -> &Profile {
        &PROFILE
    }

    fn splits(&self) -> Vec<SplitInfo> {
        Split::ALL.map(Split::info).into()
    }

    fn tasks(&self, split: &str) -> Result<Vec<Task>, EnvError> {
        Split::parse(split).map(Split::tasks)
    }

    fn environment(self: Arc<Self>) -> Result<Box<dyn Environment>, EnvError> {
        Ok(Box::new(ScienceWorldEnvironment::new(self)))
    }

    /// The simulator's own solution up to the action that completes the task, if it completes it by these rules: the
    /// solver knows no limit of moves, and asking for valid actions can change the course of a few tasks.
    fn reference_actions(&self, task: &Task) -> Result<Option<Vec<String>>, EnvError> {
        Ok(self.gold_path(task)?.solution)
    }

    fn admits(&self, view: &View, action: &str) -> bool {
        admission::admits(view, action)
    }

    /// Knows a few kinds of task. The simulator's solver knows all, but looks behind what an agent sees, so its next
    /// action is no function of a prompt.
    fn expert(&self) -> Option<Box<dyn Expert>> {
        Some(Box::new(Child))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simplifications_are_checked_before_anything_starts() {
        let check = |simplifications: &str| {
            Rules { simplifications: simplifications.to_owned(), ..Rules::default() }.check()
        };
        for good in ["easy", "", "openDoors", "teleportAction,openContainers"] {
            assert!(check(good).is_ok(), "{good}");
        }
        for bad in ["easy,openDoors", "opendoors", "openDoors, teleportAction", "hard"] {
            let error = check(bad).unwrap_err().to_string();
            assert!(error.contains("teleportAction, openDoors"), "{error}");
        }
        let options = Options {
            rules: Rules { simplifications: "hard".to_owned(), ..Rules::default() },
            ..Options::default()
        };
        assert!(matches!(ScienceWorld::open(options), Err(EnvError::Unknown { .. })));
    }
}
