//! Decoding and scoring as benchmarks, over the same shapes as the train step ([`crate::train::bench`]).

use std::time::Instant;

use lens_opd::random::{Purpose, Stream, StreamKey};
use serde::Serialize;

use crate::cache::{KvFormat, SequenceCache};
use crate::config::ModelConfig;
use crate::error::LmError;
use crate::kernels::dispatch::Isa;
use crate::kernels::peak;
use crate::model::{Model, Segment, WeightFormat};
use crate::sampling::{self, Sampling};
use crate::score::{ScoreOptions, ScoreRequest, score};
use crate::train::bench::{BenchShape, cpu_seconds, peak_rss_bytes, random_parameters};

/// What a benchmark measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct InferenceResult {
    /// The shape's name.
    pub name: &'static str,
    /// How the weights were kept.
    pub weights: WeightFormat,
    /// Tokens of one measurement: generated ones, or prompts and responses together.
    pub tokens: usize,
    /// Seconds of each measurement, after one to warm up.
    pub seconds: Vec<f64>,
    /// Processor seconds of the measurement that took fewest, all threads together, where the system tells.
    pub cpu_seconds: Option<f64>,
    /// Tokens per second of the best measurement.
    pub tokens_per_second: f64,
    /// Useful floating-point operations per second of the best measurement.
    pub gflops: f64,
    /// Most memory the process ever held, where the system tells.
    pub peak_rss_bytes: Option<u64>,
}

impl InferenceResult {
    fn new(
        name: &'static str,
        weights: WeightFormat,
        tokens: usize,
        flops: f64,
        watch: Stopwatch,
    ) -> Self {
        let Stopwatch { seconds, cpu, .. } = watch;
        let best = seconds.iter().copied().fold(f64::INFINITY, f64::min);
        Self {
            name,
            weights,
            tokens,
            seconds,
            cpu_seconds: cpu,
            tokens_per_second: tokens as f64 / best,
            gflops: flops / best / 1e9,
            peak_rss_bytes: peak_rss_bytes(),
        }
    }
}

/// Times repeated work, the first time of which warms up.
#[derive(Debug, Default)]
struct Stopwatch {
    warm: bool,
    seconds: Vec<f64>,
    cpu: Option<f64>,
}

impl Stopwatch {
    fn time<T>(&mut self, work: impl FnOnce() -> Result<T, LmError>) -> Result<T, LmError> {
        let (start, cpu_start) = (Instant::now(), cpu_seconds());
        let result = work()?;
        if std::mem::replace(&mut self.warm, true) {
            self.seconds.push(start.elapsed().as_secs_f64());
            if let (Some(start), Some(end)) = (cpu_start, cpu_seconds()) {
                self.cpu = Some(self.cpu.map_or(end - start, |least| least.min(end - start)));
            }
        }
        Ok(result)
    }
}

/// Floating-point operations of the blocks' matrix products for one token that attends to `context` positions.
fn block_flops(config: &ModelConfig, context: f64) -> f64 {
    let weights = config.hidden_size * (2 * config.q_width() + 2 * config.kv_width())
        + 3 * config.hidden_size * config.intermediate_size;
    (config.layers as f64) * (2.0 * weights as f64 + 4.0 * context * config.q_width() as f64)
}

/// Those of the output head for one position.
fn head_flops(config: &ModelConfig) -> f64 {
    2.0 * (config.hidden_size * config.vocab_size) as f64
}

/// Floating-point operations of the matrix products without which the last `wanted` of `tokens` positions cannot be told
/// their next tokens' probabilities: every position in all blocks but the last one, where the others serve as keys and values
/// alone, and the head at the wanted ones.
pub fn sequence_flops(config: &ModelConfig, tokens: usize, wanted: usize) -> f64 {
    let last = config.layers.min(1) as f64;
    let (tokens, wanted) = (tokens as f64, wanted.min(tokens) as f64);
    let block = ModelConfig { layers: 1, ..config.clone() };
    let keys = (4 * config.hidden_size * config.kv_width()) as f64;
    let whole = tokens * block_flops(&block, tokens / 2.0);
    let cut = tokens * keys + wanted * (block_flops(&block, tokens - wanted / 2.0) - keys);
    (config.layers as f64 - last) * whole + last * cut + wanted * head_flops(config)
}

/// Those of a train step for one such sequence, beside a teacher's head over hidden states of a width: the backward pass costs
/// twice the forward pass.
pub fn training_flops(
    config: &ModelConfig,
    teacher_hidden: usize,
    tokens: usize,
    wanted: usize,
) -> f64 {
    let teacher = 2.0 * (wanted * teacher_hidden * config.vocab_size) as f64;
    3.0 * sequence_flops(config, tokens, wanted) + teacher
}

