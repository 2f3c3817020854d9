//! Low-rank adapters: what is trained beside a frozen model.
//!
//! An adapted weight is `W + scale * B * A` with `A` of rank x inputs and `B` of outputs x rank. The sum is formed where a
//! layer's weights are packed, so that the forward pass, the backward pass and the published student compute with the
//! same bits, and no kernel knows of adapters. The gradient of `W` is never formed: with a layer's inputs `X` and
//! the gradient `dY` of its outputs, `dB = scale * dY^T (X A^T)` and `dA = (scale * dY B)^T X`.
//!
//! Needs: no dropout (the sum would not be one matrix). Leaves out: embeddings, heads, norms and biases, which stay frozen.

use std::ops::Range;

use lens_opd::random::{Purpose, StreamKey};
use rayon::prelude::*;

use super::TrainError;
use super::layout::Entry;
use super::weights::Values;
use crate::config::ModelConfig;
use crate::kernels::train_gemm::LowRank;
use crate::kernels::train_matrix::MatRef;

/// Rows of a weight that one task merges.
const MERGE_ROWS: usize = 256;

/// A linear layer of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Projection {
    /// Queries.
    Q,
    /// Keys.
    K,
    /// Values.
    V,
    /// Attention's output.
    O,
    /// The feed-forward layer's gate.
    Gate,
    /// The feed-forward layer's input.
    Up,
    /// The feed-forward layer's output.
    Down,
}

impl Projection {
    /// All of them, in the order of a block.
    pub const ALL: [Self; 7] =
        [Self::Q, Self::K, Self::V, Self::O, Self::Gate, Self::Up, Self::Down];

    /// The last part of the layer's name, as `target_modules` of PEFT has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Q => "q_proj",
            Self::K => "k_proj",
            Self::V => "v_proj",
            Self::O => "o_proj",
            Self::Gate => "gate_proj",
            Self::Up => "up_proj",
            Self::Down => "down_proj",
        }
    }

    /// The layer's name inside its block.
    fn module(self) -> String {
        let part = match self {
            Self::Q | Self::K | Self::V | Self::O => "self_attn",
            Self::Gate | Self::Up | Self::Down => "mlp",
        };
        format!("{part}.{}", self.name())
    }

    /// Outputs and inputs.
    fn sizes(self, config: &ModelConfig) -> (usize, usize) {
        let (hidden, ff) = (config.hidden_size, config.intermediate_size);
        match self {
            Self::Q => (config.q_width(), hidden),
            Self::K | Self::V => (config.kv_width(), hidden),
            Self::O => (hidden, config.q_width()),
            Self::Gate | Self::Up => (ff, hidden),
            Self::Down => (hidden, ff),
        }
    }

    fn index(self) -> usize {
        self as usize
    }
}

impl std::str::FromStr for Projection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|projection| projection.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("`{text}` is not a linear layer of these models; they are {names}")
        })
    }
}

/// A set of linear layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Targets([bool; 7]);

impl Targets {
    /// Every linear layer of a block.
    pub const ALL: Self = Self([true; 7]);

    /// The named layers, in the order of a block.
    pub fn iter(self) -> impl Iterator<Item = Projection> {
        Projection::ALL.into_iter().filter(move |projection| self.0[projection.index()])
    }
}

impl FromIterator<Projection> for Targets {
    fn from_iter<I: IntoIterator<Item = Projection>>(projections: I) -> Self {
        let mut chosen = [false; 7];
        for projection in projections {
            chosen[projection.index()] = true;
        }
        Self(chosen)
    }
}

/// Adapters of a frozen model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoraOptions {
    /// Rank of every adapter, at least 1.
    pub rank: usize,
    /// `B * A` is multiplied by `alpha / rank`.
    pub alpha: f64,
    /// The layers that have one.
    pub targets: Targets,
    /// Names the initial values of `A`; `B` starts at zero.
    pub seed: u64,
    /// Whether the frozen matrices are kept in bf16 (norms and biases stay f32): half the memory, and nothing is lost
    /// where the model was stored so.
    pub bf16_base: bool,
}

