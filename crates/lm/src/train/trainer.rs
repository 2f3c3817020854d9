//! The trainer: weights, gradient and optimizer of one model.

use rayon::prelude::*;

use super::TrainError;
use super::attention::RopeTable;
use super::batch::{MicroBatch, micro_batches, pack};
use super::forward::Model;
use super::layout::Layout;
use super::optimizer::{AdamWConfig, Moments, norm};
use super::pass::{Keep, Pass, PassOptions};
use super::report::{LossReport, RowReport, StepReport};
use super::row::{Heads, PromptedRow, RowLimits, TrainRow, check_row, check_tokens};
use crate::config::ModelConfig;
use crate::kernels::dispatch::Isa;
use crate::tensor::{Parameters, Tensor};

/// How a trainer works, apart from the model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrainerOptions {
    /// Keep only each layer's input and compute the rest again in the backward pass.
    pub recompute: bool,
    /// Tokens that take part in the softmax; logits of ids from here on are cut. `None`: the whole vocabulary.
    pub real_vocab: Option<usize>,
    /// Most tokens that go through the model at a time (one row at least).
    pub micro_batch_tokens: usize,
    /// Bytes of kept activations; fewer tokens go through the model at a time when they would need more.
    pub activation_bytes: usize,
    /// Bytes of positions x vocabulary values the output head may hold at a time (16 positions at least).
    pub logit_bytes: usize,
}

/// Bytes of activations kept of every token of a micro-batch until the backward pass.
pub fn activation_bytes_per_token(config: &ModelConfig, recompute: bool) -> usize {
    let c = config;
    let kept_once = 2 * c.q_width() + 2 * c.kv_width() + c.hidden_size + 2 * c.intermediate_size;
    let kept = if recompute {
        c.layers * c.hidden_size + kept_once
    } else {
        c.layers * (c.hidden_size + kept_once)
    };
    kept * size_of::<f32>()
}

impl Default for TrainerOptions {
    fn default() -> Self {
        Self {
            recompute: false,
            real_vocab: None,
            micro_batch_tokens: 4096,
            activation_bytes: 1 << 30,
            logit_bytes: 256 << 20,
        }
    }
}

/// A named tensor of the trainer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ParameterView<'a> {
    /// Hugging Face name.
    pub name: &'a str,
    /// Sizes, outermost first.
    pub shape: &'a [usize],
    /// The values.
    pub data: &'a [f32],
}

/// Trains one model. Weights, gradients and moments are FP32; gradients and moments are allocated when first needed.
#[derive(Debug)]
pub struct Trainer {
    config: ModelConfig,
    options: TrainerOptions,
    layout: Layout,
    weights: Vec<f32>,
    gradient: Vec<f32>,
    pub(super) moments: Moments,
    /// Whether a loss that is not finite went into the gradient.
    spoiled: bool,
    rope: RopeTable,
    pass: Pass,
}

impl Trainer {
    /// Takes over a model's parameters.
    pub fn new(
        config: ModelConfig,
        mut parameters: Parameters,
        options: TrainerOptions,
    ) -> Result<Self, TrainError> {
        check_config(&config, &options)?;
        Isa::chosen().map_err(TrainError::Kernels)?;
        let layout = Layout::new(&config);
        let mut weights = vec![0.0; layout.total];
        for entry in &layout.entries {
            let Some(tensor) = parameters.remove(&entry.name) else {
                let (name, shape) = (entry.name.clone(), entry.shape.clone());
                return Err(TrainError::MissingParameter { name, shape });
            };
            if tensor.shape != entry.shape || tensor.data.len() != entry.range.len() {
                return Err(TrainError::ParameterShape {
                    name: entry.name.clone(),
                    expected: entry.shape.clone(),
                    found: tensor.shape,
                });
            }
            if let Some(index) = tensor.data.iter().position(|value| !value.is_finite()) {
                return Err(TrainError::NonFiniteParameter { name: entry.name.clone(), index });
            }
            weights[entry.range.clone()].copy_from_slice(&tensor.data);
        }
        if let Some(name) = parameters.into_keys().next() {
            return Err(TrainError::UnknownParameter(name));
        }
        Ok(Self {
            config,
            options,
            layout,
            weights,
            gradient: Vec::new(),
            moments: Moments::default(),
            spoiled: false,
            rope: RopeTable::default(),
            pass: Pass::default(),
        })
    }

