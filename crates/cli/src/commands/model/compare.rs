//! `lens model inspect --compare`: what rounding a model's weights costs.

use std::path::Path;

use lens_lm::model::{Model, WeightFormat};
use lens_lm::pair::{PairOptions, PairRow, pair_score};
use serde::Serialize;

use crate::commands::open_model::OpenModel;
use crate::failure::Failure;

/// Text of the kinds an agent reads and writes; the first part of each is the prompt, the rest is scored.
const TEXTS: [&str; 4] = [
    "You are in the middle of a room. Looking quickly around you, you see a cabinet, a countertop, a fridge and a \
     sink. Your task is to put a clean mug into the cabinet. You go to the sink and look at what lies in it: a mug, a \
     fork and a wet sponge. You take the mug, hold it under the water until it is clean, carry it to the cabinet, open \
     the door and put it on the shelf. The cabinet now holds the mug, and the task is done.",
    "The shop lists four pairs of shoes. The first costs 49.90 and comes in black and blue; the second is cheaper but \
     only in large sizes; the third has good reviews and free delivery; the fourth is sold out. The customer wants a \
     black pair in size 42 for less than 60, so the first one fits best. Choose the color, choose the size, check the \
     price once more and then buy it.",
    "Water boils at one hundred degrees at sea level. To find out whether an unknown liquid is water, fill a pot, put \
     it on the stove, switch the stove on and read the thermometer every minute. When bubbles rise and the reading stays \
     the same for three minutes, write the temperature down and compare it with the table on the wall.",
    "fn largest(values: &[f32]) -> Option<f32> { values.iter().copied().reduce(f32::max) } This function returns the \
     largest of the values, or nothing if there are none. A test would call it with an empty list, with one value and \
     with several, and compare the results: None, Some(1.0), Some(7.5).",
];

/// The longest text, in tokens; a small model's context may be shorter.
const MAX_TOKENS: usize = 256;

/// The cost of one format against f32.
#[derive(Debug, Serialize)]
pub(super) struct Cost {
    format: WeightFormat,
    weight_bytes: usize,
    tokens: usize,
    mean_kl: f64,
    largest_kl: f64,
    same_top1: f64,
    mean_logprob_change: f64,
    largest_logprob_change: f64,
}

/// Compares the rounded formats with f32 on built-in text.
pub(super) fn costs(path: &Path) -> Result<Vec<Cost>, Failure> {
    let open = OpenModel::open(path)?;
    let limit = MAX_TOKENS.min(open.files.config.max_position);
    let mut texts = Vec::new();
    for text in TEXTS {
        let mut tokens = open.tokenizer.encode(text)?;
        tokens.truncate(limit);
        if tokens.len() >= 2 {
            texts.push(tokens);
        }
    }
    let rows: Vec<PairRow<'_>> = texts
        .iter()
        .map(|tokens| {
            let (prompt, response) = tokens.split_at((tokens.len() / 8).max(1));
            PairRow { prompt, response }
        })
        .collect();
    let exact = open.load_as(WeightFormat::F32)?;
    [WeightFormat::Bf16, WeightFormat::Bf16Dot, WeightFormat::Int8]
        .into_iter()
        .map(|format| cost(&open, &exact, format, &rows))
        .collect()
}

fn cost(
    open: &OpenModel,
    exact: &Model,
    format: WeightFormat,
    rows: &[PairRow<'_>],
) -> Result<Cost, Failure> {
    let rounded = open.load_as(format)?;
    let options =
        PairOptions { real_vocab: Some(open.tokenizer.real_tokens()), ..PairOptions::default() };
    let positions: Vec<_> = pair_score(exact, &rounded, rows, &options)?.concat();
    let count = positions.len().max(1) as f64;
    let mut cost = Cost {
        format,
        weight_bytes: rounded.weight_bytes(),
        tokens: positions.len(),
        mean_kl: 0.0,
        largest_kl: 0.0,
        same_top1: 0.0,
        mean_logprob_change: 0.0,
        largest_logprob_change: 0.0,
    };
    for position in positions {
        let kl = f64::from(position.kl);
        let change = f64::from((position.student_logprob - position.teacher_logprob).abs());
        cost.mean_kl += kl / count;
        cost.largest_kl = cost.largest_kl.max(kl);
        cost.same_top1 += f64::from(position.student_top1 == position.teacher_top1) / count;
        cost.mean_logprob_change += change / count;
        cost.largest_logprob_change = cost.largest_logprob_change.max(change);
    }
    Ok(cost)
}

impl Cost {
    /// One line for a person.
    pub(super) fn line(&self) -> String {
        format!(
            "KL from f32 {:.2e} (largest {:.2e}), same first choice {:.1}%, log-probability off by {:.2e} (largest \
             {:.2e}) over {} tokens",
            self.mean_kl,
            self.largest_kl,
            100.0 * self.same_top1,
            self.mean_logprob_change,
            self.largest_logprob_change,
            self.tokens
        )
    }

    pub(super) fn format(&self) -> WeightFormat {
        self.format
    }
}