fn random_tokens(stream: &mut Stream, count: usize, vocab: usize) -> Vec<u32> {
    (0..count).map(|_| stream.below(vocab as u64).unwrap_or(0) as u32).collect()
}

/// Decodes `batch` sequences, each with `cached` positions behind it (of random keys and values: their price does not
/// depend on what they say), sampling at temperature 1. One measurement is `steps` tokens of every sequence.
pub fn decode(
    shape: &BenchShape,
    weights: WeightFormat,
    batch: usize,
    cached: usize,
    steps: usize,
    repeats: usize,
) -> Result<InferenceResult, LmError> {
    let config = &shape.config;
    let model = Model::new(config, &random_parameters(config), weights)?;
    let inner = model.inner();
    let mut stream = StreamKey::new(2, 0, 0, Purpose::Data, 0).open();
    let noise: Vec<f32> = (0..4096 + config.kv_width()).map(|_| stream.normal() as f32).collect();
    let mut caches: Vec<SequenceCache> = Vec::with_capacity(batch);
    for _ in 0..batch {
        let mut cache = SequenceCache::new(&inner.pages);
        cache.extend(&random_tokens(&mut stream, cached, config.vocab_size));
        for layer in 0..config.layers {
            for position in 0..cached {
                let at = stream.below(4096).unwrap_or(0) as usize;
                let values = &noise[at..at + config.kv_width()];
                cache.write(layer, position, values, values);
            }
        }
        caches.push(cache);
    }
    let mut tokens = random_tokens(&mut stream, batch, config.vocab_size);
    let mut watch = Stopwatch::default();
    for _ in 0..=repeats {
        watch.time(|| {
            for _ in 0..steps {
                let mut segments: Vec<Segment<'_>> = caches
                    .iter_mut()
                    .zip(&tokens)
                    .map(|(cache, token)| Segment {
                        cache,
                        tokens: std::slice::from_ref(token),
                        wanted: 0..1,
                    })
                    .collect();
                let hidden = inner.forward(&mut segments);
                let logits = inner.logits(&hidden, config.vocab_size);
                for (row, token) in tokens.iter_mut().enumerate() {
                    let sampling = Sampling::default();
                    let choice =
                        sampling::choose(inner.isa, logits.row(row), &sampling, &mut stream);
                    *token =
                        choice.ok_or(LmError::NotFinite { index: row, position: cached })?.token;
                }
            }
            Ok(())
        })?;
    }
    let count = batch * steps;
    let flops = count as f64 * (block_flops(config, cached as f64) + head_flops(config));
    Ok(InferenceResult::new(shape.name, weights, count, flops, watch))
}

/// Scores `rows` unrelated prompts of `prompt` tokens with responses of `response` tokens.
pub fn score_rows(
    shape: &BenchShape,
    weights: WeightFormat,
    rows: usize,
    prompt: usize,
    response: usize,
    repeats: usize,
) -> Result<InferenceResult, LmError> {
    let config = &shape.config;
    let model = Model::new(config, &random_parameters(config), weights)?;
    let mut stream = StreamKey::new(3, 0, 0, Purpose::Data, 0).open();
    let texts: Vec<Vec<u32>> = (0..rows)
        .map(|_| random_tokens(&mut stream, prompt + response, config.vocab_size))
        .collect();
    let requests: Vec<ScoreRequest<'_>> = texts
        .iter()
        .map(|text| ScoreRequest { prompt: &text[..prompt], response: &text[prompt..], asked: &[] })
        .collect();
    let mut watch = Stopwatch::default();
    for _ in 0..=repeats {
        watch.time(|| score(&model, &requests, &ScoreOptions::default()))?;
    }
    let length = prompt + response;
    // The last token predicts nothing that is asked for.
    let flops = rows as f64 * sequence_flops(config, length - 1, response);
    Ok(InferenceResult::new(shape.name, weights, rows * length, flops, watch))
}

