//! A student that learns on this machine.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use lens_lm::cache::KvFormat;
use lens_lm::checkpoint::{
    Checkpoint, Dtype, ModelFiles, SaveOptions, read_adapter, save, save_adapter,
};
use lens_lm::model::Model;
use lens_lm::model::WeightFormat;
use lens_lm::tensor::Parameters;
use lens_lm::train::{
    AdamWConfig, Head, Heads, LossKind, LossReport, OwnedValues, RowLoss, TrainError, TrainRow,
    Trainer, TrainerOptions, Values,
};
use lens_opd::objective::Loss;
use lens_opd::objective::buckets::TAIL_FLOOR;

use super::codec::NativeCodec;
use super::models::top_tokens;
use super::policy::NativePolicy;
use crate::engine::{LearnReport, LearnRow};
use crate::error::EngineError;
use crate::target::{Kind, TopTokens};

/// How a student learns.
#[derive(Debug, Clone, Copy)]
pub struct LearnerOptions {
    /// How snapshots hold their weights.
    pub format: WeightFormat,
    /// The token loss.
    pub loss: Loss,
    /// AdamW.
    pub optimizer: AdamWConfig,
    /// What is trained and how its memory is used; the learner sets `real_vocab` itself.
    pub training: TrainerOptions,
}

/// A student that learns on this machine.
pub struct NativeLearner {
    trainer: Trainer,
    files: ModelFiles,
    codec: Arc<NativeCodec>,
    options: LearnerOptions,
    kv_format: KvFormat,
    real_vocab: usize,
    teacher: Option<Arc<NativePolicy>>,
    teacher_head: OwnedValues,
    /// Output heads of the snapshots that waiting rows refer to; none where the head is frozen, and so the same in all.
    heads: BTreeMap<u64, Arc<Vec<f32>>>,
}

impl NativeLearner {
    /// Loads a student without a teacher; see [`NativeLearner::learn_from`].
    pub fn load(directory: &Path, options: LearnerOptions) -> Result<Self, EngineError> {
        let Checkpoint { files, weights, .. } = Checkpoint::open(directory)?;
        Self::build(files, options, |files, options| {
            Ok(Trainer::load(files.config.clone(), &weights, options)?)
        })
    }

    /// Gives the learner a teacher on this machine. It must share the token map; nothing has been learned yet.
    pub(super) fn learn_from(
        &mut self,
        teacher: Arc<NativePolicy>,
        files: &Checkpoint,
    ) -> Result<(), EngineError> {
        let real_vocab = super::shared_tokens(&self.codec, teacher.native_codec())?;
        self.trainer.set_real_vocab(real_vocab)?;
        self.real_vocab = real_vocab;
        self.teacher_head = read_head(files)?;
        self.teacher = Some(teacher);
        Ok(())
    }

    /// Wraps a fresh model, without a teacher: for supervised learning.
    pub fn fresh(
        files: ModelFiles,
        parameters: Parameters,
        options: LearnerOptions,
    ) -> Result<Self, EngineError> {
        Self::build(files, options, |files, options| {
            Ok(Trainer::new(files.config.clone(), parameters, options)?)
        })
    }

    fn build(
        files: ModelFiles,
        options: LearnerOptions,
        trainer: impl FnOnce(&ModelFiles, TrainerOptions) -> Result<Trainer, EngineError>,
    ) -> Result<Self, EngineError> {
        let codec = Arc::new(NativeCodec::new(&files)?);
        let real_vocab = codec.tokenizer().real_tokens();
        let training = TrainerOptions { real_vocab: Some(real_vocab), ..options.training };
        Ok(Self {
            trainer: trainer(&files, training)?,
            files,
            codec,
            options,
            kv_format: KvFormat::of(options.format),
            real_vocab,
            teacher: None,
            teacher_head: OwnedValues::F32(Vec::new()),
            heads: BTreeMap::new(),
        })
    }

    /// How the snapshots to come keep keys and values; f32 with f32 weights, else bf16, where it is not said.
    pub fn set_kv_format(&mut self, format: KvFormat) {
        self.kv_format = format;
    }

    /// Changes the learning rate of the steps to come.
    pub fn set_learning_rate(&mut self, lr: f64) {
        self.options.optimizer.lr = lr;
    }

    /// Writes the model in a storage type of the caller's choice.
    pub fn save_model_as(&self, directory: &Path, dtype: Dtype) -> Result<(), EngineError> {
        Ok(save(directory, &self.files, &self.trainer, &SaveOptions::new(dtype))?)
    }

    /// How it learns.
    pub fn options(&self) -> &LearnerOptions {
        &self.options
    }

    /// The tokenizer and chat template.
    pub fn codec(&self) -> &Arc<NativeCodec> {
        &self.codec
    }

