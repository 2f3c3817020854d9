//! Our own catalog: products that nobody sells, in the upstream files' form and with their statistics.
//!
//! Product number n of a seed is always the same, however many are made, so a small catalog is the beginning of
//! a large one. About one product in five carries something awkward that the real catalog has too: quotes,
//! no-break spaces and slashes in option values, an empty title, a blank bullet point, a price beyond all ceilings.

mod awkward;
mod options;
mod product;
mod text;
mod words;

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use lens_opd::random::{Purpose, Stream, StreamKey};

use super::catalog::raw::{RawHumanInstruction, RawInstruction, RawNouns, RawProduct};
use super::catalog::{CatalogBuilder, InstructionSource};
use super::goals::GoalKind;
use super::reward::nouns::Nouns;
use super::shop::{Shop, ShopSettings};
use crate::error::EnvError;

/// The built-in catalog's size, which gives more than the 4,196 goals that the splits need.
pub const BUILT_IN_PRODUCTS: usize = 1000;

/// The built-in catalog's seed.
pub const BUILT_IN_SEED: u64 = 0;

/// One generated product with everything the files say about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Generated {
    /// The product.
    pub product: RawProduct,
    /// Its attributes and its synthetic instruction.
    pub instruction: RawInstruction,
    /// Instructions in the manner of people.
    pub human: Vec<RawHumanInstruction>,
    /// The nouns of its title.
    pub nouns: RawNouns,
}

/// The products of a seed, without end.
pub fn products(seed: u64) -> impl Iterator<Item = Generated> {
    (0..).map(move |number| {
        let mut dice = Dice(StreamKey::new(seed, 0, number, Purpose::Data, 0).open());
        product::generate(number, &mut dice)
    })
}

/// A shop with generated products. `settings.products` says how many; the default is [`BUILT_IN_PRODUCTS`].
pub fn shop(seed: u64, settings: ShopSettings) -> Result<Shop, EnvError> {
    let mut builder = CatalogBuilder::default();
    let mut nouns = Vec::new();
    for (number, made) in
        products(seed).take(settings.products.unwrap_or(BUILT_IN_PRODUCTS)).enumerate()
    {
        let human = (!made.human.is_empty()).then(|| (made.product.asin.clone(), made.human));
        let mut written: HashMap<_, _> = human.into_iter().collect();
        let mut source = match settings.goals {
            GoalKind::Synthetic => InstructionSource::Synthetic,
            GoalKind::Human => InstructionSource::Human(&mut written),
        };
        builder.add(made.product, Some(made.instruction), &mut source).map_err(|message| {
            EnvError::Malformed {
                path: "the generated catalog".to_owned(),
                line: None,
                message: format!("product {}: {message}", number + 1),
            }
        })?;
        nouns.push(made.nouns);
    }
    Shop::new(builder.finish(), Nouns::from_table(nouns), settings.price_seed)
}

/// Writes generated products as upstream files into a folder: `items_shuffle.json`, `items_ins_v2.json`,
/// `items_human_ins.json` and `nouns.jsonl`.
pub fn write(folder: &Path, seed: u64, count: usize) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let open =
        |name: &str| Ok::<_, std::io::Error>(BufWriter::new(File::create(folder.join(name))?));
    let mut items = open("items_shuffle.json")?;
    let mut instructions = open("items_ins_v2.json")?;
    let mut human = open("items_human_ins.json")?;
    let mut nouns = open("nouns.jsonl")?;
    items.write_all(b"[")?;
    instructions.write_all(b"{")?;
    human.write_all(b"{")?;
    let mut written = false;
    for (number, made) in products(seed).take(count).enumerate() {
        let comma = if number > 0 { ",\n" } else { "\n" };
        let asin = serde_json::to_string(&made.product.asin)?;
        write!(items, "{comma}{}", serde_json::to_string(&made.product)?)?;
        write!(instructions, "{comma}{asin}: {}", serde_json::to_string(&made.instruction)?)?;
        writeln!(nouns, "{}", serde_json::to_string(&made.nouns)?)?;
        if !made.human.is_empty() {
            let comma = if written { ",\n" } else { "\n" };
            write!(human, "{comma}{asin}: {}", serde_json::to_string(&made.human)?)?;
            written = true;
        }
    }
    items.write_all(b"\n]\n")?;
    instructions.write_all(b"\n}\n")?;
    human.write_all(b"\n}\n")?;
    for mut file in [items, instructions, human, nouns] {
        file.flush()?;
    }
    Ok(())
}

/// Draws for one product.
struct Dice(Stream);

impl Dice {
    /// A number below `bound`, or 0 if there is none.
    fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound as u64).unwrap_or_default() as usize
    }

    /// True so many times in a thousand.
    fn per_mille(&mut self, times: u32) -> bool {
        self.below(1000) < times as usize
    }

    /// One of the items.
    fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    /// The index of one of the weights, drawn by weight.
    fn weighted(&mut self, weights: impl Iterator<Item = u32> + Clone) -> usize {
        let mut rest = self.below(weights.clone().sum::<u32>() as usize) as u32;
        for (index, weight) in weights.enumerate() {
            if rest < weight {
                return index;
            }
            rest -= weight;
        }
        0
    }

    /// `count` different items, in random order; all of them if there are fewer.
    fn some<T: Copy>(&mut self, items: &[T], count: usize) -> Vec<T> {
        let mut items = items.to_vec();
        self.0.shuffle(&mut items);
        items.truncate(count);
        items
    }

    /// A draw of which half the time is below `median`, and one in six above `median * spread`.
    fn log_normal(&mut self, median: f64, spread: f64) -> f64 {
        median * spread.powf(self.0.normal())
    }
}
