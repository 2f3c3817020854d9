//! What a purchase is worth, from 0 to 1: the right kind of product, its attributes, its options, its price.

pub mod color;
pub mod fuzzy;
pub mod nouns;

use std::collections::HashSet;
use std::sync::Arc;

use self::fuzzy::Tokens;
use super::catalog::Product;
use super::goals::{Goal, GoalOptions};
use super::python::push_repr;

/// Two texts are the same if they are more alike than this.
const ALIKE: u32 = 85;

/// A reward and how it came about. Shares are of what the goal asks for, weights of the whole reward.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reward {
    /// The reward.
    pub total: f64,
    /// What the kind of product leaves of it.
    pub kind: Kind,
    /// The share of attributes met, and their weight.
    pub attributes: (f64, f64),
    /// The share of options met, and their weight, if options are asked for.
    pub options: Option<(f64, f64)>,
    /// Whether the price is low enough, and its weight.
    pub price: (bool, f64),
}

/// How well the kinds of two products agree.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Kind {
    /// The factor put on the reward: 1, 0.5, 0.1 or 0.
    pub factor: f64,
    /// Whether both were found under the same search term.
    pub query_match: bool,
    /// Whether their category paths have two pieces in common.
    pub category_match: bool,
    /// The share of the goal's nouns that the bought product's title has.
    pub title_score: f64,
}

/// What was bought: the product, the nouns of its title, its sampled price and the chosen options.
#[derive(Debug, Clone, Copy)]
pub struct Purchase<'a> {
    /// The product.
    pub product: &'a Product,
    /// The nouns of its title.
    pub nouns: &'a [Arc<str>],
    /// Its sampled price.
    pub price: f64,
    /// The options chosen: names and values.
    pub options: &'a [(Arc<str>, Arc<str>)],
}

/// The reward of a purchase. `wanted` and `wanted_nouns` are the goal's product and the nouns of its title.
pub fn reward(
    bought: Purchase<'_>,
    goal: &Goal<'_>,
    wanted: &Product,
    wanted_nouns: &[Arc<str>],
) -> Reward {
    let kind = kind(bought, wanted, wanted_nouns);
    let attribute_hits = attribute_hits(bought.product, goal);
    let option_hits = option_hits(bought.options, &goal.options);
    let cheap = bought.price <= goal.price_upper;
    let asked = (goal.attributes.len() + goal.options.len() + 1) as f64;
    let hits = attribute_hits + option_hits + usize::from(cheap);
    let share = |hits: usize, of: usize| (hits as f64 / of as f64, of as f64 / asked);
    Reward {
        total: hits as f64 / asked * kind.factor,
        kind,
        attributes: share(attribute_hits, goal.attributes.len()),
        options: (!goal.options.is_empty()).then(|| share(option_hits, goal.options.len())),
        price: (cheap, 1.0 / asked),
    }
}

fn kind(bought: Purchase<'_>, wanted: &Product, wanted_nouns: &[Arc<str>]) -> Kind {
    let query_match = bought.product.query == wanted.query;
    let ours = category_pieces(&bought.product.product_category);
    let theirs = category_pieces(&wanted.product_category);
    let category_match = ours.intersection(&theirs).count() >= 2;
    let title_score = if wanted_nouns.is_empty() {
        0.2
    } else {
        let ours: HashSet<&str> = bought.nouns.iter().map(AsRef::as_ref).collect();
        let theirs: HashSet<&str> = wanted_nouns.iter().map(AsRef::as_ref).collect();
        // Repeated nouns count in the divisor only, so even the goal's own product may score below 1.
        ours.intersection(&theirs).count() as f64 / wanted_nouns.len() as f64
    };
    let factor = if title_score == 0.0 {
        0.0
    } else if title_score < 0.1 {
        0.1
    } else if query_match || category_match || title_score > 0.2 {
        1.0
    } else {
        0.5
    };
    Kind { factor, query_match, category_match, title_score }
}

fn category_pieces(path: &str) -> HashSet<&str> {
    path.split('›').map(super::python::strip).collect()
}

fn attribute_hits(product: &Product, goal: &Goal<'_>) -> usize {
    let known: Vec<Tokens> = product.attributes.iter().map(|known| Tokens::new(known)).collect();
    let mut texts: Option<[String; 3]> = None;
    let met = |attribute: &&Arc<str>| {
        let tokens = Tokens::new(attribute);
        if known.iter().any(|known| known.ratio(&tokens) > ALIKE) {
            return true;
        }
        let texts = texts.get_or_insert_with(|| {
            [
                product.title.to_lowercase(),
                product.bullets.join(" ").to_lowercase(),
                product.description.to_lowercase(),
            ]
        });
        texts.iter().any(|text| text.contains(&***attribute))
    };
    goal.attributes.iter().filter(met).count()
}

fn option_hits(chosen: &[(Arc<str>, Arc<str>)], wanted: &GoalOptions) -> usize {
    let chosen: Vec<Tokens> =
        chosen.iter().map(|(_, value)| Tokens::new(color::normalize(value))).collect();
    let met = |wanted: &str| {
        let wanted = Tokens::new(wanted);
        chosen.iter().any(|chosen| chosen.ratio(&wanted) > ALIKE)
    };
    match wanted {
        GoalOptions::Values(values) => {
            values.iter().filter(|value| met(color::normalize(value))).count()
        }
        GoalOptions::Named(options) => options
            .iter()
            .filter(|(name, value)| match color::normalize_named(name, value) {
                Some(color) => met(color),
                None => met(&tuple_text(name, value)),
            })
            .count(),
    }
}

/// The original compares a named option as Python prints the pair, so the name's words take part.
pub(super) fn tuple_text(name: &str, value: &str) -> String {
    let mut text = String::from("(");
    push_repr(&mut text, name);
    text.push_str(", ");
    push_repr(&mut text, value);
    text.push(')');
    text
}