    /// The loss of every row. What a resumed queue does not carry, the frozen teacher is asked for again.
    fn row_losses(&self, rows: &[LearnRow]) -> Result<Vec<RowLoss>, EngineError> {
        let mut losses: Vec<Option<RowLoss>> =
            rows.iter().map(|row| self.known_loss(row)).collect();
        for (top, open) in [(false, Kind::TeacherStates(None)), (true, Kind::TeacherTop(None))] {
            let open: Vec<usize> =
                (0..rows.len()).filter(|&index| rows[index].target.0 == open).collect();
            if open.is_empty() {
                continue;
            }
            let teacher = self.teacher.as_ref().ok_or_else(|| {
                EngineError::Request("rows name a teacher, but the learner has none".to_owned())
            })?;
            let asked: Vec<(&[u32], &[u32])> = open
                .iter()
                .map(|&index| (rows[index].prompt.as_slice(), rows[index].response.as_slice()))
                .collect();
            let top_k = if top { self.options.loss.top_k } else { 0 };
            for (index, scored) in open.into_iter().zip(teacher.states(&asked, 1.0, top_k)?) {
                losses[index] = Some(if top {
                    top_k_loss(&top_tokens(&scored))
                } else {
                    let hidden = scored.hidden.map(|hidden| hidden.data);
                    RowLoss::ReverseKl { teacher_hidden: hidden.unwrap_or_default() }
                });
            }
        }
        let missing = || EngineError::Request("a row's target was not answered".to_owned());
        losses.into_iter().map(|loss| loss.ok_or_else(missing)).collect()
    }

    /// The loss of a row whose target says everything.
    fn known_loss(&self, row: &LearnRow) -> Option<RowLoss> {
        let loss = &self.options.loss;
        match &row.target.0 {
            Kind::Tokens => Some(RowLoss::Nll),
            Kind::Snapshot { hidden, .. } => {
                Some(RowLoss::ForwardKl { snapshot_hidden: hidden.to_vec() })
            }
            Kind::Sampled { teacher, rollout } => Some(RowLoss::PolicyGradient {
                teacher_logp: teacher.clone(),
                rollout_logp: rollout.clone(),
                kl_coef: loss.kl_coef as f32,
                clip: loss.clip as f32,
                dual_clip: loss.dual_clip as f32,
            }),
            Kind::TeacherStates(hidden) => {
                hidden.as_ref().map(|hidden| RowLoss::ReverseKl { teacher_hidden: hidden.to_vec() })
            }
            Kind::TeacherTop(top) => top.as_ref().map(|top| top_k_loss(top)),
            Kind::Kept { .. } => None,
        }
    }
}

/// The teacher's most likely tokens and the weight of all others.
fn top_k_loss(top: &TopTokens) -> RowLoss {
    let tails = top.logprobs.chunks(top.k.max(1)).map(|logprobs| {
        let mass: f64 = logprobs.iter().map(|&logprob| f64::from(logprob).exp()).sum();
        (1.0 - mass).max(TAIL_FLOOR).ln() as f32
    });
    let (ids, logps) = (top.ids.clone(), top.logprobs.clone());
    RowLoss::ReverseKlTopK { k: top.k, ids, logps, tail_logps: tails.collect() }
}

fn read_head(checkpoint: &Checkpoint) -> Result<OwnedValues, EngineError> {
    let name = if checkpoint.files.config.tied_head {
        "model.embed_tokens.weight"
    } else {
        "lm_head.weight"
    };
    Ok(checkpoint.read_matrix(name)?)
}

/// Working memory of the trainer that stays between steps: asking the system for it again takes longer than what is done
/// in it.
const KEPT_BYTES: usize = 128 << 20;

/// The folder of saved adapters.
const ADAPTER: &str = "adapter";

/// Which part of a checkpoint with adapters could not be used.
enum Unread {
    Adapter(EngineError),
    Optimizer(TrainError),
}

/// The file of a snapshot's output head.
fn head_file(version: u64) -> String {
    format!("head-{version:06}.f32")
}

fn weighted(report: &LossReport, internalization: bool) -> f64 {
    report
        .kinds
        .iter()
        .filter(|totals| (totals.kind == LossKind::ForwardKl) == internalization)
        .map(|totals| totals.weighted_loss)
        .sum()
}

impl NativeLearner {
    /// Optimizer steps done.
    pub fn version(&self) -> u64 {
        self.trainer.steps()
    }

