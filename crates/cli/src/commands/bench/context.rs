//! `lens bench context`: how the cost of a token grows with the length of its prompt.

use std::io::Write;

use lens_lm::bench;
use lens_lm::cache::KvFormat;
use lens_lm::train::bench::BenchShape;
use serde_json::json;

use super::shape_name;
use crate::assemble::{kv_format, weight_format};
use crate::failure::Failure;
use lens_config::schema::{KvName, WeightsName};

/// Options of `lens bench context`.
#[derive(Debug, clap::Args)]
pub(crate) struct Context {
    /// The shape to measure.
    #[arg(long, default_value = "smollm2-135m", value_name = "SHAPE", value_parser = shape_name)]
    shape: String,
    /// How weights are held: f32, bf16, bf16-dot or int8.
    #[arg(long, default_value = "bf16", value_name = "WEIGHTS", value_parser = crate::values::weights())]
    weights: WeightsName,
    /// How keys and values are kept: auto (as the weights are), f32 or bf16.
    #[arg(long, default_value = "auto")]
    kv_cache: KvName,
    /// Tokens of the prompts; the paper's longest is 10,240.
    #[arg(long, value_delimiter = ',', default_value = "1024,2048,4096,8192,10240")]
    lengths: Vec<usize>,
    /// Measurements of each length, after one to warm up; the best counts.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    repeats: u16,
    /// Print JSON for scripts.
    #[arg(long)]
    json: bool,
}

impl Context {
    pub(super) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        if self.lengths.iter().any(|&length| !(2..=1 << 20).contains(&length)) {
            return Err(Failure::user("--lengths: a prompt has 2 to 1,048,576 tokens"));
        }
        let Some(shape) = BenchShape::all().into_iter().find(|shape| shape.name == self.shape)
        else {
            return Err(Failure::user("no such shape"));
        };
        let format = weight_format(self.weights);
        let kv = kv_format(self.kv_cache, format);
        let mut rows = Vec::new();
        if !self.json {
            let kept = if kv == KvFormat::F32 { "f32" } else { "bf16" };
            writeln!(out, "{}, {} weights, {kept} keys and values:", shape.name, self.weights)?;
            writeln!(
                out,
                "  {:>8} {:>10} {:>10} {:>10} {:>16} {:>12}",
                "tokens", "seconds", "tokens/s", "GFLOP/s", "beside attention", "MiB of cache"
            )?;
        }
        for &length in &self.lengths {
            let found = bench::context(&shape, format, kv, length, usize::from(self.repeats))?;
            if self.json {
                rows.push(json!(found));
                continue;
            }
            writeln!(
                out,
                "  {length:>8} {:>10.2} {:>10.0} {:>10.1} {:>15.2}x {:>12.0}",
                found.seconds,
                found.tokens_per_second,
                found.gflops,
                found.attention_share,
                found.cache_bytes as f64 / f64::from(1 << 20)
            )?;
            out.flush()?;
        }
        if self.json {
            writeln!(out, "{:#}", json!(rows))?;
        }
        Ok(())
    }
}
