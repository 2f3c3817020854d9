//! `lens bench load`: how long a model takes from its file to its first token.

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use lens_config::schema::WeightsName;
use lens_lm::checkpoint::{Checkpoint, TensorSource};
use lens_lm::config::ModelConfig;
use lens_lm::gguf::GgufModel;
use lens_lm::model::Model;
use lens_lm::score::{ScoreOptions, ScoreRequest, score};
use lens_lm::train::bench::peak_rss_bytes;
use serde_json::json;

use crate::assemble::weight_format;
use crate::commands::model::is_single_file;
use crate::failure::Failure;

/// Options of `lens bench load`.
#[derive(Debug, clap::Args)]
pub(crate) struct Load {
    /// A model directory or a GGUF file.
    model: PathBuf,
    /// How weights are held.
    #[arg(long, default_value = "bf16", value_parser = crate::values::weights())]
    weights: WeightsName,
    /// Print JSON for scripts.
    #[arg(long)]
    json: bool,
}

/// A model that is open but not loaded yet.
struct Open {
    config: ModelConfig,
    source: Box<dyn TensorSource>,
    /// Whether the time to open it includes a tokenizer: a file made to be timed may have none.
    has_tokenizer: bool,
}

impl Load {
    fn open(&self) -> Result<Open, Failure> {
        if is_single_file(&self.model) {
            let model = GgufModel::open(&self.model)?;
            let tokenizer = model.files().and_then(|files| files.tokenizer());
            return Ok(Open {
                config: model.config().clone(),
                has_tokenizer: tokenizer.is_ok(),
                source: Box::new(model),
            });
        }
        let Checkpoint { files, weights, .. } = Checkpoint::open(&self.model)?;
        let has_tokenizer = files.tokenizer().is_ok();
        Ok(Open { config: files.config, source: Box::new(weights), has_tokenizer })
    }

    pub(super) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        let started = Instant::now();
        let open = self.open()?;
        let opened = started.elapsed().as_secs_f64();
        let model = Model::load(&open.config, &*open.source, weight_format(self.weights))?;
        let loaded = started.elapsed().as_secs_f64();
        // The first token of an answer to one token.
        let request = ScoreRequest { prompt: &[0], response: &[0], asked: &[] };
        let scored = score(&model, &[request], &ScoreOptions::default())?;
        let first = started.elapsed().as_secs_f64();
        let parameters = open.config.parameter_count();
        if self.json {
            let object = json!({
                "model": self.model, "weights": self.weights.to_string(), "parameters": parameters,
                "seconds_open": opened, "seconds_loaded": loaded, "seconds_first_token": first,
                "first_token": scored[0].positions[0].top1, "weight_bytes": model.weight_bytes(),
                "has_tokenizer": open.has_tokenizer,
                "peak_rss_bytes": peak_rss_bytes(),
            });
            return Ok(writeln!(out, "{object:#}")?);
        }
        let header =
            if open.has_tokenizer { "header and tokenizer" } else { "header (no tokenizer)" };
        let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        writeln!(
            out,
            "{:.0} million parameters held as {}: {header} after {opened:.2} s, weights after {loaded:.2} s, first token after {first:.2} s",
            parameters as f64 / 1e6,
            self.weights
        )?;
        write!(out, "weights: {:.0} MiB", mebibytes(model.weight_bytes() as u64))?;
        if let Some(peak) = peak_rss_bytes() {
            write!(out, "; most memory of the process: {:.0} MiB", mebibytes(peak))?;
        }
        Ok(writeln!(out)?)
    }
}
