//! The trainer: weights, gradient and optimizer of one model.

use super::TrainError;
use super::adapters::{Adapters, LoraOptions};
use super::attention::RopeTable;
use super::batch::{MicroBatch, micro_batches, pack};
use super::buffer::Buffer;
use super::forward::Model;
use super::layout::{Entry, Layout};
use super::moments::MomentFormat;
use super::optimizer::{AdamWConfig, Optimizer, norm};
use super::options::{Recompute, TrainerOptions, activation_bytes_per_token, scratch_bytes};
use super::pass::{Keep, Pass, PassOptions};
use super::report::{LossReport, RowReport, StepReport};
use super::row::{Head, Heads, PromptedRow, RowLimits, TrainRow, check_row, check_tokens};
use super::weights::{Base, Values};
use crate::checkpoint::TensorSource;
use crate::config::ModelConfig;
use crate::error::LmError;
use crate::kernels::dispatch::Isa;
use crate::tensor::{Parameters, Tensor};

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

/// Trains one model, or adapters of a frozen one. Trained values, gradients and moments are FP32; gradients and moments are
/// allocated when first needed, for what is trained alone.
#[derive(Debug)]
pub struct Trainer {
    config: ModelConfig,
    options: TrainerOptions,
    layout: Layout,
    base: Base,
    adapters: Option<Adapters>,
    gradient: Buffer,
    pub(super) optimizer: Optimizer,
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
        let trainer = Self::build(config, options, |base, entry| {
            let Some(tensor) = parameters.remove(&entry.name) else {
                return Err(missing(entry));
            };
            if tensor.shape != entry.shape || tensor.data.len() != entry.range.len() {
                return Err(shaped(entry, tensor.shape));
            }
            base.fill(entry, &mut |first, out| {
                out.copy_from_slice(&tensor.data[first..first + out.len()]);
                Ok(())
            })
        })?;
        match parameters.into_keys().next() {
            Some(name) => Err(TrainError::UnknownParameter(name)),
            None => Ok(trainer),
        }
    }

    /// Reads a model's parameters one at a time, so that nothing but the trainer's own copy is ever in memory.
    pub fn load(
        config: ModelConfig,
        source: &dyn TensorSource,
        options: TrainerOptions,
    ) -> Result<Self, TrainError> {
        Self::build(config, options, |base, entry| match source.shape(&entry.name) {
            None => Err(missing(entry)),
            Some(shape) if shape != entry.shape => Err(shaped(entry, shape)),
            Some(_) => base
                .fill(entry, &mut |first, out| Ok(source.read_values(&entry.name, first, out)?)),
        })
    }

    fn build(
        config: ModelConfig,
        options: TrainerOptions,
        mut fill: impl FnMut(&mut Base, &Entry) -> Result<(), TrainError>,
    ) -> Result<Self, TrainError> {
        options.check(&config)?;
        Isa::chosen().map_err(TrainError::Kernels)?;
        let layout = Layout::new(&config);
        let adapters = options.lora.map(|lora| Adapters::new(&config, lora)).transpose()?;
        let mut base = Base::new(&layout, options.lora.is_some_and(|lora| lora.bf16_base));
        for entry in &layout.entries {
            fill(&mut base, entry)?;
        }
        Ok(Self {
            config,
            options,
            layout,
            base,
            adapters,
            gradient: Buffer::default(),
            optimizer: Optimizer::default(),
            spoiled: false,
            rope: RopeTable::default(),
            pass: Pass::default(),
        })
    }

    /// Changes how many tokens take part in the softmax.
    pub fn set_real_vocab(&mut self, real_vocab: usize) -> Result<(), TrainError> {
        let options = TrainerOptions { real_vocab: Some(real_vocab), ..self.options };
        options.check(&self.config)?;
        self.options = options;
        Ok(())
    }

    /// The model's shape.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Optimizer steps taken so far.
    pub fn steps(&self) -> u64 {
        self.optimizer.step
    }

    /// A copy of the model's parameters under their Hugging Face names, adapters added in.
    pub fn parameters(&self) -> Parameters {
        let merged = |entry: &Entry| {
            let mut tensor = Tensor::zeros(&entry.shape);
            self.read_entry(entry, 0, &mut tensor.data);
            (entry.name.clone(), tensor)
        };
        self.layout.entries.iter().map(merged).collect()
    }

    /// The model's parameters, given back.
    pub fn into_parameters(mut self) -> Parameters {
        let Base::F32(weights) = &mut self.base else { return self.parameters() };
        if self.adapters.is_some() {
            return self.parameters();
        }
        let mut parameters = Parameters::new();
        // From the end, so that memory is given back as the tensors are made.
        for entry in self.layout.entries.iter().rev() {
            let data = weights.split_off(entry.range.start);
            weights.shrink_to_fit();
            parameters.insert(entry.name.clone(), Tensor { shape: entry.shape.clone(), data });
        }
        parameters
    }

    /// What is trained, without a copy, in the trainer's own order: the parameters, or the adapters under PEFT's names.
    pub fn views(&self) -> impl Iterator<Item = ParameterView<'_>> {
        self.named(self.trained())
    }

    /// The accumulated gradient, in the trainer's own order; nothing before the first [`Self::accumulate`].
    pub fn gradients(&self) -> impl Iterator<Item = ParameterView<'_>> {
        self.named(self.accumulated())
    }

    /// A trained tensor's accumulated gradient by name.
    pub fn gradient(&self, name: &str) -> Option<&[f32]> {
        let entry = self.trained_entries().iter().find(|entry| entry.name == name)?;
        self.accumulated().get(entry.range.clone())
    }

    /// The output head, rows of the vocabulary x hidden size (the embedding when tied).
    pub fn head(&self) -> Values<'_> {
        self.base.matrix(&self.layout.head)
    }

    /// The adapters' settings, where adapters are trained.
    pub fn lora(&self) -> Option<&LoraOptions> {
        self.options.lora.as_ref()
    }

    /// A copy of the adapters under PEFT's names; nothing where the model itself is trained.
    pub fn adapter_tensors(&self) -> Parameters {
        if self.adapters.is_none() {
            return Parameters::new();
        }
        let copy = |view: ParameterView<'_>| {
            let tensor = Tensor { shape: view.shape.to_vec(), data: view.data.to_vec() };
            (view.name.to_owned(), tensor)
        };
        self.views().map(copy).collect()
    }

    /// Takes over the values of all adapters, under PEFT's names. On an error nothing has changed.
    pub fn set_adapters(&mut self, tensors: &Parameters) -> Result<(), TrainError> {
        let fail = |reason: String| Err(TrainError::Adapters(reason));
        let Some(adapters) = &mut self.adapters else {
            return fail("this trainer trains the model itself".to_owned());
        };
        for entry in &adapters.entries {
            let name = &entry.name;
            match tensors.get(name) {
                None => return fail(format!("`{name}` is missing")),
                Some(tensor) if tensor.shape != entry.shape => {
                    return fail(format!(
                        "`{name}` has shape {:?}, expected {:?}",
                        tensor.shape, entry.shape
                    ));
                }
                Some(tensor) if !tensor.data.iter().all(|value| value.is_finite()) => {
                    return fail(format!("`{name}` holds a value that is not finite"));
                }
                Some(_) => {}
            }
        }
        if tensors.len() != adapters.entries.len() {
            let extra = tensors
                .keys()
                .find(|name| adapters.entries.iter().all(|entry| entry.name != **name));
            return fail(format!(
                "`{}` belongs to no layer that is adapted here",
                extra.map_or("", String::as_str)
            ));
        }
        for entry in &adapters.entries {
            adapters.values[entry.range.clone()].copy_from_slice(&tensors[&entry.name].data);
        }
        adapters.rescale();
        Ok(())
    }

    fn named<'a>(&'a self, flat: &'a [f32]) -> impl Iterator<Item = ParameterView<'a>> {
        self.trained_entries().iter().filter_map(|entry| {
            let data = flat.get(entry.range.clone())?;
            Some(ParameterView { name: &entry.name, shape: &entry.shape, data })
        })
    }

    /// The tensors that are trained, in the order of the gradient and the moments.
    pub(super) fn trained_entries(&self) -> &[Entry] {
        self.adapters.as_ref().map_or(&self.layout.entries, |adapters| &adapters.entries)
    }

    /// The gradient; nothing before the first [`Self::accumulate`].
    fn accumulated(&self) -> &[f32] {
        if self.gradient.is_empty() { &[] } else { self.gradient.get(self.trained_count()) }
    }

    fn trained(&self) -> &[f32] {
        match (&self.adapters, &self.base) {
            (Some(adapters), _) => &adapters.values,
            (None, Base::F32(weights)) => weights,
            // Only frozen weights are rounded.
            (None, Base::Bf16(_)) => &[],
        }
    }

    pub(super) fn moment_format(&self) -> MomentFormat {
        self.options.moments
    }

    pub(super) fn trained_count(&self) -> usize {
        self.trained_entries().last().map_or(0, |entry| entry.range.end)
    }

    /// Fills `out` with the values of a parameter from `first` on, its adapter added.
    fn read_entry(&self, entry: &Entry, first: usize, out: &mut [f32]) {
        let base = self.base.values(entry);
        match &self.adapters {
            Some(adapters) => adapters.read_merged(&entry.name, base, first, out),
            None => base.read(first, out),
        }
    }

    fn real_vocab(&self) -> usize {
        self.options.real_vocab.unwrap_or(self.config.vocab_size)
    }

    /// Tokens that go through the model at a time.
    fn micro_batch_tokens(&self) -> usize {
        let recompute = self.options.recompute == Recompute::Always;
        let affordable =
            self.options.activation_bytes / activation_bytes_per_token(&self.config, recompute);
        self.options.micro_batch_tokens.min(affordable)
    }

    /// Bytes that [`Self::accumulate`] works in and [`Self::release`] gives back: activations and buffers of full
    /// micro-batches.
    pub fn working_bytes(&self) -> usize {
        let tokens = self.micro_batch_tokens();
        let kept = activation_bytes_per_token(&self.config, self.recomputes(tokens));
        tokens * kept + scratch_bytes(&self.config, &self.options, tokens)
    }

    /// Whether a micro-batch's activations are computed again.
    fn recomputes(&self, tokens: usize) -> bool {
        match self.options.recompute {
            Recompute::Always => true,
            Recompute::Never => false,
            Recompute::Auto => {
                let kept = tokens * activation_bytes_per_token(&self.config, false);
                kept > self.options.activation_bytes
            }
        }
    }

    fn limits(&self) -> RowLimits {
        RowLimits {
            vocab_size: self.config.vocab_size,
            real_vocab: self.real_vocab(),
            max_position: self.config.max_position,
        }
    }

    /// Adds the gradient of the rows' loss. Rows are checked first; on an error nothing has changed. A loss that is not finite is
    /// reported as it is, and makes the next [`Self::step`] drop the gradient. Where adapters are trained, the head is the
    /// same in every snapshot: without one in `heads`, the model's own takes its place.
    pub fn accumulate(
        &mut self,
        rows: &[TrainRow],
        heads: &Heads<'_>,
    ) -> Result<LossReport, TrainError> {
        let limits = self.limits();
        let own =
            Head { weight: self.base.matrix(&self.layout.head), hidden: self.config.hidden_size };
        let frozen = self.adapters.is_some().then_some(own);
        let heads = &Heads { snapshot: heads.snapshot.or(frozen), ..*heads };
        for (row, data) in rows.iter().enumerate() {
            check_row(row, data, heads, &limits)?;
        }
        let count = self.trained_count();
        self.gradient.fit(count);
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
            let options = self.pass_options(batch.tokens.len());
            tokens += batch.tokens.len();
            if batch.losses.is_empty() {
                continue;
            }
            self.rope.grow(&self.config, batch.longest());
            let model = Model {
                config: &self.config,
                layout: &self.layout,
                base: &self.base,
                adapters: self.adapters.as_ref(),
                rope: &self.rope,
            };
            self.pass.forward(model, &batch, Keep::ForBackward(options));
            let gradient = self.gradient.fit(count);
            let losses = self.pass.backward(model, &batch, rows, heads, options, gradient);
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
            self.rope.grow(&self.config, batch.longest());
            let model = Model {
                config: &self.config,
                layout: &self.layout,
                base: &self.base,
                adapters: self.adapters.as_ref(),
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

    fn pass_options(&self, tokens: usize) -> PassOptions {
        PassOptions {
            recompute: self.recomputes(tokens),
            real_vocab: self.real_vocab(),
            logit_values: self.options.logit_bytes / size_of::<f32>(),
        }
    }

    /// Applies the accumulated gradient and sets it to zero; its memory stays for the next batch, because the system takes
    /// longer to hand it out again than to compute the update. The gradient is held whole until here: clipping needs its norm
    /// before the first value is applied, and a batch is the sum of many micro-batches. When the loss or the gradient is not
    /// finite, weights and optimizer stay as they are, the gradient is dropped and the report says so.
    pub fn step(&mut self, config: &AdamWConfig) -> Result<StepReport, TrainError> {
        config.check()?;
        let count = self.trained_count();
        let gradient = self.gradient.fit(count);
        let grad_norm = norm(gradient);
        let healthy = grad_norm.is_finite() && !std::mem::take(&mut self.spoiled);
        let clipped = healthy && grad_norm > config.clip;
        if healthy {
            // The small term keeps the clipped norm below the bound, as PyTorch does.
            let factor = if clipped { config.clip / (grad_norm + 1e-6) } else { 1.0 };
            let settings = (config, self.options.moments);
            match (&mut self.adapters, &mut self.base) {
                (Some(adapters), _) => {
                    let values = &mut adapters.values;
                    self.optimizer.update(values, gradient, settings, factor);
                    adapters.rescale();
                }
                (None, Base::F32(weights)) => {
                    self.optimizer.update(weights, gradient, settings, factor);
                }
                // Only frozen weights are rounded.
                (None, Base::Bf16(_)) => {}
            }
        } else {
            self.drop_gradient();
        }
        Ok(StepReport {
            grad_norm,
            clipped,
            skipped_non_finite: !healthy,
            step: self.optimizer.step,
        })
    }

    /// Forgets the accumulated gradient.
    pub fn drop_gradient(&mut self) {
        self.spoiled = false;
        self.gradient = Buffer::default();
    }

    /// Gives back the memory of activations and packed weights. The gradient's stays: the next batch needs all of it.
    pub fn release(&mut self) {
        self.pass = Pass::default();
    }
}

impl TensorSource for Trainer {
    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        self.layout.find(name).map(|entry| entry.shape.clone())
    }

    /// Values of the model's parameters, adapters added in.
    fn read_values(&self, name: &str, first: usize, out: &mut [f32]) -> Result<(), LmError> {
        let memory = std::path::Path::new("(trainer)");
        let wrong = |problem: String| LmError::tensor(memory, name, problem);
        let entry =
            self.layout.find(name).ok_or_else(|| wrong("is not in the model".to_owned()))?;
        if first.checked_add(out.len()).is_none_or(|end| end > entry.range.len()) {
            return Err(wrong(format!(
                "has {} values; {} from {first} on were asked for",
                entry.range.len(),
                out.len()
            )));
        }
        self.read_entry(entry, first, out);
        Ok(())
    }
}

fn missing(entry: &Entry) -> TrainError {
    TrainError::MissingParameter { name: entry.name.clone(), shape: entry.shape.clone() }
}

fn shaped(entry: &Entry, found: Vec<usize>) -> TrainError {
    TrainError::ParameterShape { name: entry.name.clone(), expected: entry.shape.clone(), found }
}