    /// The model's shape.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Optimizer steps taken so far.
    pub fn steps(&self) -> u64 {
        self.moments.step
    }

    /// A copy of the parameters under their Hugging Face names.
    pub fn parameters(&self) -> Parameters {
        self.views()
            .map(|view| {
                let tensor = Tensor { shape: view.shape.to_vec(), data: view.data.to_vec() };
                (view.name.to_owned(), tensor)
            })
            .collect()
    }

    /// The parameters, given back.
    pub fn into_parameters(mut self) -> Parameters {
        let mut parameters = Parameters::new();
        // From the end, so that memory is given back as the tensors are made.
        for entry in self.layout.entries.iter().rev() {
            let data = self.weights.split_off(entry.range.start);
            self.weights.shrink_to_fit();
            parameters.insert(entry.name.clone(), Tensor { shape: entry.shape.clone(), data });
        }
        parameters
    }

    /// The parameters without a copy, in the trainer's own order.
    pub fn views(&self) -> impl Iterator<Item = ParameterView<'_>> {
        self.named(&self.weights)
    }

    /// The accumulated gradient, in the trainer's own order; nothing before the first [`Self::accumulate`].
    pub fn gradients(&self) -> impl Iterator<Item = ParameterView<'_>> {
        self.named(&self.gradient)
    }

    /// A parameter's accumulated gradient by name.
    pub fn gradient(&self, name: &str) -> Option<&[f32]> {
        self.layout.find(name).and_then(|entry| self.gradient.get(entry.range.clone()))
    }

    /// The output head, rows of the vocabulary x hidden size (the embedding when tied).
    pub fn head(&self) -> &[f32] {
        &self.weights[self.layout.head.clone()]
    }

    fn named<'a>(&'a self, flat: &'a [f32]) -> impl Iterator<Item = ParameterView<'a>> {
        self.layout.entries.iter().filter_map(|entry| {
            let data = flat.get(entry.range.clone())?;
            Some(ParameterView { name: &entry.name, shape: &entry.shape, data })
        })
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    fn real_vocab(&self) -> usize {
        self.options.real_vocab.unwrap_or(self.config.vocab_size)
    }

    /// Tokens that go through the model at a time.
    fn micro_batch_tokens(&self) -> usize {
        let affordable = self.options.activation_bytes
            / activation_bytes_per_token(&self.config, self.options.recompute);
        self.options.micro_batch_tokens.min(affordable)
    }

    fn limits(&self) -> RowLimits {
        RowLimits {
            vocab_size: self.config.vocab_size,
            real_vocab: self.real_vocab(),
            max_position: self.config.max_position,
        }
    }

    /// Adds the gradient of the rows' loss. Rows are checked first; on an error nothing has changed. A loss that is not finite is
    /// reported as it is, and makes the next [`Self::step`] drop the gradient.
    pub fn accumulate(
        &mut self,
        rows: &[TrainRow],
        heads: &Heads<'_>,
    ) -> Result<LossReport, TrainError> {
        let limits = self.limits();
        for (row, data) in rows.iter().enumerate() {
            check_row(row, data, heads, &limits)?;
        }
        if self.gradient.is_empty() {
            self.gradient = vec![0.0; self.layout.total];
        }
        let mut reports: Vec<RowReport> = rows
            .iter()
            .map(|row| RowReport {
                kind: row.loss.kind(),
                weighted_loss: 0.0,
                token_loss: 0.0,
                tokens: 0,
            })
            .collect();
        let lengths: Vec<usize> = rows.iter().map(|row| row.tokens.len()).collect();
        let mut tokens = 0;
        for group in micro_batches(&lengths, self.micro_batch_tokens()) {
            let batch = pack(rows, group);
            tokens += batch.tokens.len();
            if batch.losses.is_empty() {
                continue;
            }
            self.grow_rope(&batch);
            let options = self.pass_options();
            let model = Model {
                config: &self.config,
                layout: &self.layout,
                weights: &self.weights,
                rope: &self.rope,
            };
            self.pass.forward(model, &batch, Keep::ForBackward(options));
            let losses =
                self.pass.backward(model, &batch, rows, heads, options, &mut self.gradient);
            for (position, loss) in batch.losses.iter().zip(losses) {
                let report = &mut reports[position.row];
                report.weighted_loss += f64::from(position.weight) * loss;
                report.token_loss += loss;
                report.tokens += 1;
            }
        }
        let report = LossReport::of(reports, tokens);
        self.spoiled |= !report.loss.is_finite();
        Ok(report)
    }

    /// Last hidden states (after the final norm) at the positions that predict each row's response tokens: one
    /// response length x hidden size array per row.
    pub fn hidden_states(&mut self, rows: &[PromptedRow<'_>]) -> Result<Vec<Vec<f32>>, TrainError> {
        let limits = self.limits();
        for (row, data) in rows.iter().enumerate() {
            check_tokens(row, data.tokens, data.response_start, &limits)?;
        }
        let lengths: Vec<usize> = rows.iter().map(|row| row.tokens.len()).collect();
        let mut states = vec![Vec::new(); rows.len()];
        for group in micro_batches(&lengths, self.micro_batch_tokens()) {
            let mut batch = MicroBatch::default();
            for row in group {
                batch.push(row, rows[row].tokens, rows[row].response_start, |_| 1.0);
            }
            if batch.losses.is_empty() {
                continue;
            }
            self.grow_rope(&batch);
            let model = Model {
                config: &self.config,
                layout: &self.layout,
                weights: &self.weights,
                rope: &self.rope,
            };
            let hidden = self.pass.forward(model, &batch, Keep::Nothing);
            let hidden = hidden.chunks_exact(self.config.hidden_size);
            for (position, hidden) in batch.losses.iter().zip(hidden) {
                states[position.row].extend_from_slice(hidden);
            }
        }
        Ok(states)
    }

    fn pass_options(&self) -> PassOptions {
        PassOptions {
            recompute: self.options.recompute,
            real_vocab: self.real_vocab(),
            logit_values: self.options.logit_bytes / size_of::<f32>(),
        }
    }

    fn grow_rope(&mut self, batch: &MicroBatch) {
        let longest = batch.spans.iter().map(|span| span.keys.len()).max().unwrap_or(0);
        self.rope.grow(&self.config, longest);
    }

    /// Applies the accumulated gradient and clears it. When the loss or the gradient is not finite, weights and optimizer
    /// stay as they are, the gradient is dropped and the report says so.
    pub fn step(&mut self, config: &AdamWConfig) -> Result<StepReport, TrainError> {
        config.check()?;
        let grad_norm = norm(&self.gradient);
        let healthy = grad_norm.is_finite() && !std::mem::take(&mut self.spoiled);
        let clipped = healthy && grad_norm > config.clip;
        if healthy {
            // The small term keeps the clipped norm below the bound, as PyTorch does.
            let factor = if clipped { config.clip / (grad_norm + 1e-6) } else { 1.0 };
            if self.gradient.is_empty() {
                self.gradient = vec![0.0; self.layout.total];
            }
            self.moments.update(&mut self.weights, &mut self.gradient, config, factor);
        } else {
            self.drop_gradient();
        }
        Ok(StepReport { grad_norm, clipped, skipped_non_finite: !healthy, step: self.moments.step })
    }

    /// Forgets the accumulated gradient.
    pub fn drop_gradient(&mut self) {
        self.spoiled = false;
        self.gradient.par_chunks_mut(1 << 16).for_each(|chunk| chunk.fill(0.0));
    }
}

fn check_config(config: &ModelConfig, options: &TrainerOptions) -> Result<(), TrainError> {
    let fail = |reason: String| Err(TrainError::Config(reason));
    let sizes = [
        ("hidden_size", config.hidden_size),
        ("intermediate_size", config.intermediate_size),
        ("layers", config.layers),
        ("heads", config.heads),
        ("kv_heads", config.kv_heads),
        ("head_dim", config.head_dim),
        ("vocab_size", config.vocab_size),
        ("max_position", config.max_position),
    ];
    if let Some((name, _)) = sizes.iter().find(|&&(_, size)| size == 0) {
        return fail(format!("`{name}` is 0"));
    }
    if !config.heads.is_multiple_of(config.kv_heads) {
        return fail(format!(
            "{} heads cannot share {} key heads evenly",
            config.heads, config.kv_heads
        ));
    }
    if !config.head_dim.is_multiple_of(2) {
        return fail(format!("head_dim {} is odd, rotary positions pair values", config.head_dim));
    }
    match options.real_vocab {
        Some(real) if real == 0 || real > config.vocab_size => fail(format!(
            "real_vocab is {real}, expected 1 to the vocabulary's {}",
            config.vocab_size
        )),
        _ => Ok(()),
    }
}
