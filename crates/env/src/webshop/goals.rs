//! What sessions ask for. Goals are many (one for every combination of a product's options), so the list holds two
//! numbers each and builds the text when it is wanted.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use super::catalog::{Catalog, Instructions, Product, ProductOption};
use super::random::PythonRandom;
use crate::error::EnvError;

/// The seed with which the original fixes the order of goals.
pub const ORDER_SEED: u64 = 233;
/// The ceiling of a goal that names no price.
pub const NO_CEILING: f64 = 1_000_000.0;
/// A product with more option combinations is a mistake in the data; the largest real one has 558.
const MOST_COMBINATIONS: usize = 1_000_000;

/// Which goals to offer.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum GoalKind {
    /// One for every combination of options of every product with a synthetic instruction.
    #[default]
    Synthetic,
    /// Those that people wrote.
    Human,
}

/// An instruction with its drawn ceiling.
#[derive(Debug)]
struct Source {
    product: u32,
    /// Which of the product's human instructions, where those are used.
    written: u32,
    ceiling: f64,
    weight: f64,
}

/// One goal: an instruction and a combination of options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    source: u32,
    combination: u32,
}

/// All goals of a catalog, in session order.
#[derive(Debug)]
pub struct Goals {
    sources: Vec<Source>,
    entries: Vec<Entry>,
}

/// The option values a goal asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum GoalOptions {
    /// Named, as synthetic goals have them.
    Named(Vec<(Arc<str>, Arc<str>)>),
    /// Values only, as people wrote them.
    Values(Vec<Box<str>>),
}

impl GoalOptions {
    /// How many values are asked for.
    pub fn len(&self) -> usize {
        match self {
            Self::Named(options) => options.len(),
            Self::Values(values) => values.len(),
        }
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One goal, spelled out.
#[derive(Debug, Clone, PartialEq)]
pub struct Goal<'a> {
    /// The product's place in the catalog.
    pub product: usize,
    /// What the shopper is asked for.
    pub text: String,
    /// The attributes asked for.
    pub attributes: &'a [Arc<str>],
    /// The most it may cost.
    pub price_upper: f64,
    /// The options asked for.
    pub options: GoalOptions,
    /// How likely a random session is to get this goal, relative to the others.
    pub weight: f64,
}

impl Goals {
    /// All goals of the catalog in the original's order. `prices` are the sampled prices; `random` goes on from
    /// where it stood after sampling them.
    pub fn new(
        catalog: &Catalog,
        prices: &[f64],
        random: &mut PythonRandom,
    ) -> Result<Self, EnvError> {
        let mut sources = Vec::new();
        let mut entries = Vec::new();
        let mut asked: HashMap<&str, u32> = HashMap::new();
        for (at, (product, &price)) in catalog.products.iter().zip(prices).enumerate() {
            let (written, combinations) = match &product.instructions {
                Instructions::None => continue,
                Instructions::Synthetic { .. } => (1, combinations(product)?),
                Instructions::Human(written) => (written.len(), 1),
            };
            for written in 0..written {
                let source = sources.len() as u32;
                let goals =
                    (0..combinations as u32).map(|combination| Entry { source, combination });
                entries.extend(goals);
                sources.push(Source {
                    product: at as u32,
                    written: written as u32,
                    ceiling: draw_ceiling(price, random),
                    weight: 1.0,
                });
                if let Instructions::Synthetic { attributes, .. } = &product.instructions {
                    for attribute in attributes {
                        *asked.entry(attribute).or_default() += combinations as u32;
                    }
                }
            }
        }
        for source in &mut sources {
            let product = &catalog.products[source.product as usize];
            if let Instructions::Synthetic { attributes, .. } = &product.instructions {
                let shares =
                    attributes.iter().map(|attribute| 1.0 / f64::from(asked[&**attribute]));
                source.weight = shares.sum::<f64>() / attributes.len() as f64;
            }
        }
        PythonRandom::seed(ORDER_SEED).shuffle(&mut entries);
        Ok(Self { sources, entries })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The product a goal asks for.
    pub fn product_of(&self, number: usize) -> Option<usize> {
        let entry = self.entries.get(number)?;
        Some(self.sources[entry.source as usize].product as usize)
    }

    /// The goal of a session.
    pub fn get<'a>(&self, number: usize, catalog: &'a Catalog) -> Option<Goal<'a>> {
        let entry = self.entries.get(number)?;
        let source = &self.sources[entry.source as usize];
        let product = catalog.products.get(source.product as usize)?;
        let (mut text, attributes, options) = match &product.instructions {
            Instructions::None => return None,
            Instructions::Synthetic { text, attributes } => {
                let chosen = choose(product, entry.combination as usize);
                (with_options(text, &chosen), attributes, GoalOptions::Named(chosen))
            }
            Instructions::Human(written) => {
                let written = written.get(source.written as usize)?;
                let values = GoalOptions::Values(written.options.to_vec());
                (String::from(&*written.text), &written.attributes, values)
            }
        };
        if source.ceiling < NO_CEILING {
            // Writing into a string cannot fail.
            let _ = write!(text, ", and price lower than {:.2} dollars", source.ceiling);
        }
        Some(Goal {
            product: source.product as usize,
            text,
            attributes,
            price_upper: source.ceiling,
            options,
            weight: source.weight,
        })
    }
}

/// The product's options in the order of their names.
fn sorted_options(product: &Product) -> Vec<&ProductOption> {
    let mut options: Vec<&ProductOption> = product.options.iter().collect();
    options.sort_by(|a, b| a.name.cmp(&b.name));
    options
}

fn combinations(product: &Product) -> Result<usize, EnvError> {
    let count = product
        .options
        .iter()
        .try_fold(1_usize, |count, option| count.checked_mul(option.values.len()))
        .filter(|&count| count <= MOST_COMBINATIONS);
    count.ok_or_else(|| EnvError::Malformed {
        path: format!("product {}", product.asin),
        line: None,
        message: format!(
            "its options have more than {MOST_COMBINATIONS} combinations, and each would be a goal; \
             remove its instruction or its options"
        ),
    })
}

/// The values of one combination; the last option changes fastest.
fn choose(product: &Product, combination: usize) -> Vec<(Arc<str>, Arc<str>)> {
    let mut rest = combination;
    let mut chosen: Vec<(Arc<str>, Arc<str>)> = sorted_options(product)
        .into_iter()
        .rev()
        .filter_map(|option| {
            let count = option.values.len().max(1);
            let value = option.values.get(rest % count)?;
            rest /= count;
            Some((Arc::clone(&option.name), Arc::clone(value)))
        })
        .collect();
    chosen.reverse();
    chosen
}

fn with_options(text: &str, chosen: &[(Arc<str>, Arc<str>)]) -> String {
    let mut full = text.to_owned();
    for (at, (name, value)) in chosen.iter().enumerate() {
        full.push_str(if at == 0 { " with " } else { ", and " });
        full.push_str(name);
        full.push_str(": ");
        full.push_str(value);
    }
    full
}

/// The larger of two of the next four round prices above `price`, if there are two.
fn draw_ceiling(price: f64, random: &mut PythonRandom) -> f64 {
    let above: Vec<f64> = (1..100)
        .map(|tens| f64::from(tens) * 10.0)
        .filter(|&round| round > price)
        .take(4)
        .collect();
    random.sample_two(&above).map_or(NO_CEILING, |(a, b)| a.max(b))
}
