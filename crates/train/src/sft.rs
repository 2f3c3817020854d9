//! Supervised fine-tuning: the tokens themselves are the target.

use lens_engine::native::NativeLearner;
use lens_engine::{Codec, EngineError, LearnReport, LearnRow, Target};
use lens_opd::random::{Purpose, StreamKey};
use rayon::prelude::*;

use crate::error::TrainError;

/// A prompt and the response to learn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Example {
    /// The prompt's tokens.
    pub prompt: Vec<u32>,
    /// The response's tokens, its end-of-turn token included.
    pub response: Vec<u32>,
}

/// How examples are learned.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SftOptions {
    /// Optimizer steps.
    pub steps: u64,
    /// Examples in one step.
    pub batch_size: usize,
    /// The highest learning rate.
    pub lr: f64,
    /// Steps over which the rate rises from zero; afterwards it falls to a tenth along a cosine.
    pub warmup: u64,
    /// How much a prompt token counts in the first half of the steps, next to a response token's 1. A model that starts
    /// from nothing learns the language from the prompts; a model that knows it needs none of this.
    pub prompt_weight: f32,
    /// The seed of the examples' order.
    pub seed: u64,
}

impl SftOptions {
    /// The learning rate of step `step` (from 1).
    pub fn rate(&self, step: u64) -> f64 {
        if step <= self.warmup {
            return self.lr * step as f64 / self.warmup.max(1) as f64;
        }
        let rest = (self.steps - self.warmup.min(self.steps)).max(1) as f64;
        let gone = ((step - self.warmup) as f64 / rest).min(1.0);
        self.lr * (0.1 + 0.45 * (1.0 + (std::f64::consts::PI * gone).cos()))
    }

    /// What a prompt token counts in step `step` (from 1).
    fn prompt_weight_at(&self, step: u64) -> f32 {
        if step * 2 <= self.steps { self.prompt_weight } else { 0.0 }
    }
}

/// One step's rows. The coefficients of response tokens add up to 1; those of prompt tokens come on top.
fn rows(batch: &[Example], prompt_weight: f32) -> Vec<LearnRow> {
    let tokens: usize = batch.iter().map(|example| example.response.len()).sum();
    let share = 1.0 / tokens.max(1) as f32;
    batch
        .iter()
        .map(|example| {
            // A token is predicted from those before it, so the first one never counts.
            let cut = if prompt_weight > 0.0 { 1 } else { example.prompt.len() };
            let (prompt, spoken) = example.prompt.split_at(cut.min(example.prompt.len()));
            let mut coefficients = vec![share * prompt_weight; spoken.len()];
            coefficients.resize(spoken.len() + example.response.len(), share);
            LearnRow {
                prompt: prompt.to_vec(),
                response: [spoken, &example.response].concat(),
                coefficients,
                target: Target::tokens(),
            }
        })
        .collect()
}

/// Learns `count` examples in passes of keyed order. `example` gives one of them by its number; it is asked when its step
/// comes, so that no more is turned into tokens than is learned. The loss of a step is the mean over its response tokens,
/// plus the prompts' share where they count.
pub fn fine_tune(
    learner: &mut NativeLearner,
    count: usize,
    example: impl Fn(&dyn Codec, usize) -> Result<Example, EngineError> + Sync,
    options: &SftOptions,
    on_step: impl FnMut(u64, &LearnReport),
) -> Result<(), TrainError> {
    fine_tune_until(learner, count, example, options, options.steps, || false, on_step)
}

/// The same from the step the learner is at up to step `until`, or until `halt` says so. Calls one after another learn
/// what one call would have.
pub fn fine_tune_until(
    learner: &mut NativeLearner,
    count: usize,
    example: impl Fn(&dyn Codec, usize) -> Result<Example, EngineError> + Sync,
    options: &SftOptions,
    until: u64,
    halt: impl Fn() -> bool,
    mut on_step: impl FnMut(u64, &LearnReport),
) -> Result<(), TrainError> {
    if count == 0 {
        return Err(TrainError::NoExamples);
    }
    let mut order: Vec<usize> = Vec::new();
    let mut pass = 0;
    let done = learner.version();
    for step in 1..=until {
        let mut batch = Vec::with_capacity(options.batch_size);
        while batch.len() < options.batch_size {
            if order.is_empty() {
                order = (0..count).collect();
                let key = StreamKey::new(options.seed, pass, 0, Purpose::RowOrder, 0);
                key.open().shuffle(&mut order);
                pass += 1;
            }
            batch.extend(order.pop());
        }
        if step <= done {
            continue;
        }
        if halt() {
            break;
        }
        let codec: &dyn Codec = &**learner.codec();
        let batch: Result<Vec<Example>, EngineError> =
            batch.into_par_iter().map(|number| example(codec, number)).collect();
        learner.set_learning_rate(options.rate(step));
        let report = learner.learn(&rows(&batch?, options.prompt_weight_at(step)))?;
        on_step(step, &report);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_rises_then_falls_to_a_tenth() {
        let options = SftOptions {
            steps: 100,
            batch_size: 1,
            lr: 1.0,
            warmup: 10,
            prompt_weight: 0.0,
            seed: 0,
        };
        assert_eq!(options.rate(1), 0.1);
        assert_eq!(options.rate(10), 1.0);
        assert!((options.rate(55) - 0.55).abs() < 1e-12);
        assert!((options.rate(100) - 0.1).abs() < 1e-12);
        assert!((1..100).all(|step| step < 10 || options.rate(step + 1) <= options.rate(step)));
    }

    #[test]
    fn prompt_tokens_count_only_when_asked_for() {
        let example = Example { prompt: vec![1, 2, 3], response: vec![4, 5] };
        let plain = &rows(std::slice::from_ref(&example), 0.0)[0];
        assert_eq!((&plain.prompt[..], &plain.response[..]), (&[1, 2, 3][..], &[4, 5][..]));
        assert_eq!(plain.coefficients, [0.5, 0.5]);
        let spoken = &rows(std::slice::from_ref(&example), 0.25)[0];
        assert_eq!((&spoken.prompt[..], &spoken.response[..]), (&[1][..], &[2, 3, 4, 5][..]));
        assert_eq!(spoken.coefficients, [0.125, 0.125, 0.5, 0.5]);
    }
}
