//! The memory of training adapters: `adapter_memory SHAPE [STEPS] [RANK]`, SHAPE `qwen3-1.7b`, `qwen3-4b` or one of
//! `lens bench engine`. Holds what a run holds of its student (the frozen bf16 model, adapters, a published bf16 student), steps and
//! publishes; prints the peak and what a formula says.

use std::io::Write;

use lens_lm::train::bench::{BenchShape, adapter_memory};
use lens_lm::train::{
    LoraOptions, Targets, TrainerOptions, activation_bytes_per_token, scratch_bytes,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let name = arguments.first().map_or("qwen3-1.7b", String::as_str);
    let shape = BenchShape::all()
        .into_iter()
        .chain(BenchShape::large())
        .find(|shape| shape.name == name)
        .ok_or_else(|| format!("no shape `{name}`; try qwen3-1.7b or qwen3-4b"))?;
    let steps = arguments.get(1).map_or(Ok(1), |text| text.parse())?;
    let rank = arguments.get(2).map_or(Ok(16), |text| text.parse())?;
    let lora = LoraOptions { rank, alpha: 32.0, targets: Targets::ALL, seed: 0, bf16_base: true };
    let options = TrainerOptions { lora: Some(lora), ..TrainerOptions::default() };
    let (peak, losses) = adapter_memory(&shape, options, steps)?;
    let config = &shape.config;
    let tokens: usize = shape.row_lengths().iter().sum();
    let kept = tokens * activation_bytes_per_token(config, false);
    let activations = if kept > options.activation_bytes {
        tokens * activation_bytes_per_token(config, true)
    } else {
        kept
    };
    let formula = 4 * config.parameter_count()
        + 20 * lora.parameter_count(config)
        + 2 * config.vocab_size * shape.teacher_hidden
        + activations
        + scratch_bytes(config, &options, tokens);
    let gib = |bytes: f64| bytes / f64::from(1 << 30);
    writeln!(
        std::io::stdout(),
        "{name}, rank {rank}, {tokens} tokens: peak {:.2} GiB, formula {:.2} GiB, losses {losses:?}",
        peak.map_or(f64::NAN, |bytes| gib(bytes as f64)),
        gib(formula as f64)
    )?;
    Ok(())
}