    /// One optimizer step on one train batch. A batch that is refused leaves nothing behind.
    pub fn learn(&mut self, rows: &[LearnRow]) -> Result<LearnReport, EngineError> {
        let learned = self.accumulate(rows).and_then(|mut report| {
            let step = self.trainer.step(&self.options.optimizer)?;
            report.grad_norm = step.grad_norm;
            report.skipped = step.skipped_non_finite;
            Ok(report)
        });
        // The rows before one at fault have left their gradient.
        if learned.is_err() {
            self.trainer.drop_gradient();
        }
        // Between steps the models play and may need the memory.
        if self.trainer.working_bytes() > KEPT_BYTES {
            self.trainer.release();
        }
        learned
    }

    /// Adds up the gradient of a train batch.
    fn accumulate(&mut self, rows: &[LearnRow]) -> Result<LearnReport, EngineError> {
        let mut report = LearnReport {
            loss: 0.0,
            focus_loss: 0.0,
            internalization_loss: 0.0,
            grad_norm: 0.0,
            skipped: false,
            tokens: 0,
        };
        let teacher_width =
            self.teacher.as_ref().map(|teacher| teacher.model().config().hidden_size);
        for (version, rows) in self.grouped(rows)? {
            let snapshot = match version {
                None => None,
                // The trainer knows the one head that all snapshots share.
                Some(_) if self.head_is_frozen() => None,
                Some(version) => Some(self.heads.get(&version).cloned().ok_or_else(|| {
                    EngineError::Request(format!("the output head of snapshot {version} is gone"))
                })?),
            };
            let heads = Heads {
                teacher: teacher_width
                    .map(|hidden| Head { weight: self.teacher_head.view(), hidden }),
                snapshot: snapshot.as_ref().map(|weight| Head {
                    weight: Values::F32(weight),
                    hidden: self.files.config.hidden_size,
                }),
            };
            let losses = self.trainer.accumulate(&rows, &heads)?;
            report.loss += losses.loss;
            report.focus_loss += weighted(&losses, false);
            report.internalization_loss += weighted(&losses, true);
            report.tokens += losses.tokens;
        }
        Ok(report)
    }

    /// The rows as the trainer takes them. Rows that refer to the same snapshot go through one head; `None` stands for
    /// rows that refer to none.
    fn grouped(
        &self,
        rows: &[LearnRow],
    ) -> Result<BTreeMap<Option<u64>, Vec<TrainRow>>, EngineError> {
        let losses = self.row_losses(rows)?;
        let mut groups: BTreeMap<Option<u64>, Vec<TrainRow>> = BTreeMap::new();
        for (row, loss) in rows.iter().zip(losses) {
            let version = match &row.target.0 {
                Kind::Snapshot { version, .. } => Some(*version),
                _ => None,
            };
            // The policy gradient carries the coefficient in its advantage.
            let factor = match &row.target.0 {
                Kind::TeacherStates(_) | Kind::TeacherTop(_) => self.options.loss.kl_coef as f32,
                Kind::Tokens | Kind::Sampled { .. } | Kind::Snapshot { .. } | Kind::Kept { .. } => {
                    1.0
                }
            };
            groups.entry(version).or_default().push(TrainRow {
                tokens: [row.prompt.as_slice(), &row.response].concat(),
                response_start: row.prompt.len(),
                weights: row.coefficients.iter().map(|coefficient| coefficient * factor).collect(),
                loss,
            });
        }
        Ok(groups)
    }

    /// Whether every snapshot has the same output head.
    fn head_is_frozen(&self) -> bool {
        self.trainer.lora().is_some()
    }

    /// Keeps the output head of this moment for rows that will refer to it.
    fn keep_head(&mut self) {
        if !self.head_is_frozen() {
            let version = self.trainer.steps();
            self.heads.entry(version).or_insert_with(|| Arc::new(self.trainer.head().to_vec()));
        }
    }

    /// A frozen copy of the weights as they are now, adapters added in.
    pub fn snapshot(&mut self) -> Result<NativePolicy, EngineError> {
        self.keep_head();
        let model = Model::load(&self.files.config, &self.trainer, self.options.format)?
            .with_kv_format(self.kv_format)?;
        Ok(NativePolicy::new(model, self.codec.clone(), self.trainer.steps(), self.real_vocab))
    }

    /// [`NativeLearner::snapshot`] in the memory of an older one, which is gone afterwards.
    pub(super) fn snapshot_into(&mut self, policy: &mut NativePolicy) -> Result<(), EngineError> {
        self.keep_head();
        policy.renew(&self.trainer, self.trainer.steps())
    }

    /// About how many bytes one checkpoint takes.
    pub fn checkpoint_bytes(&self) -> u64 {
        let parameters = self.files.config.parameter_count() as u64;
        if let Some(lora) = self.trainer.lora() {
            // The merged model; the adapters and two moments of each.
            let model = parameters * self.model_dtype().size() as u64;
            return model + 12 * lora.parameter_count(&self.files.config) as u64;
        }
        // Weights and two moments, four bytes each, and the heads of the snapshots rows may refer to.
        let head = (self.files.config.vocab_size * self.files.config.hidden_size) as u64;
        4 * (3 * parameters + 3 * head)
    }

