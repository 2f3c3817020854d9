//! A frozen model on this machine: writes responses, and judges a student's.

use std::any::Any;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use lens_lm::cache::PrefixCache;
use lens_lm::checkpoint::Checkpoint;
use lens_lm::generate::{self, GenerateOptions, GenerateRequest, generate_with};
use lens_lm::kernels::packed::WeightFormat;
use lens_lm::model::Model;
use lens_lm::pair::{CrossRow, PairOptions, PairPosition, cross_score};
use lens_lm::sampling;
use lens_lm::score::{ScoreOptions, ScoreRequest, score_with};
use lens_opd::episode::{DivergenceSource, TopPair};

use super::codec::NativeCodec;
use crate::codec::Codec;
use crate::deadline::Deadline;
use crate::error::{CallFailure, EngineError};
use crate::policy::{
    Completion, CrossContext, CrossContextTarget, FinishReason, GenerateCall, Policy, Sampling,
};
use crate::teacher::{Position, ScoreCall, ScoredRow, Teacher};

/// Bytes of keys and values kept for prompts that begin alike, per model.
const PREFIX_BYTES: usize = 512 << 20;

/// Sequences decoded together.
const MAX_BATCH: usize = 64;

/// A frozen model on this machine.
#[derive(Debug)]
pub struct NativePolicy {
    model: Model,
    codec: Arc<NativeCodec>,
    version: u64,
    real_vocab: usize,
    prefix: Mutex<PrefixCache>,
}

impl NativePolicy {
    /// Wraps a model. Only the first `real_vocab` tokens take part in any softmax.
    pub fn new(model: Model, codec: Arc<NativeCodec>, version: u64, real_vocab: usize) -> Self {
        Self {
            model,
            codec,
            version,
            real_vocab,
            prefix: Mutex::new(PrefixCache::new(PREFIX_BYTES)),
        }
    }

    /// Loads a model from its Hugging Face directory.
    pub fn load(directory: &Path, format: WeightFormat) -> Result<Self, EngineError> {
        let checkpoint = Checkpoint::open(directory)?;
        let codec = Arc::new(NativeCodec::new(&checkpoint.files)?);
        let model = Model::load(&checkpoint.files.config, &checkpoint.weights, format)?;
        let real_vocab = codec.tokenizer().real_tokens();
        Ok(Self::new(model, codec, 0, real_vocab))
    }

    /// The model itself.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Its tokenizer and chat template.
    pub fn native_codec(&self) -> &Arc<NativeCodec> {
        &self.codec
    }

    /// Last hidden states and, if `top_k` is above 0, the most likely tokens at the response positions of `rows`.
    pub(super) fn states(
        &self,
        rows: &[(&[u32], &[u32])],
        top_k: usize,
    ) -> Result<Vec<lens_lm::score::Scored>, EngineError> {
        let requests: Vec<ScoreRequest<'_>> = rows
            .iter()
            .map(|(prompt, response)| ScoreRequest { prompt, response, asked: &[] })
            .collect();
        let options = ScoreOptions {
            real_vocab: Some(self.real_vocab),
            hidden: true,
            top_k,
            ..ScoreOptions::default()
        };
        let mut prefix = self.prefix.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(score_with(&self.model, &requests, &options, &mut prefix)?)
    }

    fn sampling(sampling: Sampling) -> sampling::Sampling {
        if sampling.temperature == 0.0 {
            return sampling::Sampling::greedy();
        }
        sampling::Sampling {
            temperature: sampling.temperature,
            top_k: sampling.top_k.unwrap_or(0),
            top_p: sampling.top_p,
            min_p: sampling.min_p,
            greedy: false,
        }
    }
}

impl Policy for NativePolicy {
    fn codec(&self) -> &dyn Codec {
        &*self.codec
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn generate(
        &self,
        calls: &[GenerateCall],
        deadline: Deadline,
    ) -> Result<Vec<Result<Completion, CallFailure>>, EngineError> {
        if deadline.has_passed() {
            return Ok(calls.iter().map(|_| Err(CallFailure::Timeout)).collect());
        }
        let context = self.model.config().max_position;
        let fits = |call: &GenerateCall| {
            call.prompt.len() <= call.max_prompt_tokens && call.prompt.len() < context
        };
        let requests: Vec<GenerateRequest> = calls
            .iter()
            .filter(|call| fits(call))
            .map(|call| GenerateRequest {
                prompt: call.prompt.clone(),
                max_new_tokens: call.max_new_tokens,
                stop: self.codec.stop_tokens().to_vec(),
                sampling: Self::sampling(call.sampling),
                key: call.stream,
            })
            .collect();
        let options = GenerateOptions {
            max_batch: MAX_BATCH,
            real_vocab: Some(self.real_vocab),
            ..GenerateOptions::default()
        };
        let mut prefix = self.prefix.lock().unwrap_or_else(PoisonError::into_inner);
        let generated = generate_with(&self.model, &requests, &options, &mut prefix, &mut |_| {})?;
        let mut generated = generated.into_iter();
        Ok(calls
            .iter()
            .map(|call| {
                if !fits(call) {
                    return Err(CallFailure::PromptTooLong);
                }
                let done = generated.next().ok_or(CallFailure::Engine)?;
                Ok(Completion {
                    tokens: done.tokens,
                    logprobs: done.logprobs,
                    finish: match done.finish {
                        generate::FinishReason::Stop => FinishReason::Stop,
                        generate::FinishReason::Length | generate::FinishReason::Context => {
                            FinishReason::Length
                        }
                    },
                })
            })
            .collect())
    }

    fn cross_context(
        &self,
        calls: &[CrossContext],
    ) -> Result<Option<Vec<CrossContextTarget>>, EngineError> {
        let rows: Vec<CrossRow<'_>> = calls
            .iter()
            .map(|call| CrossRow {
                student_prompt: &call.hinted_prompt,
                teacher_prompt: &call.plain_prompt,
                response: &call.response,
            })
            .collect();
        let options = PairOptions { real_vocab: Some(self.real_vocab), ..PairOptions::default() };
        let mut hinted = self.prefix.lock().unwrap_or_else(PoisonError::into_inner);
        let mut plain = PrefixCache::new(PREFIX_BYTES);
        let scored =
            cross_score(&self.model, &self.model, &rows, &options, &mut hinted, &mut plain)?;
        let targets = scored
            .into_iter()
            .map(|row| {
                let sum: f64 = row.positions.iter().map(|position| f64::from(position.kl)).sum();
                CrossContextTarget {
                    gap: sum / row.positions.len().max(1) as f64,
                    hidden: Arc::new(row.student_hidden.data),
                }
            })
            .collect();
        Ok(Some(targets))
    }
}

impl Teacher for NativePolicy {
    fn divergence(&self) -> DivergenceSource {
        DivergenceSource::Full
    }

