//! `lens data webshop`: sources, what is there, statistics, and the generated catalog as files.

use std::io::Write;
use std::path::PathBuf;

use lens_env::webshop::generator::{self, BUILT_IN_PRODUCTS, BUILT_IN_SEED};
use lens_env::webshop::statistics::Statistics;
use lens_env::webshop::{GoalKind, ObservationMode, WebShop};
use lens_env::{Benchmark, EnvError};

use super::Products;
use super::bench::resident_megabytes;
use crate::failure::Failure;

const SOURCES: &str = "\
The original files come with princeton-nlp/WebShop (its setup.sh fetches them with gdown):
  small: items_shuffle_1000.json, items_ins_v2_1000.json
  full:  items_shuffle.json, items_ins_v2.json, items_human_ins.json (about 5 GB, 1.18 million products)
Put one pair into a folder and give it with --data. items_human_ins.json is needed for human goals only.
The texts were written by sellers and are not part of this project; check what you may do with them.
Rewards depend on which words of a title are nouns. For exact rewards put a file \"nouns.jsonl\" beside the
products, one line a title, made with the tagger that you want to agree with:
  {\"name\": <title>, \"nouns\": [<lower-cased text of each token tagged NOUN or PROPN>]}
Without it a rule of thumb is used, which differs in about 2 of 100 rewards of wrong purchases.
Without --data the built-in generated catalog is used.
";

/// The goals of the original's 1,000 products.
const SMALL_GOALS: usize = 6910;

/// Show where to download WebShop's products, and describe a local copy
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Data {
    #[command(flatten)]
    products: Products,
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Print statistics of a catalog
    Statistics(Products),
    /// Write the generated catalog as files that the original engine can load
    Export(Export),
}

impl Data {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        match &self.what {
            None => self.count(out),
            Some(What::Statistics(products)) => statistics(products, out),
            Some(What::Export(export)) => export.run(out),
        }
    }

    fn count(&self, out: &mut dyn Write) -> Result<(), Failure> {
        if self.products.data.is_none() {
            writeln!(out, "{SOURCES}")?;
        }
        let shop = self.products.open(GoalKind::Synthetic)?;
        let human = match self.products.open(GoalKind::Human) {
            Ok(shop) => shop.goals().len().to_string(),
            Err(Failure::User(reason)) if is_missing(&reason) => "none (no file)".to_owned(),
            Err(other) => return Err(other),
        };
        writeln!(out, "products         {}", shop.catalog().products.len())?;
        let goals = shop.goals().len();
        let note = match (&self.products.data, shop.catalog().products.len(), goals) {
            (Some(_), 1000, SMALL_GOALS) => {
                ", as many as the original loads from its 1,000 products"
            }
            (Some(_), 1000, _) => ", but the original loads 6910 from its 1,000 products",
            _ => "",
        };
        writeln!(out, "synthetic goals  {goals}{note}")?;
        writeln!(out, "human goals      {human}")?;
        writeln!(out, "search terms     {}", shop.index().term_count())?;
        writeln!(out, "titles in the noun table  {}", shop.nouns().titles())?;
        if let Some(memory) = resident_megabytes() {
            writeln!(out, "memory           {memory:.0} MB, both shops together")?;
        }
        let benchmark = WebShop::new(shop, ObservationMode::TextRich);
        for split in benchmark.splits() {
            writeln!(out, "split {:<10} {} sessions", split.name, split.tasks)?;
        }
        Ok(())
    }
}

fn is_missing(reason: &anyhow::Error) -> bool {
    matches!(reason.downcast_ref(), Some(EnvError::Missing { .. }))
}

fn statistics(products: &Products, out: &mut dyn Write) -> Result<(), Failure> {
    let statistics = Statistics::of(&*products.open(GoalKind::Synthetic)?);
    let Statistics { products, goals, wanted, queries, attributes, by_options, .. } = &statistics;
    writeln!(out, "{products} products under {queries} search terms, {attributes} attributes")?;
    writeln!(out, "{goals} goals for {wanted} products")?;
    writeln!(out, "with 0, 1, 2, 3 or more options: {by_options:?}")?;
    writeln!(out, "without attributes: {}\n", statistics.without_attributes)?;
    write!(out, "{:<24}", "")?;
    for column in ["least", "25 %", "50 %", "75 %", "95 %", "most", "mean"] {
        write!(out, "{column:>9}")?;
    }
    writeln!(out)?;
    for (name, spread) in &statistics.spreads {
        writeln!(out, "{name:<24}{spread}")?;
    }
    Ok(())
}

/// Write the generated catalog as files that the original engine can load
#[derive(Debug, clap::Args)]
struct Export {
    /// The folder to write to.
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// How many products.
    #[arg(long, value_name = "COUNT", default_value_t = BUILT_IN_PRODUCTS)]
    products: usize,
    /// The seed.
    #[arg(long, default_value_t = BUILT_IN_SEED)]
    seed: u64,
}

impl Export {
    fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        generator::write(&self.out, self.seed, self.products).map_err(|error| {
            Failure::user(format!("cannot write {}: {error}", self.out.display()))
        })?;
        writeln!(out, "{} products written to {}", self.products, self.out.display())?;
        Ok(())
    }
}
