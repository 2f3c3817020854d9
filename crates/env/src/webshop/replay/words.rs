//! Recorded answers about words.

use serde_json::Value;

use super::{Checker, Replayer, index, texts};
use crate::webshop::reward::{self, color, fuzzy};
use crate::webshop::search::analyzer;

/// A text's terms, or those of a product's searched text.
pub(super) fn analyzed(replayer: &Replayer, line: &Value, checker: &mut Checker) -> Option<()> {
    let recorded = texts(&line["tokens"])?;
    let ours = match line.get("id") {
        None => analyzer::terms(line["text"].as_str()?),
        Some(asin) => {
            let catalog = replayer.synthetic.catalog();
            let product = &catalog.products[catalog.find(asin.as_str()?)?];
            analyzer::terms(&product.search_text())
        }
    };
    let ours: Vec<&str> = ours.iter().map(String::as_str).collect();
    checker.equal("terms", &ours, &recorded);
    Some(())
}

/// How alike two texts are; the second may be a named option.
pub(super) fn likeness(_: &Replayer, line: &Value, checker: &mut Checker) -> Option<()> {
    let a = line["a"].as_str()?;
    let b = match &line["b"] {
        Value::String(text) => text.clone(),
        pair => {
            let pair = texts(pair)?;
            let &[name, value] = pair.as_slice() else { return None };
            let printed = reward::tuple_text(name, value);
            checker.equal("the printed pair", &printed.as_str(), &line["b_str"].as_str()?);
            let color = color::normalize_named(name, value);
            checker.equal("the pair's color", &color, &line["norm"].as_str());
            color.map_or(printed, str::to_owned)
        }
    };
    let ours = fuzzy::token_set_ratio(a, &b) as usize;
    checker.equal(format_args!("{a:?} and {b:?}"), &ours, &index(&line["s"])?);
    Some(())
}

pub(super) fn color(_: &Replayer, line: &Value, checker: &mut Checker) -> Option<()> {
    let value = line["v"].as_str()?;
    checker.equal(
        format_args!("color of {value:?}"),
        &color::normalize(value),
        &line["out"].as_str()?,
    );
    Some(())
}
