//! The trainer: weights, gradient and optimiser of one model.

use rayon::prelude::*;

use super::TrainError;
use super::attention::RopeTable;
use super::backward::{BackwardBuffers, LayerGrads, NormBackward, layer_backward};
use super::batch::{MicroBatch, micro_batches, pack};
use super::buffer::Buffer;
use super::forward::{
    LayerActivations, Model, PackBuffers, Queries, layer_forward, norm_rows, row,
};
use super::head::{self, HeadBuffers, HeadInput};
use super::layout::Layout;
use super::optimizer::{AdamWConfig, Moments, norm};
use super::report::{LossReport, RowReport, StepReport};
use super::row::{Heads, PromptedRow, RowLimits, TrainRow, check_row, check_tokens};
use crate::config::ModelConfig;
use crate::kernels::train_math as math;
use crate::tensor::{Parameters, Tensor};

/// How a trainer works, apart from the model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrainerOptions {
    /// Keep only each layer's input and compute the rest again in the backward pass.
    pub recompute: bool,
    /// Tokens that take part in the softmax; logits of ids from here on are cut. `None`: the whole vocabulary.
    pub real_vocab: Option<usize>,
    /// Tokens that go through the model at a time (one row at least). Bounds the memory for activations.
    pub micro_batch_tokens: usize,
    /// Bytes of positions x vocabulary values the output head may hold at a time (16 positions at least).
    pub logit_bytes: usize,
}

impl Default for TrainerOptions {
    fn default() -> Self {
        Self {
            recompute: false,
            real_vocab: None,
            micro_batch_tokens: 4096,
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
    arena: Arena,
}

/// Buffers reused from step to step.
#[derive(Debug, Default)]
struct Arena {
    /// Input of each layer.
    inputs: Vec<Buffer>,
    /// Output of the last layer at the loss positions.
    output: Buffer,
    layers: Vec<LayerActivations>,
    hidden: Buffer,
    d_hidden: Buffer,
    d_next: Buffer,
    d_input: Buffer,
    packs: PackBuffers,
    backward: BackwardBuffers,
    head: HeadBuffers,
}

impl Trainer {
    /// Takes over a model's parameters.
    pub fn new(
        config: ModelConfig,
        mut parameters: Parameters,
        options: TrainerOptions,
    ) -> Result<Self, TrainError> {
        check_config(&config, &options)?;
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
            arena: Arena::default(),
        })
    }

    /// The model's shape.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Optimiser steps taken so far.
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
        for group in micro_batches(&lengths, self.options.micro_batch_tokens) {
            let batch = pack(rows, group);
            tokens += batch.tokens.len();
            if batch.losses.is_empty() {
                continue;
            }
            let losses = self.forward_backward(&batch, rows, heads);
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
        for group in micro_batches(&lengths, self.options.micro_batch_tokens) {
            let mut batch = MicroBatch::default();
            for row in group {
                batch.push(row, rows[row].tokens, rows[row].response_start, |_| 1.0);
            }
            if batch.losses.is_empty() {
                continue;
            }
            self.forward(&batch, false);
            let hidden = self
                .arena
                .hidden
                .get(batch.losses.len() * self.config.hidden_size)
                .chunks_exact(self.config.hidden_size);
            for (position, hidden) in batch.losses.iter().zip(hidden) {
                states[position.row].extend_from_slice(hidden);
            }
        }
        Ok(states)
    }

