//! A frozen model on this machine.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lens_lm::cache::{KvFormat, PrefixCache};
use lens_lm::checkpoint::{Checkpoint, TensorSource};
use lens_lm::generate::{self, GenerateOptions, GenerateRequest, generate_with};
use lens_lm::model::Model;
use lens_lm::model::WeightFormat;
use lens_lm::sampling;
use lens_lm::score::{ScoreOptions, ScoreRequest, score_with};

use super::codec::NativeCodec;
use crate::codec::Codec;
use crate::deadline::Deadline;
use crate::error::{CallFailure, EngineError};
use crate::policy::{Completion, FinishReason, GenerateCall, Policy, Sampling};

/// Bytes of keys and values, kept for prompts that begin alike and in flight, where no budget is given.
const CACHE_BYTES: usize = 512 << 20;

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
            prefix: Mutex::new(PrefixCache::new(CACHE_BYTES)),
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

    /// The same model with keys and values kept in another form; nothing has been asked of it yet.
    pub fn with_kv_format(self, format: KvFormat) -> Result<Self, EngineError> {
        Ok(Self { model: self.model.with_kv_format(format)?, ..self })
    }

    /// Bounds the bytes of keys and values, kept and in flight; what was kept is forgotten.
    pub fn limit_cache(&self, bytes: usize) {
        *self.prefix() = PrefixCache::new(bytes);
    }

    /// Takes over other values of the same weights as version `version`; keys and values kept of the old ones are forgotten.
    pub(super) fn renew(
        &mut self,
        weights: &dyn TensorSource,
        version: u64,
    ) -> Result<(), EngineError> {
        let bytes = self.prefix().budget_bytes();
        self.limit_cache(bytes);
        self.model.refresh_from(weights)?;
        self.version = version;
        Ok(())
    }

    /// The model itself.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Its tokenizer and chat template.
    pub fn native_codec(&self) -> &Arc<NativeCodec> {
        &self.codec
    }

    /// The softmax of every call runs over this many tokens.
    pub(crate) fn real_vocab(&self) -> usize {
        self.real_vocab
    }

    /// The keys and values kept of earlier calls.
    pub(crate) fn prefix(&self) -> MutexGuard<'_, PrefixCache> {
        // A cache is only ever extended whole, so one that a panicking thread left behind is still right.
        self.prefix.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Log-probabilities at `temperature`, last hidden states and, if `top_k` is above 0, the most likely tokens at the
    /// response positions of `rows`.
    pub(super) fn states(
        &self,
        rows: &[(&[u32], &[u32])],
        temperature: f32,
        top_k: usize,
    ) -> Result<Vec<lens_lm::score::Scored>, EngineError> {
        let requests: Vec<ScoreRequest<'_>> = rows
            .iter()
            .map(|(prompt, response)| ScoreRequest { prompt, response, asked: &[] })
            .collect();
        let options = ScoreOptions {
            tau: temperature,
            real_vocab: Some(self.real_vocab),
            hidden: true,
            top_k,
            ..ScoreOptions::default()
        };
        Ok(score_with(&self.model, &requests, &options, &mut self.prefix())?)
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
        let mut prefix = self.prefix();
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
}