impl LoraOptions {
    /// What `B * A` is multiplied by.
    pub fn scale(&self) -> f64 {
        self.alpha / self.rank as f64
    }

    /// Trained values of a model of this shape.
    pub fn parameter_count(&self, config: &ModelConfig) -> usize {
        let sizes = self.targets.iter().map(|projection| projection.sizes(config));
        config.layers * sizes.map(|(outputs, inputs)| self.rank * (outputs + inputs)).sum::<usize>()
    }

    fn check(&self) -> Result<(), TrainError> {
        let fail = |reason: String| Err(TrainError::Config(reason));
        if self.rank == 0 {
            return fail("adapters of rank 0 learn nothing; the rank is at least 1".to_owned());
        }
        if !(self.alpha.is_finite() && self.alpha > 0.0) {
            return fail(format!("adapters with alpha {}; it is a number above 0", self.alpha));
        }
        if self.targets.iter().next().is_none() {
            return fail("adapters without a layer to adapt".to_owned());
        }
        Ok(())
    }
}

/// Where one adapter lies in the flat vector of trained values.
#[derive(Debug, Clone)]
struct Place {
    a: Range<usize>,
    b: Range<usize>,
    outputs: usize,
    inputs: usize,
}

/// One adapter's factors.
#[derive(Clone, Copy)]
pub(super) struct Adapter<'a> {
    /// Rank x inputs.
    pub(super) a: &'a [f32],
    /// Outputs x rank, already multiplied by the scale.
    pub(super) scaled_b: &'a [f32],
    pub(super) outputs: usize,
    pub(super) inputs: usize,
    pub(super) rank: usize,
}

impl<'a> Adapter<'a> {
    /// The product as an addition to a matrix of outputs x inputs from output `first` on.
    pub(super) fn low_rank(&self, first: usize) -> LowRank<'a> {
        LowRank {
            left: MatRef::new(self.scaled_b, self.outputs, self.rank),
            right: MatRef::new(self.a, self.rank, self.inputs),
            row: first,
            col: 0,
        }
    }
}

/// The adapters of a model.
#[derive(Debug)]
pub(super) struct Adapters {
    pub(super) options: LoraOptions,
    layers: Vec<[Option<Place>; 7]>,
    /// Every factor under PEFT's name, in the order of the flat vector.
    pub(super) entries: Vec<Entry>,
    /// The trained values.
    pub(super) values: Vec<f32>,
    /// `B` times the scale, at the places of `B`; renewed by [`Self::rescale`].
    scaled: Vec<f32>,
}

impl Adapters {
    /// Fresh adapters: `A` uniform in `±1 / sqrt(inputs)` as PEFT draws it, `B` zero, so that the model is unchanged.
    pub(super) fn new(config: &ModelConfig, options: LoraOptions) -> Result<Self, TrainError> {
        options.check()?;
        let rank = options.rank;
        let mut entries = Vec::new();
        let mut layers = Vec::with_capacity(config.layers);
        let mut total = 0;
        for layer in 0..config.layers {
            let mut places: [Option<Place>; 7] = Default::default();
            for projection in options.targets.iter() {
                let (outputs, inputs) = projection.sizes(config);
                let mut put = |factor: &str, shape: [usize; 2]| {
                    let range = total..total + shape[0] * shape[1];
                    total = range.end;
                    let module = projection.module();
                    let name =
                        format!("base_model.model.model.layers.{layer}.{module}.{factor}.weight");
                    entries.push(Entry { name, shape: shape.to_vec(), range: range.clone() });
                    range
                };
                let a = put("lora_A", [rank, inputs]);
                let b = put("lora_B", [outputs, rank]);
                places[projection.index()] = Some(Place { a, b, outputs, inputs });
            }
            layers.push(places);
        }
        let mut values = vec![0.0; total];
        for (layer, places) in layers.iter().enumerate() {
            for (index, place) in places.iter().enumerate() {
                let Some(place) = place else { continue };
                let key = StreamKey::new(
                    options.seed,
                    layer as u64,
                    index as u64,
                    Purpose::Weights,
                    rank as u32,
                );
                let mut stream = key.open();
                let bound = 1.0 / (place.inputs as f64).sqrt();
                values[place.a.clone()]
                    .fill_with(|| (bound * (2.0 * stream.uniform() - 1.0)) as f32);
            }
        }
        Ok(Self { options, layers, entries, scaled: vec![0.0; total], values })
    }

