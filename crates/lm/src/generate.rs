//! Generation: many sequences at once, each by its own length, settings and random stream.
//!
//! A sequence's tokens and log-probabilities depend on its request and the weights alone, never on the batch,
//! the prefix cache or the number of threads.

use std::collections::VecDeque;

use lens_opd::random::{Stream, StreamKey};
use rayon::prelude::*;

use crate::cache::{PrefixCache, SequenceCache};
use crate::error::LmError;
use crate::kernels::matrix::Matrix;
use crate::model::{Model, RowSummary, Segment};
use crate::prefill::{self, Job, prefill};
use crate::sampling::{self, Choice, Sampling};
use crate::states::States;

/// One sequence to continue.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerateRequest {
    /// What to continue.
    pub prompt: Vec<u32>,
    /// Most tokens to generate.
    pub max_new_tokens: usize,
    /// Tokens that end the response (and are part of it).
    pub stop: Vec<u32>,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// The stream the draws come from; token number i takes draw number i.
    pub key: StreamKey,
}

/// Settings shared by a batch. None of them changes a token, except `real_vocab` and `context`.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerateOptions {
    /// Sequences decoded together.
    pub max_batch: usize,
    /// The tokenizer's size: ids from here on are padding and cut before any softmax.
    pub real_vocab: Option<usize>,
    /// Longest sequence, prompt and response together; the model's own limit if none.
    pub context: Option<usize>,
    /// Sequences are admitted while their cached keys and values may fit in this and in the prefix cache's budget; one is
    /// always admitted.
    pub kv_budget_bytes: usize,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self {
            max_batch: 32,
            real_vocab: None,
            context: None,
            kv_budget_bytes: prefill::DEFAULT_KV_BUDGET,
        }
    }
}

/// Why a response ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FinishReason {
    /// A stop token was generated.
    Stop,
    /// `max_new_tokens` were generated.
    Length,
    /// The context is full.
    Context,
}

/// A response.
#[derive(Debug, Clone, PartialEq)]
pub struct Generated {
    /// The tokens, a stop token included.
    pub tokens: Vec<u32>,
    /// Log-probability of each token under `softmax(logits / temperature)`, before any filter.
    pub logprobs: Vec<f32>,
    /// Log-probability of each token under `softmax(logits)`.
    pub logprobs_t1: Vec<f32>,
    /// Why it ended.
    pub finish: FinishReason,
}

/// A token just generated, for streaming.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenEvent {
    /// Which request of the batch.
    pub request: usize,
    /// The token.
    pub token: u32,
    /// Its log-probability as sampled.
    pub logprob: f32,
}

/// Continues every request; the results are in the order of the requests.
pub fn generate(
    model: &Model,
    requests: &[GenerateRequest],
    options: &GenerateOptions,
) -> Result<Vec<Generated>, LmError> {
    let mut prefix = PrefixCache::new(prefill::CALL_PREFIX_BYTES);
    generate_with(model, requests, options, &mut prefix, &mut |_| {})
}

/// [`generate`] with a prefix cache that outlives the call and a callback for every token as it is chosen.
pub fn generate_with(
    model: &Model,
    requests: &[GenerateRequest],
    options: &GenerateOptions,
    prefix: &mut PrefixCache,
    on_token: &mut dyn FnMut(TokenEvent),
) -> Result<Vec<Generated>, LmError> {
    let vocab = prefill::real_vocab(model, options.real_vocab)?;
    let context = options.context.unwrap_or(usize::MAX).min(model.config().max_position);
    for (index, request) in requests.iter().enumerate() {
        check(model, request, context).map_err(|reason| LmError::Request { index, reason })?;
    }
    let mut batch = Batch { model, requests, vocab, context, on_token, done: Vec::new() };
    batch.done.resize_with(requests.len(), || None);
    let mut queue: VecDeque<usize> = VecDeque::new();
    for (index, request) in requests.iter().enumerate() {
        if request.max_new_tokens == 0 {
            batch.done[index] = Some(Generated::empty());
        } else {
            queue.push_back(index);
        }
    }
    let budget_bytes = options.kv_budget_bytes.min(prefix.budget_bytes());
    let budget_tokens = budget_bytes / model.kv_bytes_per_token().max(1);
    let reserve = |index: usize| {
        let request = &requests[index];
        request.prompt.len().saturating_add(request.max_new_tokens).min(context)
    };
    let mut active: Vec<Active> = Vec::new();
    while !(queue.is_empty() && active.is_empty()) {
        let mut reserved: usize = active.iter().map(|active| reserve(active.request)).sum();
        let mut admitted = Vec::new();
        while let Some(&next) = queue.front() {
            let count = active.len() + admitted.len();
            let fits = count < options.max_batch && reserved + reserve(next) <= budget_tokens;
            if count > 0 && !fits {
                break;
            }
            reserved += reserve(next);
            admitted.push(next);
            queue.pop_front();
        }
        if admitted.is_empty() {
            let hidden = decode(model, &mut active);
            active = batch.advance(active, &hidden, prefix)?;
        } else {
            let (fresh, hidden) = admit(model, requests, &admitted, prefix);
            active.extend(batch.advance(fresh, &hidden, prefix)?);
        }
    }
    prefix.make_room(0);
    Ok(batch.done.into_iter().flatten().collect())
}