/// Runs one prompt of `length` tokens through a model; one measurement is the whole prompt.
pub fn prefill_prompt(
    shape: &BenchShape,
    weights: WeightFormat,
    length: usize,
    repeats: usize,
) -> Result<InferenceResult, LmError> {
    let config =
        ModelConfig { max_position: shape.config.max_position.max(length), ..shape.config.clone() };
    let model = Model::new(&config, &random_parameters(&config), weights)?;
    let mut stream = StreamKey::new(4, 0, 0, Purpose::Data, 0).open();
    let tokens = random_tokens(&mut stream, length, config.vocab_size);
    let inner = model.inner();
    let mut watch = Stopwatch::default();
    for _ in 0..=repeats {
        watch.time(|| {
            let mut cache = SequenceCache::new(&inner.pages);
            let wanted = length - 1..length;
            Ok(inner.forward(&mut [Segment { cache: &mut cache, tokens: &tokens, wanted }]))
        })?;
    }
    let flops = sequence_flops(&config, length, 1) - head_flops(&config);
    Ok(InferenceResult::new(shape.name, weights, length, flops, watch))
}

/// What one prompt cost.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ContextResult {
    /// Tokens of the prompt.
    pub tokens: usize,
    /// Seconds of the best measurement.
    pub seconds: f64,
    /// Tokens per second of the best measurement.
    pub tokens_per_second: f64,
    /// Useful floating-point operations per second of the best measurement.
    pub gflops: f64,
    /// Operations with attention over those without it: what the length itself has to cost.
    pub attention_share: f64,
    /// Bytes of the prompt's keys and values.
    pub cache_bytes: usize,
}

/// Reads one random prompt as scoring does, piece by piece, and scores one token after it.
pub fn context(
    shape: &BenchShape,
    weights: WeightFormat,
    kv: KvFormat,
    length: usize,
    repeats: usize,
) -> Result<ContextResult, LmError> {
    let config = ModelConfig {
        max_position: shape.config.max_position.max(length + 1),
        ..shape.config.clone()
    };
    let model = Model::new(&config, &random_parameters(&config), weights)?.with_kv_format(kv)?;
    let mut stream = StreamKey::new(5, 0, 0, Purpose::Data, 0).open();
    let prompt = random_tokens(&mut stream, length, config.vocab_size);
    let requests = [ScoreRequest { prompt: &prompt, response: &[1], asked: &[] }];
    let mut watch = Stopwatch::default();
    for _ in 0..=repeats {
        watch.time(|| score(&model, &requests, &ScoreOptions::default()))?;
    }
    let seconds = watch.seconds.iter().copied().fold(f64::INFINITY, f64::min);
    let tokens = length as f64;
    let flops = sequence_flops(&config, length, 1);
    Ok(ContextResult {
        tokens: length,
        seconds,
        tokens_per_second: tokens / seconds,
        gflops: flops / seconds / 1e9,
        attention_share: block_flops(&config, tokens / 2.0) / block_flops(&config, 0.0),
        cache_bytes: length * model.kv_bytes_per_token(),
    })
}

/// [`peak_gflops_with`] the instruction set in use.
pub fn peak_gflops() -> f64 {
    peak_gflops_with(Isa::active())
}

/// Multiply-adds from registers on all threads at once with one instruction set, the best of a few tries: GFLOP/s no
/// program can exceed with it.
pub fn peak_gflops_with(isa: Isa) -> f64 {
    /// Seconds a try should take at least on one thread, so that clocks have settled.
    const SECONDS: f64 = 0.05;
    let mut rounds = 1_000;
    let measure = |rounds: usize| {
        let start = Instant::now();
        let sum = peak::multiply_add_rounds(isa, rounds, std::hint::black_box(0.5));
        std::hint::black_box(sum);
        start.elapsed().as_secs_f64()
    };
    while measure(rounds) < SECONDS {
        rounds *= 2;
    }
    let mut best = 0.0_f64;
    for _ in 0..5 {
        let rates =
            rayon::broadcast(|_| (rounds * peak::flops_per_round(isa)) as f64 / measure(rounds));
        best = best.max(rates.iter().sum());
    }
    best / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_costs_what_its_blocks_and_its_head_cost() {
        let shapes = BenchShape::all();
        let config = &shapes[0].config;
        let all = sequence_flops(config, 100, 100);
        let blocks = 100.0 * block_flops(config, 50.0) + 100.0 * head_flops(config);
        assert!(
            (all / blocks - 1.0).abs() < 1e-9,
            "where every position is wanted nothing is left out"
        );
        let last = sequence_flops(config, 100, 1);
        let [deep, shallow] = [config.layers, config.layers - 1]
            .map(|layers| 100.0 * block_flops(&ModelConfig { layers, ..config.clone() }, 50.0));
        assert!(shallow < last && last < deep, "the last block is cut, the others are not");
        let training = training_flops(config, 64, 100, 1);
        assert_eq!(training, 3.0 * last + (2 * 64 * config.vocab_size) as f64);
    }
}
