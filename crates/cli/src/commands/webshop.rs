//! What the verbs do for WebShop.

mod bench;
mod data;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

pub(crate) use bench::Bench;
pub(crate) use data::Data;
use lens_env::webshop::generator::BUILT_IN_SEED;
use lens_env::webshop::replay::Replayer;
use lens_env::webshop::{GoalKind, ObservationMode, Shop, ShopSettings, WebShop, generator};
use lens_env::{Benchmark, demonstrate};

use super::expert::Trial;
use super::play::Choice;
use crate::failure::Failure;

/// Which products.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Products {
    /// A folder with the upstream files (items_shuffle*.json, items_ins_v2*.json). Without it the built-in generated
    /// catalog is used.
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
    /// A noun table for the product titles; "nouns.jsonl" in the folder by default.
    #[arg(long, value_name = "FILE", requires = "data")]
    nouns: Option<PathBuf>,
    /// Take only COUNT products; without --data, generate COUNT.
    #[arg(long = "products", value_name = "COUNT")]
    count: Option<usize>,
    /// The seed of the sampled prices and price ceilings.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    price_seed: u64,
    /// Generate the catalog from another seed.
    #[arg(long, default_value_t = BUILT_IN_SEED, conflicts_with = "data")]
    seed: u64,
}

/// Which goals sessions have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Goals {
    /// One for every combination of options.
    Synthetic,
    /// Those that people wrote.
    Human,
}

impl From<Goals> for GoalKind {
    fn from(goals: Goals) -> Self {
        match goals {
            Goals::Synthetic => Self::Synthetic,
            Goals::Human => Self::Human,
        }
    }
}

impl Products {
    fn open(&self, goals: GoalKind) -> Result<Arc<Shop>, Failure> {
        let settings = ShopSettings { goals, price_seed: self.price_seed, products: self.count };
        let shop = match &self.data {
            Some(folder) => Shop::open(folder, self.nouns.as_deref(), settings)?,
            None => generator::shop(self.seed, settings)?,
        };
        Ok(Arc::new(shop))
    }

    fn benchmark(&self, goals: GoalKind) -> Result<Arc<dyn Benchmark>, Failure> {
        Ok(Arc::new(WebShop::new(self.open(goals)?, ObservationMode::TextRich)))
    }
}

/// Play shopping: find, configure and buy what an instruction asks for
#[derive(Debug, clap::Args)]
pub(crate) struct Play {
    #[command(flatten)]
    products: Products,
    /// Which goals sessions have.
    #[arg(long, value_enum, default_value_t = Goals::Synthetic)]
    goals: Goals,
    #[command(flatten)]
    choice: Choice,
}

impl Play {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let benchmark = self.products.benchmark(self.goals.into())?;
        self.choice.play(&benchmark, out)
    }
}

/// Replay recordings of the original shop: pages, searches, goals, rewards
///
/// crates/env/tests/webshop/recordings holds some of the built-in catalog; record.py beside it makes more from the
/// original engine.
#[derive(Debug, clap::Args)]
pub(crate) struct Replay {
    #[command(flatten)]
    products: Products,
    /// Files of recordings (.jsonl); what a file holds shows in its keys.
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    golden: Vec<PathBuf>,
    /// Print at most this many differences of each file.
    #[arg(long, default_value_t = 10)]
    show: usize,
}

impl Replay {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        // Not every catalog has human goals; recordings of them then say what is missing.
        let replayer = Replayer {
            synthetic: self.products.open(GoalKind::Synthetic)?,
            human: self.products.open(GoalKind::Human).ok(),
        };
        let mut differences = 0;
        for path in &self.golden {
            let report = replayer.compare(path)?;
            writeln!(
                out,
                "{}: {}, {} answers, {} mismatches",
                path.display(),
                report.kind,
                report.compared,
                report.mismatches
            )?;
            for described in report.described.iter().take(self.show) {
                writeln!(out, "  {described}")?;
            }
            differences += report.mismatches;
        }
        if differences > 0 {
            return Err(Failure::user(format!("{differences} mismatches with the recordings")));
        }
        Ok(())
    }
}

/// Run the WebShop expert, which decides from the agent's prompt alone
#[derive(Debug, clap::Args)]
pub(crate) struct Expert {
    #[command(flatten)]
    products: Products,
    /// The splits to play; all of them by default.
    #[arg(long, num_args = 1.., value_name = "SPLIT")]
    split: Vec<String>,
    /// The turn limit; the benchmark's own by default.
    #[arg(long)]
    turns: Option<usize>,
    /// Print one episode instead: the index of a task in the (first) split, counted from 0.
    #[arg(long, value_name = "NUMBER")]
    show: Option<usize>,
}

/// What the expert earned in tasks of one kind.
#[derive(Debug, Default)]
struct Earned {
    tasks: usize,
    score: f64,
    successes: usize,
    turns: usize,
}

impl Expert {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let benchmark = self.products.benchmark(GoalKind::Synthetic)?;
        let turns = self.turns.unwrap_or_else(|| benchmark.profile().turn_limit);
        if self.show.is_some() {
            let trial = Trial { split: self.split.clone(), limits: vec![turns], show: self.show };
            return trial.run(&benchmark, out);
        }
        let all = || benchmark.splits().into_iter().map(|split| split.name).collect();
        let splits: Vec<String> = if self.split.is_empty() { all() } else { self.split.clone() };
        let expert = benchmark.expert().ok_or_else(|| Failure::user("WebShop has no expert"))?;
        let mut environment = Arc::clone(&benchmark).environment()?;
        let history = benchmark.profile().history;
        writeln!(
            out,
            "{:<10}{:<14}{:>8}{:>10}{:>10}{:>10}",
            "split", "kind", "tasks", "score", "success", "turns"
        )?;
        for split in splits {
            let mut kinds: BTreeMap<String, Earned> = BTreeMap::new();
            for task in benchmark.tasks(&split)? {
                let played = demonstrate(&mut *environment, &*expert, &task, turns, history)?;
                for kind in [task.kind, "all".to_owned()] {
                    let earned = kinds.entry(kind).or_default();
                    earned.tasks += 1;
                    earned.score += played.last.score;
                    earned.successes += usize::from(played.success());
                    earned.turns += played.last.turn;
                }
            }
            let all = kinds.remove_entry("all");
            for (kind, earned) in kinds.into_iter().chain(all) {
                let tasks = earned.tasks as f64;
                writeln!(
                    out,
                    "{split:<10}{kind:<14}{:>8}{:>10.2}{:>10.2}{:>10.2}",
                    earned.tasks,
                    100.0 * earned.score / tasks,
                    100.0 * earned.successes as f64 / tasks,
                    earned.turns as f64 / tasks
                )?;
            }
        }
        writeln!(
            out,
            "\nScore is the mean reward times 100, success the share of rewards of exactly 1 in percent; {turns} turns at most."
        )?;
        Ok(())
    }
}