    fn score(
        &self,
        student: &dyn Policy,
        calls: &[ScoreCall],
        deadline: Deadline,
    ) -> Result<Vec<Result<ScoredRow, CallFailure>>, EngineError> {
        if deadline.has_passed() {
            return Ok(calls.iter().map(|_| Err(CallFailure::Timeout)).collect());
        }
        let mut answers: Vec<Option<ScoredRow>> = calls.iter().map(|_| None).collect();
        let native = (student as &dyn Any).downcast_ref::<Self>();
        self.compare(native, calls, &mut answers)?;
        self.judge(calls, &mut answers)?;
        Ok(answers.into_iter().map(|answer| answer.ok_or(CallFailure::Engine)).collect())
    }
}

impl NativePolicy {
    /// Both models at every position, for the calls that ask for it.
    fn compare(
        &self,
        student: Option<&Self>,
        calls: &[ScoreCall],
        answers: &mut [Option<ScoredRow>],
    ) -> Result<(), EngineError> {
        let Some(student) = student else { return Ok(()) };
        let places: Vec<usize> = (0..calls.len()).filter(|&place| calls[place].compare).collect();
        let rows: Vec<CrossRow<'_>> = places
            .iter()
            .map(|&place| CrossRow {
                student_prompt: &calls[place].prompt,
                teacher_prompt: &calls[place].prompt,
                response: &calls[place].response,
            })
            .collect();
        let options = PairOptions { real_vocab: Some(self.real_vocab), ..PairOptions::default() };
        let mut theirs = self.prefix.lock().unwrap_or_else(PoisonError::into_inner);
        let scored = if std::ptr::eq(student, self) {
            // A model judging itself: its one cache is taken already.
            let mut ours = PrefixCache::new(PREFIX_BYTES);
            cross_score(&self.model, &self.model, &rows, &options, &mut ours, &mut theirs)?
        } else {
            let mut ours = student.prefix.lock().unwrap_or_else(PoisonError::into_inner);
            cross_score(&student.model, &self.model, &rows, &options, &mut ours, &mut theirs)?
        };
        for (place, row) in places.into_iter().zip(scored) {
            answers[place] = Some(ScoredRow {
                positions: row.positions.iter().map(compared).collect(),
                teacher_hidden: Some(Arc::new(row.teacher_hidden.data)),
            });
        }
        Ok(())
    }

    /// The teacher alone, for the calls that are still open, grouped by temperature.
    fn judge(
        &self,
        calls: &[ScoreCall],
        answers: &mut [Option<ScoredRow>],
    ) -> Result<(), EngineError> {
        let mut temperatures: Vec<f32> = calls.iter().map(|call| call.temperature).collect();
        temperatures.sort_unstable_by(f32::total_cmp);
        temperatures.dedup();
        for temperature in temperatures {
            let places: Vec<usize> = (0..calls.len())
                .filter(|&place| {
                    answers[place].is_none() && calls[place].temperature == temperature
                })
                .collect();
            let requests: Vec<ScoreRequest<'_>> = places
                .iter()
                .map(|&place| ScoreRequest {
                    prompt: &calls[place].prompt,
                    response: &calls[place].response,
                    asked: &[],
                })
                .collect();
            let options = ScoreOptions {
                tau: temperature,
                real_vocab: Some(self.real_vocab),
                hidden: true,
                ..ScoreOptions::default()
            };
            let mut prefix = self.prefix.lock().unwrap_or_else(PoisonError::into_inner);
            let scored = score_with(&self.model, &requests, &options, &mut prefix)?;
            for (place, row) in places.into_iter().zip(scored) {
                let positions = row.positions.iter().map(|position| Position {
                    teacher_logprob: Some(position.logprob),
                    student_logprob: None,
                    top: None,
                    kl: None,
                });
                answers[place] = Some(ScoredRow {
                    positions: positions.collect(),
                    teacher_hidden: row.hidden.map(|hidden| Arc::new(hidden.data)),
                });
            }
        }
        Ok(())
    }
}

fn compared(position: &PairPosition) -> Position {
    Position {
        teacher_logprob: Some(position.teacher_logprob),
        student_logprob: Some(position.student_logprob),
        top: Some(TopPair {
            student_top: position.student_top1,
            teacher_top: position.teacher_top1,
            student_at_student: Some(position.student_at_student_top1),
            student_at_teacher: Some(position.student_at_teacher_top1),
            teacher_at_teacher: Some(position.teacher_at_teacher_top1),
            teacher_at_student: Some(position.teacher_at_student_top1),
        }),
        kl: Some(position.kl),
    }
}
