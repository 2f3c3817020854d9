//! The list of benchmarks. A new one is one line here.

use std::path::PathBuf;
use std::sync::Arc;

use crate::agentgym;
use crate::alfworld::{self, Alfworld};
use crate::benchmark::Benchmark;
use crate::error::EnvError;
use crate::filter::TaskFilter;
use crate::openenv;
use crate::profile::Profile;
use crate::remote::EnvironmentOptions;
use crate::scienceworld::{self, ScienceWorld};
use crate::stdio;
use crate::webshop::{self, GoalKind, WebShop};

/// What a benchmark is opened with. Each benchmark reads what it has a use for and refuses what it cannot do.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BenchmarkOptions {
    /// The official data (a folder or archive); `None` means what is built in.
    pub data: Option<PathBuf>,
    /// Which goals WebShop's sessions have; `None` means synthetic ones.
    pub goals: Option<GoalKind>,
    /// Only tasks of these kinds; empty means all.
    pub kinds: Vec<String>,
    /// Generate the built-in tasks from this seed instead of the standard one.
    pub seed: Option<u64>,
    /// How an environment in another process is reached and read.
    pub environment: EnvironmentOptions,
}

impl BenchmarkOptions {
    /// Refuses goals that only WebShop can choose.
    pub(crate) fn without_goals(&self, profile: &Profile) -> Result<(), EnvError> {
        match self.goals {
            None => Ok(()),
            Some(_) => Err(EnvError::Unsupported {
                benchmark: profile.name.to_string(),
                option: "choice of goals",
                hint: "leave the goals out; only webshop has two kinds".to_owned(),
            }),
        }
    }

    /// Refuses a seed where there is nothing to generate.
    pub(crate) fn without_seed(&self, profile: &Profile) -> Result<(), EnvError> {
        match self.seed {
            None => Ok(()),
            Some(_) => Err(EnvError::Unsupported {
                benchmark: profile.name.to_string(),
                option: "seed for this data",
                hint: "only built-in tasks are generated; leave the seed or the data out"
                    .to_owned(),
            }),
        }
    }
}

/// Opens a benchmark.
pub type Open = fn(&BenchmarkOptions) -> Result<Arc<dyn Benchmark>, EnvError>;

/// One benchmark of the list.
#[derive(Debug, Clone)]
pub struct Entry {
    /// What is fixed about it; what a server or script says when it is opened can replace parts of it.
    pub profile: &'static Profile,
    /// How to open all of its tasks.
    pub open: Open,
}

/// The benchmarks this program comes with.
const BUILT_IN: &[Entry] = &[
    Entry { profile: &alfworld::PROFILE, open: Alfworld::from_options },
    Entry { profile: &webshop::PROFILE, open: WebShop::from_options },
    Entry { profile: &scienceworld::PROFILE, open: ScienceWorld::from_options },
    Entry { profile: &openenv::PROFILE, open: openenv::from_options },
    Entry { profile: &agentgym::PROFILE, open: agentgym::from_options },
    Entry { profile: &stdio::PROFILE, open: stdio::from_options },
];

/// Benchmarks by name.
#[derive(Debug, Clone)]
pub struct Registry {
    entries: Vec<Entry>,
}

impl Default for Registry {
    fn default() -> Self {
        Self { entries: BUILT_IN.to_vec() }
    }
}

impl Registry {
    /// The same list with one more benchmark; one of the same name is replaced.
    #[must_use]
    pub fn with(mut self, entry: Entry) -> Self {
        self.entries.retain(|known| known.profile.name != entry.profile.name);
        self.entries.push(entry);
        self
    }

