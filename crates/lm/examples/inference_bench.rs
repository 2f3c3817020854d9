//! Times inference: `inference_bench SHAPE WORK [LENGTH]`, WORK being `decode`, `decode1`, `score`, `prefill` or `peak`;
//! prints one JSON line. `LENS_KERNELS` chooses the instruction set.

use std::io::Write;

use lens_lm::bench::{decode, peak_gflops_with, prefill_prompt, score_rows};
use lens_lm::kernels::dispatch::Isa;
use lens_lm::model::WeightFormat;
use lens_lm::train::bench::BenchShape;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let name = arguments.first().map_or("laboratory", String::as_str);
    let shape = BenchShape::all()
        .into_iter()
        .find(|shape| shape.name == name)
        .ok_or_else(|| format!("no shape `{name}`; try laboratory, smollm2-135m or qwen3-0.6b"))?;
    let length = arguments.get(2).map_or(Ok(1024), |text| text.parse())?;
    let (bf16, f32) = (WeightFormat::Bf16, WeightFormat::F32);
    let mut out = std::io::stdout();
    let result = match arguments.get(1).map(String::as_str) {
        Some("decode1") => decode(&shape, bf16, 1, 512, 8, 5)?,
        Some("decode") => decode(&shape, bf16, 16, 512, 8, 5)?,
        Some("score") => score_rows(&shape, f32, 4, 1000, 30, 5)?,
        Some("prefill") => prefill_prompt(&shape, f32, length, 3)?,
        Some("peak") => {
            for isa in Isa::available() {
                writeln!(out, "{isa}: {:.0} GFLOP/s", peak_gflops_with(isa))?;
            }
            return Ok(());
        }
        _ => return Err("name the work: decode, decode1, score, prefill or peak".into()),
    };
    writeln!(out, "{}", serde_json::to_string(&result)?)?;
    Ok(())
}
