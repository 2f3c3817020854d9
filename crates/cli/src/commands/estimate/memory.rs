//! The largest memory of a run with native models.

use lens_config::Config;
use lens_config::schema::WeightsName;
use lens_lm::config::ModelConfig;
use lens_lm::train::{TrainerOptions, activation_bytes_per_token};

use crate::memory;

/// What a process takes before it has a model: the program, the games, tokenizers, records being written.
const PROCESS: u64 = 64 << 20;
/// Bytes of a cached number.
const KV_BYTES: usize = 4;

/// Bytes that the keys and values of one token take.
fn kv_per_token(model: &ModelConfig) -> usize {
    2 * model.layers * model.kv_heads * model.head_dim * KV_BYTES
}

/// The peak of a run; `row` is the tokens of a row, `queued` the rows that wait at once, `response` their trained tokens.
pub(super) fn peak(
    config: &Config,
    (student, teacher): (&ModelConfig, &ModelConfig),
    row: u64,
    queued: u64,
    response: u64,
) -> u64 {
    let bytes = |weights: WeightsName| match weights {
        WeightsName::F32 => 4,
        WeightsName::Bf16 => 2,
        WeightsName::Int8 => 1,
    };
    // Masters, gradient and two moments; the published student; one that rows still refer to.
    let learner = student.parameter_count() as u64 * (16 + 2 * bytes(config.student.weights));
    // The teacher as it scores, and its output head in full precision for the loss.
    let head = (teacher.vocab_size * teacher.hidden_size * 4) as u64;
    let judge = teacher.parameter_count() as u64 * bytes(config.teacher.weights) + head;
    let cache = memory::budget(config, kv_per_token(student) + kv_per_token(teacher)) as u64;
    let trainer = TrainerOptions::default();
    let per_token = activation_bytes_per_token(student, config.train.recompute);
    let tokens = trainer.micro_batch_tokens.min(row as usize * config.train.batch_size);
    let activations = (tokens * per_token).min(trainer.activation_bytes.max(per_token)) as u64;
    let targets = queued * response * 4 * (student.hidden_size + teacher.hidden_size) as u64;
    PROCESS + learner + judge + cache + activations + targets
}