    /// The profiles, in the list's order.
    pub fn profiles(&self) -> impl Iterator<Item = &'static Profile> {
        self.entries.iter().map(|entry| entry.profile)
    }

    /// The profile of that name.
    pub fn profile(&self, name: &str) -> Result<&'static Profile, EnvError> {
        self.entry(name).map(|entry| entry.profile)
    }

    /// Opens the benchmark of that name, narrowed to the kinds of task asked for.
    pub fn open(
        &self,
        name: &str,
        options: &BenchmarkOptions,
    ) -> Result<Arc<dyn Benchmark>, EnvError> {
        let whole = (self.entry(name)?.open)(options)?;
        if options.kinds.is_empty() {
            return Ok(whole);
        }
        Ok(Arc::new(TaskFilter::new(whole, &options.kinds)?))
    }

    fn entry(&self, name: &str) -> Result<&Entry, EnvError> {
        let found = self.entries.iter().find(|entry| entry.profile.name == name);
        found.ok_or_else(|| EnvError::Unknown {
            what: "benchmark",
            name: name.to_owned(),
            benchmark: "the list of benchmarks".to_owned(),
            hint: format!(
                "there are {}",
                self.profiles().map(|profile| &*profile.name).collect::<Vec<_>>().join(", ")
            ),
        })
    }
}

/// Opens one of the benchmarks this program comes with.
pub fn open(name: &str, options: &BenchmarkOptions) -> Result<Arc<dyn Benchmark>, EnvError> {
    Registry::default().open(name, options)
}

/// The profile of one of the benchmarks this program comes with.
pub fn profile(name: &str) -> Result<&'static Profile, EnvError> {
    Registry::default().profile(name)
}

/// The names of the benchmarks this program comes with.
pub fn names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|entry| &*entry.profile.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_benchmark_is_named_with_what_there_is() {
        let error = open("alfwold", &BenchmarkOptions::default()).err().expect("refused");
        let error = error.to_string();
        assert!(error.contains("alfwold") && error.contains("alfworld, webshop"), "{error}");
    }

    #[test]
    fn an_option_without_meaning_is_refused() {
        let goals =
            BenchmarkOptions { goals: Some(GoalKind::Human), ..BenchmarkOptions::default() };
        let error = open("alfworld", &goals).err().expect("refused").to_string();
        assert!(error.contains("alfworld has no choice of goals"), "{error}");
        let seed = BenchmarkOptions {
            data: Some(PathBuf::from("games")),
            seed: Some(1),
            ..BenchmarkOptions::default()
        };
        for name in ["alfworld", "webshop"] {
            let error = open(name, &seed).err().expect("refused").to_string();
            assert!(error.contains("seed"), "{error}");
        }
    }

    #[test]
    fn the_splits_of_a_profile_are_there() {
        for name in ["alfworld", "webshop"] {
            let benchmark = open(name, &BenchmarkOptions::default()).expect("it is built in");
            let profile = benchmark.profile();
            assert_eq!(profile.name, name);
            assert_eq!(profile.laboratory.expert, benchmark.expert().is_some());
            let mut splits = vec![&profile.train_split, &profile.laboratory.held_out_split];
            splits.extend(profile.eval_splits.iter().chain(profile.pooled_splits.iter()));
            for split in splits {
                assert!(!benchmark.tasks(split).expect("a split").is_empty(), "{name} {split}");
            }
        }
    }

    #[test]
    fn human_goals_are_other_goals_and_their_absence_is_named() {
        let human =
            BenchmarkOptions { goals: Some(GoalKind::Human), ..BenchmarkOptions::default() };
        let task = |options: &BenchmarkOptions| {
            let webshop = open("webshop", options).expect("it is built in");
            let task = webshop.tasks("train").expect("a split").remove(0);
            webshop.environment().and_then(|mut shop| shop.reset(&task)).expect("it starts").task
        };
        assert_ne!(task(&human), task(&BenchmarkOptions::default()));
        let folder = tempfile::tempdir().expect("a folder");
        webshop::generator::write(folder.path(), 0, 20).expect("files");
        std::fs::remove_file(folder.path().join("items_human_ins.json")).expect("it was there");
        let missing = BenchmarkOptions { data: Some(folder.path().to_owned()), ..human };
        let error = open("webshop", &missing).err().expect("refused").to_string();
        assert!(error.contains("items_human_ins.json"), "{error}");
    }
}
