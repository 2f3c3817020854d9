//! What a catalog is like, in numbers.

use std::collections::HashSet;

use super::catalog::{Instructions, Product};
use super::search::analyzer;
use super::shop::Shop;

/// The spread of some quantity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The smallest value.
    pub least: f64,
    /// A quarter is below.
    pub quarter: f64,
    /// Half is below.
    pub half: f64,
    /// Three quarters are below.
    pub three_quarters: f64,
    /// Nineteen in twenty are below.
    pub most_of_all: f64,
    /// The largest value.
    pub greatest: f64,
    /// The mean.
    pub mean: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| {
            let last = values.len().saturating_sub(1);
            values.get((last as f64 * share) as usize).copied().unwrap_or_default()
        };
        let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
        Self {
            least: at(0.0),
            quarter: at(0.25),
            half: at(0.5),
            three_quarters: at(0.75),
            most_of_all: at(0.95),
            greatest: at(1.0),
            mean,
        }
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { least, quarter, half, three_quarters, most_of_all, greatest, mean } = self;
        write!(
            f,
            "{least:>9.1}{quarter:>9.1}{half:>9.1}{three_quarters:>9.1}{most_of_all:>9.1}{greatest:>9.1}{mean:>9.1}"
        )
    }
}

/// A catalog's numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Statistics {
    /// Products.
    pub products: usize,
    /// Goals, one a session.
    pub goals: usize,
    /// Products that are asked for.
    pub wanted: usize,
    /// Distinct search terms that products were found under.
    pub queries: usize,
    /// Distinct attributes.
    pub attributes: usize,
    /// Products with 0, 1, 2, and 3 or more options.
    pub by_options: [usize; 4],
    /// Products without attributes.
    pub without_attributes: usize,
    /// Spreads, with their names.
    pub spreads: Vec<(&'static str, Spread)>,
}

impl Statistics {
    /// Counts a shop's catalog.
    pub fn of(shop: &Shop) -> Self {
        let products = &shop.catalog().products;
        let mut by_options = [0; 4];
        for product in products {
            by_options[product.options.len().min(3)] += 1;
        }
        let each = |count: fn(&Product) -> usize| {
            Spread::of(products.iter().map(move |product| count(product) as f64))
        };
        let wanted: Vec<&Product> = products
            .iter()
            .filter(|product| !matches!(product.instructions, Instructions::None))
            .collect();
        let combinations = |product: &&Product| {
            product.options.iter().map(|option| option.values.len()).product::<usize>() as f64
        };
        let bullet_sizes = products.iter().flat_map(|product| &product.bullets);
        let values = products.iter().flat_map(|product| &product.options);
        Self {
            products: products.len(),
            goals: shop.goals().len(),
            wanted: wanted.len(),
            queries: products.iter().map(|product| &product.query).collect::<HashSet<_>>().len(),
            attributes: products
                .iter()
                .flat_map(|product| &product.attributes)
                .collect::<HashSet<_>>()
                .len(),
            by_options,
            without_attributes: products.iter().filter(|p| p.attributes.is_empty()).count(),
            spreads: vec![
                ("category depth", each(|p| p.product_category.split('›').count())),
                ("title words", each(|p| p.title.split_whitespace().count())),
                ("title characters", each(|p| p.title.chars().count())),
                ("description characters", each(|p| p.description.chars().count())),
                ("bullet points", each(|p| p.bullets.len())),
                ("bullet characters", Spread::of(bullet_sizes.map(|b| b.chars().count() as f64))),
                ("price", Spread::of(shop.prices().iter().copied())),
                ("values an option", Spread::of(values.map(|option| option.values.len() as f64))),
                ("attributes", each(|p| p.attributes.len())),
                ("goals a wanted product", Spread::of(wanted.iter().map(combinations))),
                ("searched terms", each(|p| analyzer::terms(&p.search_text()).len())),
            ],
        }
    }

    /// The spread of this name.
    pub fn spread(&self, name: &str) -> Option<Spread> {
        self.spreads.iter().find(|(known, _)| *known == name).map(|(_, spread)| *spread)
    }
}
