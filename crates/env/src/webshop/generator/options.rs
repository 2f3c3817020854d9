//! What can be chosen: colors, sizes and the like.

use super::Dice;
use super::product::Thing;
use super::words::{COLORS, FITS, PATTERNS, SHADES, SHAPES, STYLES, TASTES};

/// The most values an option has.
pub(super) const MOST_VALUES: usize = 45;

/// Draws a product's options.
pub(super) fn draw(thing: &Thing, dice: &mut Dice) -> Vec<(String, Vec<String>)> {
    let department = thing.department;
    let count = dice.weighted(department.option_counts.into_iter());
    let mut names: Vec<&str> = Vec::new();
    while names.len() < count.min(department.options.len()) {
        let index = dice.weighted(department.options.iter().map(|(_, weight)| *weight));
        let (name, _) = department.options[index];
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
        .into_iter()
        .map(|name| {
            let median = if department.category == "fashion" { 4.2 } else { 2.2 };
            let count = 2 + dice.log_normal(median, 2.4) as usize;
            (name.to_owned(), values(name, count.min(MOST_VALUES), department.category, dice))
        })
        .collect()
}

/// `count` different values of an option.
pub(super) fn values(name: &str, count: usize, category: &str, dice: &mut Dice) -> Vec<String> {
    let many = match name {
        "color" => colors(),
        "size" => sizes(category, dice),
        "scent" | "flavor" | "flavor name" => TASTES.map(str::to_owned).to_vec(),
        "pattern name" => PATTERNS.map(str::to_owned).to_vec(),
        "item shape" => SHAPES.map(str::to_owned).to_vec(),
        "fit type" => FITS.map(str::to_owned).to_vec(),
        _ => STYLES.map(str::to_owned).to_vec(),
    };
    let mut indices: Vec<usize> = (0..many.len()).collect();
    if name == "size" {
        // Sizes come in order and without gaps.
        let first = dice.below(many.len().saturating_sub(count) + 1);
        indices = indices.into_iter().skip(first).take(count).collect();
    } else {
        indices = dice.some(&indices, count);
    }
    indices.into_iter().map(|index| many[index].clone()).collect()
}

/// Plain colors and as many shaded ones, each shade with two of them.
fn colors() -> Vec<String> {
    let plain = COLORS.iter().map(|&color| color.to_owned());
    let shades = SHADES.iter().chain(&SHADES);
    let shaded = shades.zip(&COLORS).map(|(shade, color)| format!("{shade} {color}"));
    plain.chain(shaded).collect()
}

fn sizes(category: &str, dice: &mut Dice) -> Vec<String> {
    let letters =
        ["x-small", "small", "medium", "large", "x-large", "xx-large", "3x-large", "4x-large"];
    match (category, dice.below(2)) {
        ("fashion", 0) => letters.map(str::to_owned).to_vec(),
        ("fashion", _) => (10..=30).map(|half| format!("{}", f64::from(half) / 2.0)).collect(),
        ("grocery" | "beauty", 0) => (1..=24).map(|n| format!("{n} count (pack of {n})")).collect(),
        ("grocery" | "beauty", _) => {
            (1..=40).map(|n| format!("{} fl oz", f64::from(n) * 0.85)).collect()
        }
        ("electronics", 0) => (1..=50).map(|n| format!("{n} feet")).collect(),
        ("electronics", _) => (5..=50).map(|n| format!("{n} inch screen")).collect(),
        (_, 0) => (2..=47).map(|n| format!("{} x {} inch", 6 * n, 9 * n)).collect(),
        (_, _) => (1..=45).map(|n| format!("{n} piece set")).collect(),
    }
}
