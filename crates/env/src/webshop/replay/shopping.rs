//! Recorded goals, prices, searches and rewards.

use std::sync::Arc;

use serde_json::Value;

use super::{Checker, Replayer, index, texts};
use crate::webshop::goals::GoalOptions;
use crate::webshop::search::analyzer;

/// Printed scores are rounded to four digits, and lowered by a millionth for each equal one before.
const SCORE_ROUNDING: f64 = 2e-4;

pub(super) fn goal(replayer: &Replayer, line: &Value, checker: &mut Checker) -> Option<()> {
    let shop = match line["goal_options"] {
        Value::Object(_) => &replayer.synthetic,
        _ => replayer.human.as_ref()?,
    };
    let number = index(&line["i"])?;
    let Some(ours) = shop.goal(number) else {
        checker.equal(format_args!("goal {number}"), &"absent", &"present");
        return Some(());
    };
    let product = &shop.catalog().products[ours.product];
    let mut check = |key: &str, ours: Value| {
        if let Some(recorded) = line.get(key) {
            checker.equal(format_args!("{key} of goal {number}"), &ours, recorded);
        }
    };
    check("asin", Value::from(&*product.asin));
    check("instruction_text", Value::from(ours.text.as_str()));
    check("query", Value::from(&*product.query));
    check("product_category", Value::from(&*product.product_category));
    check(
        "attributes",
        ours.attributes.iter().map(|attribute| Value::from(&**attribute)).collect(),
    );
    check("goal_options", options_as_json(&ours.options));
    // Python writes some of these numbers without a fraction.
    for (key, ours) in [("price_upper", ours.price_upper), ("weight", ours.weight)] {
        if let Some(recorded) = line.get(key) {
            checker.equal(format_args!("{key} of goal {number}"), &ours, &recorded.as_f64()?);
        }
    }
    Some(())
}

fn options_as_json(options: &GoalOptions) -> Value {
    match options {
        GoalOptions::Named(options) => {
            options.iter().map(|(name, value)| (name.to_string(), Value::from(&**value))).collect()
        }
        GoalOptions::Values(values) => values.iter().map(|value| Value::from(&**value)).collect(),
    }
}

pub(super) fn price(replayer: &Replayer, line: &Value, checker: &mut Checker) -> Option<()> {
    let asin = line["asin"].as_str()?;
    let shop = &replayer.synthetic;
    let ours = shop.catalog().find(asin).map(|at| shop.prices()[at]);
    checker.equal(format_args!("price of {asin}"), &ours, &Some(line["price"].as_f64()?));
    Some(())
}

pub(super) fn nouns(replayer: &Replayer, line: &Value, checker: &mut Checker) -> Option<()> {
    let name = line["name"].as_str()?;
    let ours = replayer.synthetic.nouns().of(name);
    let ours: Vec<&str> = ours.iter().map(|noun| &**noun).collect();
    checker.equal(format_args!("nouns of {name:?}"), &ours, &texts(&line["nouns"])?);
    Some(())
}

pub(super) fn document_length(
    replayer: &Replayer,
    line: &Value,
    checker: &mut Checker,
) -> Option<()> {
    let asin = line["id"].as_str()?;
    let catalog = replayer.synthetic.catalog();
    let ours =
        catalog.find(asin).map(|at| analyzer::terms(&catalog.products[at].search_text()).len());
    checker.equal(format_args!("length of {asin}"), &ours, &Some(index(&line["n"])?));
    Some(())
}

pub(super) fn search(replayer: &Replayer, line: &Value, checker: &mut Checker) -> Option<()> {
    let query = line["q"].as_str()?;
    let shop = &replayer.synthetic;
    let hits = shop.index().search(&query.to_lowercase(), 50).ok()?;
    let mut recorded_asins = Vec::new();
    let mut recorded_scores = Vec::new();
    for hit in line["hits"].as_array()? {
        recorded_asins.push(hit.get(0)?.as_str()?);
        recorded_scores.push(hit.get(1)?.as_f64()?);
    }
    let asins: Vec<&str> =
        hits.iter().map(|hit| &*shop.catalog().products[hit.document as usize].asin).collect();
    checker.equal(format_args!("results of {query:?}"), &asins, &recorded_asins);
    let close = hits
        .iter()
        .zip(&recorded_scores)
        .all(|(hit, recorded)| (f64::from(hit.score) - recorded).abs() < SCORE_ROUNDING);
    checker.equal(format_args!("scores of {query:?} agree"), &close, &true);
    Some(())
}

pub(super) fn reward(replayer: &Replayer, line: &Value, checker: &mut Checker) -> Option<()> {
    let (shop, goal) = match line.get("human_goal") {
        Some(goal) => (replayer.human.as_ref()?, index(goal)?),
        None => (&replayer.synthetic, index(&line["goal"])?),
    };
    let asin = line["asin"].as_str()?;
    let options: Vec<(Arc<str>, Arc<str>)> = line["options"]
        .as_object()?
        .iter()
        .map(|(name, value)| Some((name.as_str().into(), value.as_str()?.into())))
        .collect::<Option<_>>()?;
    let ours = shop.catalog().find(asin).and_then(|at| {
        let reward = shop.reward(goal, at, &options)?;
        Some((shop.prices()[at], reward))
    });
    let Some((price, ours)) = ours else {
        checker.equal(format_args!("{asin} for goal {goal}"), &"absent", &"present");
        return Some(());
    };
    let mut check = |key: &str, ours: Value, recorded: Option<&Value>| {
        let what = format!("{key} of {asin} for goal {goal}");
        checker.equal(what, &Some(&ours), &recorded);
    };
    check("price", price.into(), line.get("price"));
    check("reward", ours.total.into(), line.get("reward"));
    if let Some(info) = line.get("info") {
        let mut check = |key: &str, ours: Value| check(key, ours, info.get(key));
        check("r_type", ours.kind.factor.into());
        check("query_match", ours.kind.query_match.into());
        check("category_match", ours.kind.category_match.into());
        check("title_score", ours.kind.title_score.into());
        check("r_att", ours.attributes.0.into());
        check("w_att", ours.attributes.1.into());
        check("r_price", ours.price.0.into());
        check("w_price", ours.price.1.into());
        if let Some((share, weight)) = ours.options {
            check("r_option", share.into());
            check("w_option", weight.into());
        }
    }
    Some(())
}
