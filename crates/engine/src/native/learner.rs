//! A student that learns on this machine.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use lens_lm::checkpoint::{Checkpoint, Dtype, ModelFiles, SaveOptions, save};
use lens_lm::kernels::packed::WeightFormat;
use lens_lm::model::Model;
use lens_lm::tensor::Parameters;
use lens_lm::train::{
    AdamWConfig, Head, Heads, LossKind, LossReport, RowLoss, TrainRow, Trainer, TrainerOptions,
};
use lens_opd::objective::{Estimator, LossParams};

use super::codec::NativeCodec;
use super::policy::NativePolicy;
use crate::error::EngineError;
use crate::learner::{LearnReport, LearnRow, Learner, Supervision};
use crate::policy::Policy;

/// How a student learns.
#[derive(Debug, Clone, Copy)]
pub struct LearnerOptions {
    /// How snapshots hold their weights.
    pub format: WeightFormat,
    /// The token loss.
    pub loss: LossParams,
    /// k of the top-k loss.
    pub top_k: usize,
    /// AdamW.
    pub optimizer: AdamWConfig,
    /// Whether activations are computed again in the backward pass instead of kept.
    pub recompute: bool,
}

/// A student that learns on this machine.
pub struct NativeLearner {
    trainer: Trainer,
    files: ModelFiles,
    codec: Arc<NativeCodec>,
    options: LearnerOptions,
    real_vocab: usize,
    teacher: Option<Arc<NativePolicy>>,
    teacher_head: Vec<f32>,
    /// Output heads of the snapshots that waiting rows refer to.
    heads: BTreeMap<u64, Arc<Vec<f32>>>,
}

impl NativeLearner {
    /// Loads a student. Its teacher, if it has one on this machine, must share the token map.
    pub fn load(
        directory: &Path,
        teacher: Option<(Arc<NativePolicy>, &Path)>,
        options: LearnerOptions,
    ) -> Result<Self, EngineError> {
        let checkpoint = Checkpoint::open(directory)?;
        let codec = Arc::new(NativeCodec::new(&checkpoint.files)?);
        let mut real_vocab = codec.tokenizer().real_tokens();
        let mut teacher_head = Vec::new();
        if let Some((teacher, path)) = &teacher {
            real_vocab = super::shared_tokens(&codec, teacher.native_codec())?;
            teacher_head = read_head(&Checkpoint::open(path)?)?;
        }
        let parameters = checkpoint.read_parameters()?;
        let trainer = trainer(&checkpoint.files, parameters, &options, real_vocab)?;
        let files = checkpoint.files;
        let teacher = teacher.map(|(teacher, _)| teacher);
        Ok(Self {
            trainer,
            files,
            codec,
            options,
            real_vocab,
            teacher,
            teacher_head,
            heads: BTreeMap::new(),
        })
    }

    /// Wraps a fresh model, without a teacher: for supervised learning.
    pub fn fresh(
        files: ModelFiles,
        parameters: Parameters,
        options: LearnerOptions,
    ) -> Result<Self, EngineError> {
        let codec = Arc::new(NativeCodec::new(&files)?);
        let real_vocab = codec.tokenizer().real_tokens();
        let trainer = trainer(&files, parameters, &options, real_vocab)?;
        Ok(Self {
            trainer,
            files,
            codec,
            options,
            real_vocab,
            teacher: None,
            teacher_head: Vec::new(),
            heads: BTreeMap::new(),
        })
    }

    /// Changes the learning rate of the steps to come.
    pub fn set_learning_rate(&mut self, lr: f64) {
        self.options.optimizer.lr = lr;
    }

    /// Writes the model in a storage type of the caller's choice.
    pub fn save_model_as(&self, directory: &Path, dtype: Dtype) -> Result<(), EngineError> {
        let parameters = self.trainer.parameters();
        Ok(save(directory, &self.files, &parameters, &SaveOptions::new(dtype))?)
    }

    /// The tokenizer and chat template.
    pub fn codec(&self) -> &Arc<NativeCodec> {
        &self.codec
    }