    /// How the model of a checkpoint is stored: exactly, unless it is a copy that nothing resumes from and that is
    /// published in bf16 anyway.
    fn model_dtype(&self) -> Dtype {
        if self.head_is_frozen() && self.options.format == WeightFormat::Bf16 {
            Dtype::Bf16
        } else {
            Dtype::F32
        }
    }

    /// Writes the model, adapters added in, as a Hugging Face directory.
    pub fn save_model(&self, directory: &Path) -> Result<(), EngineError> {
        self.save_model_as(directory, self.model_dtype())
    }

    /// Writes into `state` what else is needed to resume exactly: the optimizer's state, the adapters in PEFT's layout where
    /// they are trained, and the output heads of the snapshots in `heads`, which rows still refer to.
    pub fn save_state(&self, state: &Path, heads: &[u64]) -> Result<(), EngineError> {
        let write = |name: String, bytes: &[u8]| {
            let path = state.join(name);
            std::fs::write(&path, bytes).map_err(EngineError::state(&path))
        };
        write("optimizer.safetensors".to_owned(), &self.trainer.optimizer_state()?)?;
        if let Some(lora) = self.trainer.lora() {
            let (folder, tensors) = (state.join(ADAPTER), self.trainer.adapter_tensors());
            save_adapter(&folder, &self.files.name(), lora, &tensors)?;
        }
        for version in heads {
            if let Some(head) = self.heads.get(version) {
                let bytes: Vec<u8> = head.iter().flat_map(|value| value.to_le_bytes()).collect();
                write(head_file(*version), &bytes)?;
            }
        }
        Ok(())
    }

    /// Resumes from what [`NativeLearner::save_model`] and [`NativeLearner::save_state`] wrote; `needed` are the snapshots
    /// whose output heads must be there. A checkpoint that cannot be used changes nothing.
    pub fn load_state(
        &mut self,
        model: &Path,
        state: &Path,
        needed: &[u64],
    ) -> Result<(), EngineError> {
        let read = |path: &Path| std::fs::read(path).map_err(EngineError::state(path));
        let config = ModelFiles::read(model)?.config;
        if config != self.files.config {
            return Err(EngineError::unusable(model, "it is a model of another shape".to_owned()));
        }
        let path = state.join("optimizer.safetensors");
        let optimizer = read(&path)?;
        let unusable = |error: TrainError| EngineError::unusable(&path, error.to_string());
        if self.head_is_frozen() {
            return self.load_adapters(&state.join(ADAPTER), &optimizer).map_err(
                |error| match error {
                    Unread::Adapter(error) => error,
                    Unread::Optimizer(error) => unusable(error),
                },
            );
        }
        let weights = Checkpoint::open(model)?.weights;
        let training =
            TrainerOptions { real_vocab: Some(self.real_vocab), ..self.options.training };
        let mut fresh = Trainer::load(config, &weights, training)
            .map_err(|error| EngineError::unusable(model, error.to_string()))?;
        fresh.load_optimizer_state(&optimizer).map_err(unusable)?;
        let mut heads = BTreeMap::new();
        for &version in needed {
            let path = state.join(head_file(version));
            let bytes = read(&path)?;
            let expected = 4 * fresh.head().len();
            if bytes.len() != expected {
                let message = format!("it has {} bytes instead of {expected}", bytes.len());
                return Err(EngineError::unusable(&path, message));
            }
            let head = bytes
                .chunks_exact(4)
                .map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]]))
                .collect();
            heads.insert(version, Arc::new(head));
        }
        (self.trainer, self.heads) = (fresh, heads);
        Ok(())
    }

    /// Takes over saved adapters and their optimizer's state: the frozen model is there already.
    fn load_adapters(&mut self, folder: &Path, optimizer: &[u8]) -> Result<(), Unread> {
        let Some(lora) = self.trainer.lora() else { return Ok(()) };
        let found = read_adapter(folder, lora).map_err(|error| Unread::Adapter(error.into()))?;
        let before = self.trainer.adapter_tensors();
        self.trainer
            .set_adapters(&found)
            .map_err(|error| Unread::Adapter(EngineError::unusable(folder, error.to_string())))?;
        self.trainer.load_optimizer_state(optimizer).map_err(|error| {
            // What was there before fits.
            let _ = self.trainer.set_adapters(&before);
            Unread::Optimizer(error)
        })
    }

    /// Forgets the output heads of snapshots older than `version`.
    pub(crate) fn forget_before(&mut self, version: u64) {
        self.heads.retain(|&kept, _| kept >= version);
    }
}
