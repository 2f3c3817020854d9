//! One micro-batch forward and backward through the whole model.

use super::adapter_gradients::AdapterGrads;
use super::backward::{BackwardBuffers, LayerGrads, NormBackward, WholeGrads, layer_backward};
use super::batch::MicroBatch;
use super::buffer::Buffer;
use super::forward::{LayerActivations, Model, PackBuffers, Queries, layer_forward, norm_rows};
use super::head::{self, HeadBuffers, HeadInput};
use super::row::{Heads, TrainRow};
use crate::kernels::train_math as math;

/// How a micro-batch is run.
#[derive(Debug, Clone, Copy)]
pub(super) struct PassOptions {
    /// Keep only each layer's input and compute the rest again in the backward pass.
    pub(super) recompute: bool,
    /// Tokens that take part in the softmax.
    pub(super) real_vocab: usize,
    /// Values of positions x vocabulary that may exist at a time.
    pub(super) logit_values: usize,
}

/// What the forward pass leaves behind.
#[derive(Debug, Clone, Copy)]
pub(super) enum Keep {
    /// Nothing but the last hidden states.
    Nothing,
    /// What [`Pass::backward`] with the same options needs.
    ForBackward(PassOptions),
}

/// The activations of a micro-batch and all buffers, reused from one to the next.
#[derive(Debug, Default)]
pub(super) struct Pass {
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

impl Pass {
    /// Embeds the tokens and runs every layer. Returns the hidden states of the loss positions after the final norm.
    pub(super) fn forward(&mut self, model: Model<'_>, batch: &MicroBatch, keep: Keep) -> &[f32] {
        let (hidden, layers) = (model.config.hidden_size, model.config.layers);
        // Without a backward pass two inputs take turns; with recomputation all inputs stay, but one set of activations does.
        let (inputs, activations) = match keep {
            Keep::Nothing => (2, 1),
            Keep::ForBackward(options) => (layers, if options.recompute { 1 } else { layers }),
        };
        self.inputs.resize_with(inputs.max(self.inputs.len()), Buffer::default);
        self.layers.resize_with(activations.max(self.layers.len()), LayerActivations::default);
        let (tokens, count) = (batch.tokens.len() * hidden, batch.losses.len() * hidden);
        let embedding = model.base.matrix(&model.layout.embed);
        let embedded = self.inputs[0].fit(tokens).chunks_exact_mut(hidden);
        for (out, &token) in embedded.zip(&batch.tokens) {
            embedding.read(token as usize * hidden, out);
        }
        let full_spans = batch.full_spans();
        for layer in 0..layers {
            let acts = &mut self.layers[layer % activations];
            let x = std::mem::take(&mut self.inputs[layer % inputs]);
            let last = layer + 1 == layers;
            let (queries, next) = if last {
                (Queries::losses(batch), self.output.fit(count))
            } else {
                let next = self.inputs[(layer + 1) % inputs].fit(tokens);
                (Queries::all(batch, &full_spans), next)
            };
            layer_forward(model, layer, queries, x.get(tokens), acts, &mut self.packs, Some(next));
            self.inputs[layer % inputs] = x;
        }
        let final_norm = model.base.small(&model.layout.final_norm);
        let output = self.output.get(count).chunks_exact(hidden);
        norm_rows(self.hidden.fit(count), output, final_norm, model.config.rms_norm_eps);
        self.hidden.get(count)
    }

    /// Computes the losses of a micro-batch that [`Self::forward`] just ran, adds to the flat `gradient` and returns
    /// the token losses.
    pub(super) fn backward(
        &mut self,
        model: Model<'_>,
        batch: &MicroBatch,
        rows: &[TrainRow],
        heads: &Heads<'_>,
        options: PassOptions,
        gradient: &mut [f32],
    ) -> Vec<f64> {
        let (hidden, layers) = (model.config.hidden_size, model.config.layers);
        let (tokens, count) = (batch.tokens.len() * hidden, batch.losses.len() * hidden);
        let real = options.real_vocab * hidden;
        let head_range = model.layout.head.clone();
        let input = HeadInput {
            weight: model.base.matrix(&head_range).slice(0..real),
            width: hidden,
            budget: options.logit_values,
            rows,
            heads,
            positions: &batch.losses,
            hidden: self.hidden.get(count),
        };
        let d_hidden = self.d_hidden.fit(count);
        let frozen = model.adapters.is_some();
        let d_head = (!frozen).then(|| &mut gradient[head_range][..real]);
        let losses = head::losses(&input, d_hidden, d_head, &mut self.head);

        let d_next = self.d_next.fit(count);
        d_next.fill(0.0);
        let final_norm = model.layout.final_norm.clone();
        let norm =
            NormBackward { weight: model.base.small(&final_norm), eps: model.config.rms_norm_eps };
        let mut unused = vec![0.0; if frozen { hidden } else { 0 }];
        norm.rows(
            d_next,
            if frozen { &mut unused } else { &mut gradient[final_norm] },
            self.hidden.fit(count),
            d_hidden,
            self.output.get(count).chunks_exact(hidden),
        );

        let full_spans = batch.full_spans();
        for layer in (0..layers).rev() {
            let last = layer + 1 == layers;
            let queries =
                if last { Queries::losses(batch) } else { Queries::all(batch, &full_spans) };
            let x = self.inputs[layer].get(tokens);
            let acts = &mut self.layers[if options.recompute { 0 } else { layer }];
            // The last layer's activations are still there from the forward pass.
            if options.recompute && !last {
                layer_forward(model, layer, queries, x, acts, &mut self.packs, None);
            }
            let grads = match model.adapters {
                None => {
                    let layout = &model.layout.layers[layer];
                    LayerGrads::Whole(WholeGrads::cut(layout, model.config, gradient))
                }
                Some(adapters) => {
                    LayerGrads::Adapters(Box::new(AdapterGrads::cut(adapters, layer, gradient)))
                }
            };
            let d_next = self.d_next.get(queries.count() * hidden);
            let dx = self.d_input.fit(tokens);
            let (buffers, packs) = (&mut self.backward, &mut self.packs);
            layer_backward(model, layer, queries, x, acts, d_next, dx, grads, buffers, packs);
            std::mem::swap(&mut self.d_next, &mut self.d_input);
        }
        if frozen {
            return losses;
        }
        let d_embedding = &mut gradient[model.layout.embed.clone()];
        for (d, &token) in self.d_next.get(tokens).chunks_exact(hidden).zip(&batch.tokens) {
            math::add(&mut d_embedding[token as usize * hidden..(token as usize + 1) * hidden], d);
        }
        losses
    }
}
