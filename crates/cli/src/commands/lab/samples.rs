//! `lens lab samples`: what a recipe trains on, to read before anything is trained.

use std::io::Write;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use lens_env::registry;
use lens_lab::build::Build;
use lens_lab::corpus::Sample;
use lens_lab::recipe::Recipe;
use lens_lm::tokenizer::Tokenizer;

use super::default_benchmark;
use crate::failure::Failure;

/// Print samples that a recipe trains on
#[derive(Debug, clap::Args)]
pub(crate) struct SamplesArgs {
    /// Follow this recipe instead of a shipped one.
    #[arg(long, value_name = "FILE", conflicts_with = "benchmark")]
    recipe: Option<PathBuf>,
    /// Follow the shipped recipe for this benchmark.
    #[arg(long, default_value_t = default_benchmark(), value_parser = PossibleValuesParser::new(registry::names()))]
    benchmark: String,
    /// The seed of the draws.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Show the habits of this model.
    #[arg(long, value_name = "MODEL")]
    only: Vec<String>,
    /// Print only samples of this kind, as recipes spell it.
    #[arg(long)]
    kind: Option<String>,
    /// Print at most N samples, taken at equal distances.
    #[arg(long, value_name = "N", default_value_t = 5)]
    count: usize,
    /// Cut answers into the tokens of this `tokenizer.json`, and count those of prompts.
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
}

impl SamplesArgs {
    pub(super) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        let recipe = match &self.recipe {
            Some(file) => Recipe::read(file)?,
            None => Recipe::shipped(&self.benchmark)?,
        };
        let tokenizer = match &self.tokenizer {
            Some(path) => Some(Tokenizer::from_file(path)?),
            None => None,
        };
        let build =
            Build { recipe, seed: self.seed, out: PathBuf::new(), only: self.only, skip_stages: 0 };
        let samples = build.samples()?;
        let wanted = |sample: &&Sample| {
            self.kind.as_ref().is_none_or(|kind| sample.kind.name() == kind.as_str())
        };
        let samples: Vec<&Sample> = samples.iter().filter(wanted).collect();
        let stride = (samples.len() / self.count.max(1)).max(1);
        for sample in samples.iter().step_by(stride).take(self.count) {
            writeln!(out, "== {}\n{}\n--\n{}", sample.kind.name(), sample.message, sample.answer)?;
            if let Some(tokenizer) = &tokenizer {
                print_tokens(tokenizer, sample, out)?;
            }
        }
        Ok(writeln!(out, "== {} samples", samples.len())?)
    }
}

fn print_tokens(
    tokenizer: &Tokenizer,
    sample: &Sample,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let prompt = tokenizer.encode(&sample.message)?;
    let answer = tokenizer.encode(&sample.answer)?;
    let mut pieces = Vec::new();
    for id in &answer {
        pieces.push(tokenizer.decode(&[*id])?);
    }
    writeln!(out, "-- {} tokens, then {}: {}", prompt.len(), answer.len(), pieces.join("|"))?;
    Ok(())
}
