//! The gradients of a block's adapters, from what went into its layers and the gradient of what came out.

use rayon::prelude::*;

use super::adapters::{Adapter, Adapters, Projection};
use super::buffer::Buffer;
use super::forward::{block_height, product};
use crate::kernels::train_gemm::{
    Panels, TokenPanels, gradient_bands, multiply, panels_len, run_bands,
};
use crate::kernels::train_matrix::{MatMut, MatRef};

/// Adapters of a block at most.
const ADAPTERS: usize = Projection::ALL.len();

/// Buffers of the adapters' gradients, reused from layer to layer.
#[derive(Debug, Default)]
pub(super) struct AdapterBuffers {
    /// A factor packed for products with tokens on the left.
    factor: Buffer,
    /// Inputs of layers, packed.
    inputs: [Buffer; 3],
    members: [MemberBuffers; ADAPTERS],
}

#[derive(Debug, Default)]
struct MemberBuffers {
    low: Buffer,
    low_panels: Buffer,
    d_low: Buffer,
}

/// The values that several layers took in, and the gradient of what each gave out (tokens x outputs).
pub(super) struct AdapterInput<'a> {
    values: &'a [f32],
    width: usize,
    outputs: Vec<(Projection, MatRef<'a>)>,
}

impl<'a> AdapterInput<'a> {
    /// `values` are tokens x `width`.
    pub(super) fn new(
        values: &'a [f32],
        width: usize,
        outputs: Vec<(Projection, MatRef<'a>)>,
    ) -> Self {
        Self { values, width, outputs }
    }
}

/// One block's adapters and where their gradients go.
pub(super) struct AdapterGrads<'a> {
    adapters: [Option<Adapter<'a>>; ADAPTERS],
    scale: f32,
    gradients: [Option<(&'a mut [f32], &'a mut [f32])>; ADAPTERS],
}

impl<'a> AdapterGrads<'a> {
    /// Cuts one block's gradients out of the flat vector.
    pub(super) fn cut(adapters: &'a Adapters, layer: usize, flat: &'a mut [f32]) -> Self {
        Self {
            adapters: Projection::ALL.map(|projection| adapters.get(layer, projection)),
            scale: adapters.options.scale() as f32,
            gradients: adapters.cut(layer, flat),
        }
    }

    /// Adds the gradients of the adapters of the given layers: `dB = scale * dY^T (X A^T)`, `dA = (dY scale B)^T X`.
    pub(super) fn add<const N: usize>(
        &mut self,
        inputs: &[AdapterInput<'_>; N],
        buffers: &mut AdapterBuffers,
    ) {
        let AdapterBuffers { factor, inputs: packed, members } = buffers;
        let mut members = members.iter_mut();
        let mut bands = Vec::new();
        for (input, packed) in inputs.iter().zip(packed) {
            let tokens = input.values.len() / input.width;
            let adapted: Vec<_> = input
                .outputs
                .iter()
                .filter_map(|&(projection, d_output)| {
                    let index = projection as usize;
                    Some((self.adapters[index]?, self.gradients[index].take()?, d_output))
                })
                .collect();
            if adapted.is_empty() {
                continue;
            }
            let values = MatRef::new(input.values, tokens, input.width);
            let buffer = packed.fit(panels_len(tokens, input.width));
            let panels = TokenPanels::par_pack(buffer, values);
            for ((adapter, (d_a, d_b), d_output), member) in adapted.into_iter().zip(&mut members) {
                let Adapter { a, scaled_b, outputs, inputs, rank } = adapter;
                let MemberBuffers { low, low_panels, d_low } = member;
                let low = low.fit(tokens * rank);
                let a = MatRef::new(a, rank, inputs).t();
                let factor_panels = Panels::par_pack(factor.fit(panels_len(inputs, rank)), a);
                through_a(low, input.values, factor_panels, self.scale);
                let d_low = d_low.fit(tokens * rank);
                let b = MatRef::new(scaled_b, outputs, rank);
                let factor_panels = Panels::par_pack(factor.fit(panels_len(outputs, rank)), b);
                through_b(d_low, d_output, factor_panels);
                let low = MatRef::new(low, tokens, rank);
                let low = TokenPanels::par_pack(low_panels.fit(panels_len(tokens, rank)), low);
                gradient_bands(MatMut::new(d_b, outputs, rank), d_output, low, &mut bands);
                let d_low = MatRef::new(d_low, tokens, rank);
                gradient_bands(MatMut::new(d_a, rank, inputs), d_low, panels, &mut bands);
            }
        }
        run_bands(bands);
    }
}

/// `out = scale * x * a`, token blocks on all threads.
fn through_a(out: &mut [f32], x: &[f32], a: Panels<'_>, scale: f32) {
    let (width, rank) = a.shape();
    let height = block_height(x.len() / width);
    out.par_chunks_mut(height * rank).zip(x.par_chunks(height * width)).with_max_len(1).for_each(
        |(out, x)| {
            product(out, x, a);
            for value in out {
                *value *= scale;
            }
        },
    );
}

/// `out = dy * b`, token blocks on all threads.
fn through_b(out: &mut [f32], dy: MatRef<'_>, b: Panels<'_>) {
    let (tokens, rank) = (dy.shape().0, b.shape().1);
    let height = block_height(tokens);
    out.par_chunks_mut(height * rank).enumerate().with_max_len(1).for_each(|(block, out)| {
        let (first, rows) = (block * height, out.len() / rank);
        let dy = dy.rows(first..first + rows);
        multiply(&mut MatMut::new(out, rows, rank), dy, b, false);
    });
}