    /// Embeds, runs every layer and the final norm at the loss positions.
    fn forward(&mut self, batch: &MicroBatch, keep: bool) {
        let (hidden, layers) = (self.config.hidden_size, self.config.layers);
        let longest = batch.spans.iter().map(|span| span.keys.len()).max().unwrap_or(0);
        self.rope.grow(&self.config, longest);
        let model = Model {
            config: &self.config,
            layout: &self.layout,
            weights: &self.weights,
            rope: &self.rope,
        };
        let arena = &mut self.arena;
        let kept = if keep && !self.options.recompute { layers } else { 1 };
        arena.layers.resize_with(kept.max(arena.layers.len()), LayerActivations::default);
        arena
            .inputs
            .resize_with(if keep { layers } else { 2 }.max(arena.inputs.len()), Buffer::default);
        let tokens = batch.tokens.len() * hidden;
        let count = batch.losses.len() * hidden;
        let embedding = &self.weights[self.layout.embed.clone()];
        let first = arena.inputs[0].fit(tokens);
        for (out, &token) in first.chunks_exact_mut(hidden).zip(&batch.tokens) {
            out.copy_from_slice(row(embedding, token as usize, hidden));
        }
        let full_spans = batch.full_spans();
        for layer in 0..layers {
            let acts = &mut arena.layers[if kept == 1 { 0 } else { layer }];
            let at = if keep { layer } else { layer % 2 };
            let mut x = std::mem::take(&mut arena.inputs[at]);
            if layer + 1 < layers {
                let queries = Queries::all(batch, &full_spans);
                let next = if keep { layer + 1 } else { (layer + 1) % 2 };
                let next = arena.inputs[next].fit(tokens);
                layer_forward(
                    model,
                    layer,
                    queries,
                    x.fit(tokens),
                    acts,
                    &mut arena.packs,
                    Some(next),
                );
            } else {
                let next = arena.output.fit(count);
                let queries = Queries::losses(batch);
                layer_forward(
                    model,
                    layer,
                    queries,
                    x.fit(tokens),
                    acts,
                    &mut arena.packs,
                    Some(next),
                );
            }
            arena.inputs[at] = x;
        }
        let final_norm = &self.weights[self.layout.final_norm.clone()];
        let output = arena.output.get(count).chunks_exact(hidden);
        norm_rows(arena.hidden.fit(count), output, final_norm, self.config.rms_norm_eps);
    }

    /// Runs one micro-batch and adds its gradient; returns the token losses.
    fn forward_backward(
        &mut self,
        batch: &MicroBatch,
        rows: &[TrainRow],
        heads: &Heads<'_>,
    ) -> Vec<f64> {
        self.forward(batch, true);
        let (hidden, layers) = (self.config.hidden_size, self.config.layers);
        let (tokens, count) = (batch.tokens.len() * hidden, batch.losses.len() * hidden);
        let real = self.real_vocab() * hidden;
        let model = Model {
            config: &self.config,
            layout: &self.layout,
            weights: &self.weights,
            rope: &self.rope,
        };
        let arena = &mut self.arena;
        let head_range = self.layout.head.clone();
        let input = HeadInput {
            weight: &self.weights[head_range.clone()][..real],
            width: hidden,
            budget: self.options.logit_bytes / size_of::<f32>(),
            rows,
            heads,
            positions: &batch.losses,
            hidden: arena.hidden.get(count),
        };
        let d_hidden = arena.d_hidden.fit(count);
        let d_head = &mut self.gradient[head_range][..real];
        let losses = head::losses(&input, d_hidden, d_head, &mut arena.head);

        let d_next = arena.d_next.fit(count);
        d_next.fill(0.0);
        let final_norm = self.layout.final_norm.clone();
        let norm = NormBackward {
            weight: &self.weights[final_norm.clone()],
            eps: self.config.rms_norm_eps,
        };
        norm.rows(
            d_next,
            &mut self.gradient[final_norm],
            arena.hidden.fit(count),
            d_hidden,
            arena.output.get(count).chunks_exact(hidden),
        );

        let full_spans = batch.full_spans();
        for layer in (0..layers).rev() {
            let queries = if layer + 1 < layers {
                Queries::all(batch, &full_spans)
            } else {
                Queries::losses(batch)
            };
            let x = arena.inputs[layer].get(tokens);
            let acts = if self.options.recompute {
                let acts = &mut arena.layers[0];
                // The last layer's activations are still there from the forward pass.
                if layer + 1 < layers {
                    layer_forward(model, layer, queries, x, acts, &mut arena.packs, None);
                }
                acts
            } else {
                &mut arena.layers[layer]
            };
            let grads =
                LayerGrads::cut(&self.layout.layers[layer], &self.config, &mut self.gradient);
            let d_next = arena.d_next.get(queries.count() * hidden);
            let dx = arena.d_input.fit(tokens);
            layer_backward(
                model,
                layer,
                queries,
                x,
                acts,
                d_next,
                dx,
                grads,
                &mut arena.backward,
                &mut arena.packs,
            );
            std::mem::swap(&mut arena.d_next, &mut arena.d_input);
        }
        let d_embedding = &mut self.gradient[self.layout.embed.clone()];
        for (d, &token) in arena.d_next.get(tokens).chunks_exact(hidden).zip(&batch.tokens) {
            math::add(&mut d_embedding[token as usize * hidden..(token as usize + 1) * hidden], d);
        }
        losses
    }

    /// Applies the accumulated gradient and clears it. When the loss or the gradient is not finite, weights and optimiser
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
