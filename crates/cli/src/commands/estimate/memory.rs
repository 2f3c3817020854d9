//! The largest memory of a run with native models.

use lens_config::Config;
use lens_config::schema::{Model, WeightsName};
use lens_lm::config::ModelConfig;
use lens_lm::train::{Recompute, TrainerOptions, activation_bytes_per_token, scratch_bytes};

use crate::{assemble, memory};

/// What a process takes before it has a model: the program, the games, tokenizers, records being written.
const PROCESS: u64 = 32 << 20;

/// Bytes that the keys and values of one token take.
fn kv_per_token(model: &Model, shape: &ModelConfig) -> usize {
    let format = assemble::kv_format(model.kv_cache, assemble::weight_format(model.weights));
    2 * shape.layers * shape.kv_heads * shape.head_dim * format.bytes()
}

/// Bytes of a weight as it is held for generation and scoring.
fn bytes(weights: WeightsName) -> u64 {
    match weights {
        WeightsName::F32 => 4,
        WeightsName::Bf16 | WeightsName::Bf16Dot => 2,
        WeightsName::Int8 => 1,
    }
}

/// What is trained with its gradient and moments, what is frozen under it, and the published student.
fn learner(config: &Config, student: &ModelConfig, training: &TrainerOptions) -> u64 {
    let parameters = student.parameter_count() as u64;
    // While an older student plays, the next one is published beside it.
    let published =
        parameters * bytes(config.student.weights) * (1 + u64::from(config.train.overlap));
    let moments = |count: usize| training.moments.bytes(count) as u64;
    match training.lora {
        None => {
            let heads = 2 * 4 * (student.vocab_size * student.hidden_size) as u64;
            8 * parameters + moments(student.parameter_count()) + published + heads
        }
        Some(lora) => {
            let adapters = lora.parameter_count(student);
            let base = parameters * if lora.bf16_base { 2 } else { 4 };
            // Values, scaled values and gradient.
            base + 12 * adapters as u64 + moments(adapters) + published
        }
    }
}

/// Activations of a micro-batch of rows, some of whose tokens carry loss, and everything else that training needs for a
/// moment.
fn activations(
    student: &ModelConfig,
    training: &TrainerOptions,
    row: usize,
    response: usize,
    rows: usize,
) -> u64 {
    let always = training.recompute == Recompute::Always;
    let per_token = activation_bytes_per_token(student, always);
    let affordable = (training.activation_bytes / per_token).min(training.micro_batch_tokens);
    // One row goes through at least.
    let tokens = affordable.clamp(row, row.max(row * rows));
    let kept = if training.recompute == Recompute::Auto && row > affordable {
        tokens * activation_bytes_per_token(student, true)
    } else {
        tokens * per_token
    };
    let logits = tokens * response / row.max(1) * student.vocab_size * size_of::<f32>();
    let training = TrainerOptions { logit_bytes: training.logit_bytes.min(logits), ..*training };
    (kept + scratch_bytes(student, &training, tokens)) as u64
}

/// The peak of a run; `row` is the tokens of a row, `queued` the rows that wait at once, `response` their trained tokens.
pub(super) fn peak(
    config: &Config,
    (student, teacher): (&ModelConfig, &ModelConfig),
    row: u64,
    queued: u64,
    response: u64,
) -> u64 {
    let training = assemble::trainer_options(config);
    let learner = learner(config, student, &training);
    // The teacher as it scores, and its output head in full precision for the loss.
    let head = (teacher.vocab_size * teacher.hidden_size * 4) as u64;
    let judge = teacher.parameter_count() as u64 * bytes(config.teacher.weights) + head;
    let cache = memory::budget(
        config,
        kv_per_token(&config.student, student) + kv_per_token(&config.teacher, teacher),
    ) as u64;
    let rows = config.train.batch_size;
    let activations = activations(student, &training, row as usize, response as usize, rows);
    let targets = queued * response * 4 * (student.hidden_size + teacher.hidden_size) as u64;
    PROCESS + learner + judge + cache + activations + targets
}
