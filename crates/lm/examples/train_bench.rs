//! Times train steps: `train_bench SHAPE [STEPS] [RESPONSE_SHARE] [recompute]`; prints one JSON line.

use std::io::Write;

use lens_lm::train::bench::{BenchShape, run};
use lens_lm::train::{Recompute, TrainerOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let name = arguments.first().map_or("laboratory", String::as_str);
    let mut shape = BenchShape::all()
        .into_iter()
        .find(|shape| shape.name == name)
        .ok_or_else(|| format!("no shape `{name}`; try laboratory, smollm2-135m or qwen3-0.6b"))?;
    let steps = arguments.get(1).map_or(Ok(3), |text| text.parse())?;
    if let Some(share) = arguments.get(2) {
        shape.response_share = share.parse()?;
    }
    let always = arguments.get(3).is_some_and(|word| word == "recompute");
    let recompute = if always { Recompute::Always } else { Recompute::Auto };
    let result = run(&shape, TrainerOptions { recompute, ..TrainerOptions::default() }, steps)?;
    writeln!(std::io::stdout(), "{}", serde_json::to_string(&result)?)?;
    Ok(())
}
