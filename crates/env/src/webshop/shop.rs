//! Everything that sessions share and nobody changes: products, sampled prices, goals, the search index.

use std::path::Path;
use std::sync::Arc;

use lens_opd::random::{Purpose, StreamKey};

use super::catalog::{self, Catalog, CatalogFiles};
use super::goals::{Goal, GoalKind, Goals};
use super::random::PythonRandom;
use super::reward::nouns::Nouns;
use super::reward::{self, Purchase, Reward};
use super::search::{IndexBuilder, SearchIndex};
use crate::error::EnvError;

/// The most results a search gives.
const MOST_RESULTS: usize = 50;

/// How to set a shop up from the upstream files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShopSettings {
    /// Which goals to offer.
    pub goals: GoalKind,
    /// The seed of sampled prices and price ceilings, which the original leaves to chance.
    pub price_seed: u64,
    /// Take only the first products of the file.
    pub products: Option<usize>,
}

/// A search that the original engine dies of, with the words it dies with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SearchError(pub &'static str);

/// The shop.
#[derive(Debug)]
pub struct Shop {
    catalog: Catalog,
    prices: Vec<f64>,
    goals: Goals,
    index: SearchIndex,
    nouns: Nouns,
    seed: u64,
}

impl Shop {
    /// Opens a shop with the upstream files of a folder. `nouns` is a noun table to use in place of the folder's own.
    pub fn open(
        folder: &Path,
        nouns: Option<&Path>,
        settings: ShopSettings,
    ) -> Result<Self, EnvError> {
        let files = CatalogFiles::find(folder)?;
        let nouns = match nouns.or(files.nouns.as_deref()) {
            Some(path) => Nouns::from_table(catalog::load_nouns(path)?),
            None => Nouns::default(),
        };
        let human = settings.goals == GoalKind::Human;
        let catalog = catalog::load(&files, settings.products, human)?;
        Self::new(catalog, nouns, settings.price_seed)
    }

    /// A shop with these products. Prices are drawn in product order, then one ceiling a goal, as the original does.
    pub fn new(catalog: Catalog, nouns: Nouns, price_seed: u64) -> Result<Self, EnvError> {
        let mut random = PythonRandom::seed(price_seed);
        let prices: Vec<f64> =
            catalog.products.iter().map(|product| product.pricing.sample(&mut random)).collect();
        let goals = Goals::new(&catalog, &prices, &mut random)?;
        let index = build_index(&catalog);
        Ok(Self { catalog, prices, goals, index, nouns, seed: price_seed })
    }

    /// The products.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The goals, one a session number.
    pub fn goals(&self) -> &Goals {
        &self.goals
    }

    /// The search index.
    pub fn index(&self) -> &SearchIndex {
        &self.index
    }

    /// The nouns of titles.
    pub fn nouns(&self) -> &Nouns {
        &self.nouns
    }

    /// The sampled prices, in product order.
    pub fn prices(&self) -> &[f64] {
        &self.prices
    }

    /// The goal of a session.
    pub fn goal(&self, number: usize) -> Option<Goal<'_>> {
        self.goals.get(number, &self.catalog)
    }

    /// What the session's shopper is asked for; empty for a session that does not exist.
    pub(super) fn goal_text(&self, number: usize) -> String {
        self.goal(number).map_or_else(String::new, |goal| goal.text)
    }

    /// The reward for buying a product with these options; `None` if the goal or the product does not exist.
    pub fn reward(
        &self,
        goal: usize,
        product: usize,
        options: &[(Arc<str>, Arc<str>)],
    ) -> Option<Reward> {
        let goal = self.goal(goal)?;
        let wanted = &self.catalog.products[goal.product];
        let bought = self.catalog.products.get(product)?;
        let nouns = self.nouns.of(&bought.title);
        let purchase =
            Purchase { product: bought, nouns: &nouns, price: self.prices[product], options };
        Some(reward::reward(purchase, &goal, wanted, &self.nouns.of(&wanted.title)))
    }

    /// Whether a query asks for random products.
    pub(super) fn is_random(keywords: &str) -> bool {
        keywords.split(' ').next() == Some("<r>")
    }

    /// The products that a query finds, best first. Some first words are special: `<r>` finds random products, `<c>`
    /// those of a department, `<q>` those found under a search term. `session` and `nth` name the draw of random ones.
    pub fn search(
        &self,
        keywords: &str,
        session: usize,
        nth: u64,
    ) -> Result<Arc<[u32]>, SearchError> {
        let (first, rest) = match keywords.split_once(' ') {
            Some((first, rest)) => (first, Some(rest)),
            None => (keywords, None),
        };
        let products = &self.catalog.products;
        let all = 0..products.len() as u32;
        match (first, rest) {
            ("<r>", _) => Ok(self.random_products(session, nth)),
            ("<a>", _) => Err(SearchError("TypeError: 'NoneType' object is not subscriptable")),
            ("<c>", None) => Err(SearchError("IndexError: list index out of range")),
            ("<c>", Some(rest)) => {
                let wanted = super::python::strip(rest.split(' ').next().unwrap_or_default());
                Ok(all.filter(|&at| &*products[at as usize].category == wanted).collect())
            }
            ("<q>", rest) => {
                let wanted = super::python::strip(rest.unwrap_or_default());
                Ok(all.filter(|&at| &*products[at as usize].query == wanted).collect())
            }
            _ => {
                let hits = self
                    .index
                    .search(keywords, MOST_RESULTS)
                    .map_err(|_| SearchError("TooManyClauses: maxClauseCount is set to 1024"))?;
                Ok(hits.iter().map(|hit| hit.document).collect())
            }
        }
    }

    fn random_products(&self, session: usize, nth: u64) -> Arc<[u32]> {
        let mut stream = StreamKey::new(self.seed, nth, session as u64, Purpose::Data, 0).open();
        let count = self.catalog.products.len();
        let mut drawn: Vec<u32> = Vec::with_capacity(MOST_RESULTS);
        while drawn.len() < MOST_RESULTS.min(count) {
            let at = stream.below(count as u64).unwrap_or_default() as u32;
            if !drawn.contains(&at) {
                drawn.push(at);
            }
        }
        drawn.into()
    }
}

fn build_index(catalog: &Catalog) -> SearchIndex {
    let mut builder = IndexBuilder::default();
    for product in &catalog.products {
        builder.add(&product.search_text());
    }
    let mut by_asin: Vec<u32> = (0..catalog.products.len() as u32).collect();
    by_asin.sort_unstable_by_key(|&at| &catalog.products[at as usize].asin);
    let mut ranks = vec![0; by_asin.len()];
    for (rank, &at) in by_asin.iter().enumerate() {
        ranks[at as usize] = rank as u32;
    }
    builder.finish(ranks)
}