    /// Fills in what rows do not carry with them: the frozen teacher's hidden states, or its most likely tokens.
    fn row_losses(&self, rows: &[LearnRow]) -> Result<Vec<RowLoss>, EngineError> {
        let loss = &self.options.loss;
        let top_k = if loss.estimator == Estimator::RklTopk { self.options.top_k } else { 0 };
        let open: Vec<usize> = (0..rows.len())
            .filter(|&place| match &rows[place].supervision {
                Supervision::Teacher { hidden, .. } => match loss.estimator {
                    Estimator::RklFull => hidden.is_none(),
                    Estimator::RklTopk => true,
                    Estimator::K1Pg => false,
                },
                _ => false,
            })
            .collect();
        let mut answers = BTreeMap::new();
        if !open.is_empty() {
            let teacher = self.teacher.as_ref().ok_or_else(|| {
                EngineError::Request("rows name a teacher, but the learner has none".to_owned())
            })?;
            let asked: Vec<(&[u32], &[u32])> = open
                .iter()
                .map(|&place| (rows[place].prompt.as_slice(), rows[place].response.as_slice()))
                .collect();
            answers = open.into_iter().zip(teacher.states(&asked, top_k)?).collect();
        }
        let mut losses = Vec::with_capacity(rows.len());
        for (place, row) in rows.iter().enumerate() {
            losses.push(match &row.supervision {
                Supervision::Tokens => RowLoss::Nll,
                Supervision::Snapshot { hidden, .. } => {
                    RowLoss::ForwardKl { snapshot_hidden: hidden.to_vec() }
                }
                Supervision::Teacher { hidden, teacher_logprobs, rollout_logprobs } => {
                    match loss.estimator {
                        Estimator::RklFull => RowLoss::ReverseKl {
                            teacher_hidden: match hidden {
                                Some(hidden) => hidden.to_vec(),
                                None => answers
                                    .remove(&place)
                                    .and_then(|scored| scored.hidden)
                                    .map(|hidden| hidden.data)
                                    .unwrap_or_default(),
                            },
                        },
                        Estimator::RklTopk => top_k_loss(answers.remove(&place), top_k),
                        Estimator::K1Pg => {
                            let missing = || {
                                EngineError::Request(
                                    "k1_pg needs every token's log-probability under teacher and rollout".to_owned(),
                                )
                            };
                            RowLoss::PolicyGradient {
                                teacher_logp: teacher_logprobs.clone().ok_or_else(missing)?,
                                rollout_logp: rollout_logprobs.clone().ok_or_else(missing)?,
                                kl_coef: loss.kl_coef as f32,
                                clip: loss.clip_range as f32,
                                dual_clip: loss.dual_clip as f32,
                            }
                        }
                    }
                }
            });
        }
        Ok(losses)
    }
}

/// The teacher's most likely tokens and the weight of all others.
fn top_k_loss(scored: Option<lens_lm::score::Scored>, k: usize) -> RowLoss {
    let positions = scored.map(|scored| scored.positions).unwrap_or_default();
    let (mut ids, mut logps, mut tail_logps) = (Vec::new(), Vec::new(), Vec::new());
    let k = positions.first().map_or(k, |position| position.top.len());
    for position in &positions {
        let mass: f64 = position.top.iter().map(|(_, logp)| f64::from(*logp).exp()).sum();
        ids.extend(position.top.iter().map(|(id, _)| *id));
        logps.extend(position.top.iter().map(|(_, logp)| *logp));
        // Rounding may leave nothing for the tail; it keeps a sliver so that its logarithm exists.
        tail_logps.push((1.0 - mass).max(1e-12).ln() as f32);
    }
    RowLoss::ReverseKlTopK { k, ids, logps, tail_logps }
}

fn trainer(
    files: &ModelFiles,
    parameters: Parameters,
    options: &LearnerOptions,
    real_vocab: usize,
) -> Result<Trainer, EngineError> {
    let trainer_options = TrainerOptions {
        recompute: options.recompute,
        real_vocab: Some(real_vocab),
        ..TrainerOptions::default()
    };
    Ok(Trainer::new(files.config.clone(), parameters, trainer_options)?)
}

fn read_head(checkpoint: &Checkpoint) -> Result<Vec<f32>, EngineError> {
    let name = if checkpoint.files.config.tied_head {
        "model.embed_tokens.weight"
    } else {
        "lm_head.weight"
    };
    Ok(checkpoint.read_tensor(name)?.data)
}

fn weighted(report: &LossReport, internalization: bool) -> f64 {
    report
        .kinds
        .iter()
        .filter(|totals| (totals.kind == LossKind::ForwardKl) == internalization)
        .map(|totals| totals.weighted_loss)
        .sum()
}

impl Learner for NativeLearner {
    fn version(&self) -> u64 {
        self.trainer.steps()
    }

