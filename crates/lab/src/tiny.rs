//! The smallest models that know a benchmark's format: built in seconds, for tests of the whole loop.

use std::path::Path;
use std::sync::Arc;

use lens_env::{Benchmark, Task};
use lens_lm::config::Family;

use crate::corpus::{Corpus, CorpusOptions, SampleKind};
use crate::episodes::{Demonstrated, demonstrations};
use crate::error::LabError;
use crate::recipe::{Model, Optimizer, Stage, Tokenizer};
use crate::stage::Builder;
use crate::tokenizer;

/// How the samples of tiny models are made.
pub const CORPUS: CorpusOptions = CorpusOptions {
    seed: 3,
    history: 2,
    corpus: Corpus { critique: 0.5, instruction_following: 0.5, ..Corpus::act_only(6) },
};

/// The tokenizer of tiny models.
pub const TOKENIZER: Tokenizer = Tokenizer { vocab_size: 2048, samples: 200 };

/// The optimizer of tiny models.
pub const OPTIMIZER: Optimizer = Optimizer { betas: (0.9, 0.95), weight_decay: 0.05, warmup: 0.05 };

/// A model of some ten thousand parameters besides its embedding, with one stage of a hundred steps.
pub fn model(name: &str, mixture: &[SampleKind]) -> Model {
    Model {
        name: name.to_owned(),
        family: Family::Qwen3,
        hidden_size: 32,
        intermediate_size: 64,
        layers: 2,
        heads: 2,
        kv_heads: 1,
        head_dim: 16,
        rope_theta: 1_000_000.0,
        max_position: 4096,
        init_std: 0.02,
        starts_from: None,
        habits: None,
        stages: vec![Stage {
            mixture: mixture.to_vec(),
            steps: 100,
            batch_size: 32,
            lr: 1e-2,
            prompt_weight: 0.1,
            dagger_games: 0,
            dagger_player: None,
        }],
    }
}

/// Builds a `teacher` and a `student-small` in `folder` that know the format of `tasks` and little else.
pub fn pair(benchmark: &Arc<dyn Benchmark>, tasks: &[Task], folder: &Path) -> Result<(), LabError> {
    use SampleKind::{Act, Critique, InstructionFollowing};
    let Demonstrated { samples, turns } = demonstrations(benchmark, tasks, &CORPUS)?;
    let splitting = tokenizer::splitting(benchmark.profile());
    let tokenizer_json = tokenizer::train(&samples, &turns, TOKENIZER, splitting)?;
    let models = [
        model("teacher", &[Act, Critique, InstructionFollowing]),
        model("student-small", &[Act, InstructionFollowing]),
    ];
    for (seed, model) in (1..).zip(models) {
        let builder = Builder {
            benchmark,
            tokenizer_json: &tokenizer_json,
            vocab_size: TOKENIZER.vocab_size,
            samples: &samples,
            turns: &turns,
            corpus: CorpusOptions { seed, ..CORPUS },
            optimizer: OPTIMIZER,
        };
        builder.run_stage(&model, 0, &folder.join(&model.name), |_| {}, |_, _| {})?;
    }
    Ok(())
}