    /// Brings the scaled factors up to date after the values changed.
    pub(super) fn rescale(&mut self) {
        let scale = self.options.scale() as f32;
        for place in self.layers.iter().flatten().flatten() {
            for (scaled, &value) in
                self.scaled[place.b.clone()].iter_mut().zip(&self.values[place.b.clone()])
            {
                *scaled = scale * value;
            }
        }
    }

    /// One layer's adapter, if it has one.
    pub(super) fn get(&self, layer: usize, projection: Projection) -> Option<Adapter<'_>> {
        let place = self.layers[layer][projection.index()].as_ref()?;
        Some(Adapter {
            a: &self.values[place.a.clone()],
            scaled_b: &self.scaled[place.b.clone()],
            outputs: place.outputs,
            inputs: place.inputs,
            rank: self.options.rank,
        })
    }

    /// Cuts one layer's gradients, `A` and `B` of each adapter, out of the flat vector.
    pub(super) fn cut<'a>(
        &self,
        layer: usize,
        flat: &'a mut [f32],
    ) -> [Option<(&'a mut [f32], &'a mut [f32])>; 7] {
        let places = &self.layers[layer];
        let start = places.iter().flatten().next().map_or(0, |place| place.a.start);
        let mut rest = &mut flat[start..];
        // The factors of a layer lie side by side in the order of its projections.
        let mut take = |length: usize| {
            let (part, tail) = std::mem::take(&mut rest).split_at_mut(length);
            rest = tail;
            part
        };
        std::array::from_fn(|index| {
            places[index].as_ref().map(|place| (take(place.a.len()), take(place.b.len())))
        })
    }

    /// The adapter of a weight by the weight's name.
    fn of_weight(&self, name: &str) -> Option<Adapter<'_>> {
        let rest = name.strip_prefix("model.layers.")?.strip_suffix(".weight")?;
        let (layer, module) = rest.split_once('.')?;
        let layer: usize = layer.parse().ok().filter(|&layer| layer < self.layers.len())?;
        let projection =
            Projection::ALL.into_iter().find(|projection| projection.module() == module)?;
        self.get(layer, projection)
    }

    /// Fills `out` with the values from `first` on of a weight with its adapter added; `base` is the frozen weight.
    pub(super) fn read_merged(&self, name: &str, base: Values<'_>, first: usize, out: &mut [f32]) {
        let Some(adapter) = self.of_weight(name) else { return base.read(first, out) };
        let width = adapter.inputs;
        let merge = |row: usize, rows: &mut [f32]| {
            base.read(row * width, rows);
            adapter.low_rank(0).add_to_rows(rows, row);
        };
        let (head, whole) =
            (first % width, first / width + usize::from(!first.is_multiple_of(width)));
        let cut = if head == 0 { 0 } else { (width - head).min(out.len()) };
        let (partial, rest) = out.split_at_mut(cut);
        let mut row = vec![0.0; width];
        if cut > 0 {
            merge(first / width, &mut row);
            partial.copy_from_slice(&row[head..head + cut]);
        }
        let rows = rest.len() / width;
        let (rest, tail) = rest.split_at_mut(rows * width);
        rest.par_chunks_mut(MERGE_ROWS * width).enumerate().for_each(|(band, out)| {
            merge(whole + band * MERGE_ROWS, out);
        });
        if !tail.is_empty() {
            merge(whole + rows, &mut row);
            tail.copy_from_slice(&row[..tail.len()]);
        }
    }
}