    fn learn(&mut self, rows: &[LearnRow]) -> Result<LearnReport, EngineError> {
        let losses = self.row_losses(rows)?;
        // Rows that refer to the same snapshot go through one head; `None` stands for rows that refer to none.
        let mut groups: BTreeMap<Option<u64>, Vec<TrainRow>> = BTreeMap::new();
        for (row, loss) in rows.iter().zip(losses) {
            let version = match &row.supervision {
                Supervision::Snapshot { version, .. } => Some(*version),
                _ => None,
            };
            // The policy gradient carries the coefficient in its advantage.
            let factor = match (&row.supervision, self.options.loss.estimator) {
                (Supervision::Teacher { .. }, Estimator::RklFull | Estimator::RklTopk) => {
                    self.options.loss.kl_coef as f32
                }
                _ => 1.0,
            };
            groups.entry(version).or_default().push(TrainRow {
                tokens: [row.prompt.as_slice(), &row.response].concat(),
                response_start: row.prompt.len(),
                weights: row.coefficients.iter().map(|coefficient| coefficient * factor).collect(),
                loss,
            });
        }
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
        for (version, rows) in groups {
            let snapshot = match version {
                None => None,
                Some(version) => Some(self.heads.get(&version).cloned().ok_or_else(|| {
                    EngineError::Request(format!("the output head of snapshot {version} is gone"))
                })?),
            };
            let heads = Heads {
                teacher: teacher_width.map(|hidden| Head { weight: &self.teacher_head, hidden }),
                snapshot: snapshot.as_ref().map(|weight| Head {
                    weight: weight.as_slice(),
                    hidden: self.files.config.hidden_size,
                }),
            };
            let losses = self.trainer.accumulate(&rows, &heads)?;
            report.loss += losses.loss;
            report.focus_loss += weighted(&losses, false);
            report.internalization_loss += weighted(&losses, true);
            report.tokens += losses.tokens;
        }
        let step = self.trainer.step(&self.options.optimizer)?;
        report.grad_norm = step.grad_norm;
        report.skipped = step.skipped_non_finite;
        Ok(report)
    }

    fn snapshot(&mut self) -> Result<Arc<dyn Policy>, EngineError> {
        let version = self.trainer.steps();
        self.heads.entry(version).or_insert_with(|| Arc::new(self.trainer.head().to_vec()));
        let model =
            Model::new(&self.files.config, &self.trainer.parameters(), self.options.format)?;
        Ok(Arc::new(NativePolicy::new(model, self.codec.clone(), version, self.real_vocab)))
    }

    fn checkpoint_bytes(&self) -> u64 {
        // Weights and two moments, four bytes each, and the heads of the snapshots rows may refer to.
        let parameters = self.files.config.parameter_count() as u64;
        let head = (self.files.config.vocab_size * self.files.config.hidden_size) as u64;
        4 * (3 * parameters + 3 * head)
    }

    fn save_model(&self, directory: &Path) -> Result<(), EngineError> {
        self.save_model_as(directory, Dtype::F32)
    }

    fn save_state(&self, heads: &[u64]) -> Result<Vec<(String, Vec<u8>)>, EngineError> {
        let mut files = vec![("optimizer.safetensors".to_owned(), self.trainer.optimizer_state()?)];
        for version in heads {
            if let Some(head) = self.heads.get(version) {
                let bytes = head.iter().flat_map(|value| value.to_le_bytes()).collect();
                files.push((format!("head-{version:06}.f32"), bytes));
            }
        }
        Ok(files)
    }

    fn load(&mut self, model: &Path, state: &Path) -> Result<(), EngineError> {
        let broken = |path: &Path, message: String| EngineError::State {
            path: path.display().to_string(),
            message,
        };
        let read =
            |path: &Path| std::fs::read(path).map_err(|error| broken(path, error.to_string()));
        let checkpoint = Checkpoint::open(model)?;
        if checkpoint.files.config != self.files.config {
            return Err(broken(model, "it is a model of another shape".to_owned()));
        }
        let parameters = checkpoint.read_parameters()?;
        self.trainer = trainer(&self.files, parameters, &self.options, self.real_vocab)?;
        self.trainer.load_optimizer_state(&read(&state.join("optimizer.safetensors"))?)?;
        self.heads.clear();
        let entries = std::fs::read_dir(state).map_err(|error| broken(state, error.to_string()))?;
        for entry in entries.flatten() {
            let name = entry.file_name();
            let version = name
                .to_str()
                .and_then(|name| name.strip_prefix("head-")?.strip_suffix(".f32")?.parse().ok());
            if let Some(version) = version {
                let bytes = read(&entry.path())?;
                let head = bytes
                    .chunks_exact(4)
                    .map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]]))
                    .collect();
                self.heads.insert(version, Arc::new(head));
            }
        }
        Ok(())
    }

    fn forget_before(&mut self, version: u64) {
        self.heads.retain(|&kept, _| kept >= version);
    }
}