impl Generated {
    fn empty() -> Self {
        Self {
            tokens: Vec::new(),
            logprobs: Vec::new(),
            logprobs_t1: Vec::new(),
            finish: FinishReason::Length,
        }
    }
}

/// A sequence being generated.
struct Active {
    request: usize,
    cache: SequenceCache,
    stream: Stream,
    output: Generated,
    hidden: Vec<f32>,
    summaries: Vec<RowSummary>,
}

struct Batch<'a> {
    model: &'a Model,
    requests: &'a [GenerateRequest],
    vocab: usize,
    context: usize,
    on_token: &'a mut dyn FnMut(TokenEvent),
    done: Vec<Option<Generated>>,
}

impl Batch<'_> {
    /// Chooses the next token of every sequence (one hidden row each) and keeps the unfinished ones.
    fn advance(
        &mut self,
        mut sequences: Vec<Active>,
        hidden: &Matrix,
        prefix: &mut PrefixCache,
    ) -> Result<Vec<Active>, LmError> {
        let inner = self.model.inner();
        let logits = inner.logits(hidden, self.vocab);
        let requests = self.requests;
        let choices: Vec<Option<Choice>> = sequences
            .par_iter_mut()
            .enumerate()
            .map(|(row, active)| {
                let sampling = &requests[active.request].sampling;
                sampling::choose(inner.isa, logits.row(row), sampling, &mut active.stream)
            })
            .collect();
        let mut unfinished = Vec::with_capacity(sequences.len());
        for (row, (mut active, choice)) in sequences.drain(..).zip(choices).enumerate() {
            let index = active.request;
            let Some(choice) = choice else {
                return Err(LmError::NotFinite { index, position: active.cache.len() });
            };
            active.output.tokens.push(choice.token);
            active.output.logprobs.push(choice.log_probability);
            active.output.logprobs_t1.push(choice.log_probability_t1);
            active.hidden.extend_from_slice(hidden.row(row));
            active.summaries.push(choice.plain);
            (self.on_token)(TokenEvent {
                request: index,
                token: choice.token,
                logprob: choice.log_probability,
            });
            match self.finish(&active, choice.token) {
                None => unfinished.push(active),
                Some(finish) => {
                    let Active { cache, output, hidden, summaries, .. } = active;
                    let states = States { hidden, summaries, vocab: self.vocab };
                    prefix.keep_states(&requests[index].prompt, &output.tokens, states);
                    prefix.publish(&cache);
                    self.done[index] = Some(Generated { finish, ..output });
                }
            }
        }
        Ok(unfinished)
    }

    fn finish(&self, active: &Active, token: u32) -> Option<FinishReason> {
        let request = &self.requests[active.request];
        let generated = active.output.tokens.len();
        if request.stop.contains(&token) {
            Some(FinishReason::Stop)
        } else if generated >= request.max_new_tokens {
            Some(FinishReason::Length)
        } else if request.prompt.len() + generated >= self.context {
            Some(FinishReason::Context)
        } else {
            None
        }
    }
}

/// Runs the prompts of new sequences up to their last token.
fn admit(
    model: &Model,
    requests: &[GenerateRequest],
    admitted: &[usize],
    prefix: &mut PrefixCache,
) -> (Vec<Active>, Matrix) {
    let jobs: Vec<Job<'_>> = admitted
        .iter()
        .map(|&index| {
            let prompt = &requests[index].prompt;
            Job { tokens: prompt, wanted: prompt.len() - 1..prompt.len() }
        })
        .collect();
    let prefilled = prefill(model, prefix, &jobs);
    let hidden = Matrix::from_rows(
        model.config().hidden_size,
        prefilled.iter().map(|one| one.hidden.row(0)),
    );
    let active = admitted
        .iter()
        .zip(prefilled)
        .map(|(&request, one)| Active {
            request,
            cache: one.cache,
            stream: requests[request].key.open(),
            output: Generated::empty(),
            hidden: Vec::new(),
            summaries: Vec::new(),
        })
        .collect();
    (active, hidden)
}

/// Runs the last token of every sequence.
fn decode(model: &Model, active: &mut [Active]) -> Matrix {
    let mut segments: Vec<Segment<'_>> = active
        .iter_mut()
        .filter_map(|active| {
            let tokens = active.output.tokens.last().map(std::slice::from_ref)?;
            Some(Segment { cache: &mut active.cache, tokens, wanted: 0..1 })
        })
        .collect();
    model.inner().forward(&mut segments)
}

fn check(model: &Model, request: &GenerateRequest, context: usize) -> Result<(), String> {
    prefill::check_tokens(model, "prompt", &request.prompt)?;
    if request.prompt.is_empty() {
        return Err("the prompt is empty; give at least one token".to_owned());
    }
    if request.prompt.len() >= context {
        return Err(format!(
            "the prompt has {} tokens and leaves no room in a context of {context}; shorten it or raise the limit",
            request.prompt.len()
        ));
    }
    request.sampling.problem().map_or(Ok(()), Err)
}
