//! Scoring: what a model thinks of responses that already exist.

use std::ops::Range;
use std::sync::Arc;

use crate::cache::PrefixCache;
use crate::error::LmError;
use crate::kernels::matrix::Matrix;
use crate::model::{Model, RowSummary, SummaryAndTop};
use crate::prefill::{self, Job, Prefilled, prefill};
use crate::states::States;
use crate::tensor::Tensor;

/// A response to score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScoreRequest<'a> {
    /// What came before; not scored itself.
    pub prompt: &'a [u32],
    /// The tokens to score.
    pub response: &'a [u32],
    /// More ids whose log-probabilities are wanted: one list for every response token, or none at all.
    pub asked: &'a [Vec<u32>],
}

/// Settings of a scoring call.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoreOptions {
    /// Logits are divided by this.
    pub tau: f32,
    /// The tokenizer's size: ids from here on are padding and cut before any softmax.
    pub real_vocab: Option<usize>,
    /// How many of the most likely tokens to report.
    pub top_k: usize,
    /// Whether to return last hidden states.
    pub hidden: bool,
    /// Memory for keys and values; longer batches run in parts.
    pub kv_budget_bytes: usize,
}

impl Default for ScoreOptions {
    fn default() -> Self {
        Self {
            tau: 1.0,
            real_vocab: None,
            top_k: 0,
            hidden: false,
            kv_budget_bytes: prefill::DEFAULT_KV_BUDGET,
        }
    }
}

/// What the model thinks of one response token.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoredPosition {
    /// Log-probability of the token that was realized.
    pub logprob: f32,
    /// The most likely token, the lowest id of equals.
    pub top1: u32,
    /// Its log-probability.
    pub top1_logprob: f32,
    /// Log-probabilities of the asked ids, in their order.
    pub asked: Vec<f32>,
    /// The most likely tokens and their log-probabilities, best first, the lowest id of equals first.
    pub top: Vec<(u32, f32)>,
}

/// A scored response.
#[derive(Debug, Clone, PartialEq)]
pub struct Scored {
    /// One entry per response token.
    pub positions: Vec<ScoredPosition>,
    /// Last hidden states after the final norm, one row per response token (that of the position which predicts it).
    pub hidden: Option<Tensor>,
}

/// Scores every response; the results are in the order of the requests.
pub fn score(
    model: &Model,
    requests: &[ScoreRequest<'_>],
    options: &ScoreOptions,
) -> Result<Vec<Scored>, LmError> {
    let mut prefix = PrefixCache::new(prefill::CALL_PREFIX_BYTES);
    score_with(model, requests, options, &mut prefix)
}

/// [`score`] with a prefix cache that outlives the call.
pub fn score_with(
    model: &Model,
    requests: &[ScoreRequest<'_>],
    options: &ScoreOptions,
    prefix: &mut PrefixCache,
) -> Result<Vec<Scored>, LmError> {
    let vocab = prefill::real_vocab(model, options.real_vocab)?;
    check_tau(options.tau)?;
    for (index, request) in requests.iter().enumerate() {
        check_row(model, vocab, request.prompt, request.response)
            .and_then(|()| check_asked(vocab, request))
            .map_err(|reason| LmError::Request { index, reason })?;
    }
    let mut scored = Vec::with_capacity(requests.len());
    let rows: Vec<_> = requests.iter().map(|request| (request.prompt, request.response)).collect();
    for batch in prefill::batches(
        rows.iter().map(|(prompt, response)| prompt.len() + response.len()),
        model.kv_bytes_per_token(),
        options.kv_budget_bytes.min(prefix.budget_bytes()),
    ) {
        let states = response_states(model, prefix, &rows[batch.clone()], vocab);
        let summaries = states.summaries(model, vocab, options.tau, options.top_k);
        let hidden = states.hidden;
        let mut row = 0;
        for index in batch {
            let request = &requests[index];
            let mut positions = Vec::with_capacity(request.response.len());
            for (position, &token) in request.response.iter().enumerate() {
                let Some((summary, top)) = &summaries[row + position] else {
                    let position = request.prompt.len() + position;
                    return Err(LmError::NotFinite { index, position });
                };
                let state = hidden.row(row + position);
                let logprob =
                    |id: u32| summary.log_probability(model.inner().logit(state, id) / options.tau);
                positions.push(ScoredPosition {
                    logprob: logprob(token),
                    top1: summary.top,
                    top1_logprob: summary.log_probability(summary.top_logit),
                    asked: request
                        .asked
                        .get(position)
                        .map(|ids| ids.iter().map(|&id| logprob(id)).collect())
                        .unwrap_or_default(),
                    top: top.iter().map(|&(z, id)| (id, summary.log_probability(z))).collect(),
                });
            }
            let states = options.hidden.then(|| Tensor {
                shape: vec![request.response.len(), hidden.cols()],
                data: (row..row + request.response.len())
                    .flat_map(|row| hidden.row(row).iter().copied())
                    .collect(),
            });
            row += request.response.len();
            scored.push(Scored { positions, hidden: states });
        }
    }
    Ok(scored)
}

/// The states that predict each response token, all rows below one another, and their softmaxes at temperature 1 where
/// writing the response left them behind.
pub(crate) struct ResponseStates {
    pub(crate) hidden: Matrix,
    known: Vec<Option<RowSummary>>,
}

/// Looks the states up, or runs the sequences.
pub(crate) fn response_states(
    model: &Model,
    prefix: &mut PrefixCache,
    rows: &[(&[u32], &[u32])],
    vocab: usize,
) -> ResponseStates {
    prefix.bind(model.inner().identity, &model.inner().pages);
    let kept: Vec<Option<Arc<States>>> = rows
        .iter()
        .map(|(prompt, response)| prefix.states(prompt, response))
        .map(|states| states.filter(|states| states.vocab == vocab))
        .collect();
    for ((prompt, response), _) in rows.iter().zip(&kept).filter(|(_, kept)| kept.is_some()) {
        prefix.note_reuse(prompt.len() + response.len());
    }
    let new: Vec<&(&[u32], &[u32])> =
        rows.iter().zip(&kept).filter_map(|(row, kept)| kept.is_none().then_some(row)).collect();
    let mut prefilled = run(model, prefix, &new).into_iter();
    let total = rows.iter().map(|(_, response)| response.len()).sum();
    let width = model.config().hidden_size;
    let mut states = ResponseStates { hidden: Matrix::zeros(total, width), known: Vec::new() };
    for ((_, response), kept) in rows.iter().zip(kept) {
        let first = states.known.len();
        if let Some(kept) = kept {
            for (row, values) in kept.hidden.chunks_exact(width).enumerate() {
                states.hidden.row_mut(first + row).copy_from_slice(values);
            }
            states.known.extend(kept.summaries.iter().copied().map(Some));
        } else if !response.is_empty()
            && let Some(one) = prefilled.next()
        {
            for row in 0..one.hidden.rows() {
                states.hidden.row_mut(first + row).copy_from_slice(one.hidden.row(row));
            }
            states.known.resize(first + response.len(), None);
        }
    }
    drop(prefilled);
    prefix.make_room(0);
    states
}

/// Runs prompts and responses; rows without a response are left out.
fn run(model: &Model, prefix: &mut PrefixCache, rows: &[&(&[u32], &[u32])]) -> Vec<Prefilled> {
    let sequences: Vec<(Vec<u32>, Range<usize>)> = rows
        .iter()
        .filter(|(_, response)| !response.is_empty())
        .map(|(prompt, response)| {
            // The last response token predicts nothing that is asked for.
            let fed = response.len() - 1;
            let start = prompt.len() - 1;
            ([prompt, &response[..fed]].concat(), start..start + response.len())
        })
        .collect();
    let jobs: Vec<Job<'_>> =
        sequences.iter().map(|(tokens, wanted)| Job { tokens, wanted: wanted.clone() }).collect();
    prefill(model, prefix, &jobs)
}

impl ResponseStates {
    /// Every state's softmax and its `top_k` most likely tokens; `None` where a logit is not finite.
    pub(crate) fn summaries(
        &self,
        model: &Model,
        vocab: usize,
        tau: f32,
        top_k: usize,
    ) -> Vec<Option<SummaryAndTop>> {
        let usable = tau == 1.0 && top_k == 0;
        let known = |row: usize| self.known[row].filter(|_| usable);
        let new: Vec<usize> = (0..self.hidden.rows()).filter(|&row| known(row).is_none()).collect();
        if new.len() == self.hidden.rows() {
            return model.inner().summaries(&self.hidden, vocab, tau, top_k);
        }
        let rows: Vec<&[f32]> = new.iter().map(|&row| self.hidden.row(row)).collect();
        let rows = Matrix::from_rows(self.hidden.cols(), rows.into_iter());
        let mut computed = model.inner().summaries(&rows, vocab, tau, top_k).into_iter();
        (0..self.hidden.rows())
            .map(|row| match known(row) {
                Some(summary) => Some((summary, Vec::new())),
                None => computed.next().flatten(),
            })
            .collect()
    }
}

pub(crate) fn check_tau(tau: f32) -> Result<(), LmError> {
    if tau.is_finite() && tau > 0.0 {
        return Ok(());
    }
    Err(LmError::Setting(format!("tau {tau} is not a number above 0")))
}

pub(crate) fn check_row(
    model: &Model,
    vocab: usize,
    prompt: &[u32],
    response: &[u32],
) -> Result<(), String> {
    if prompt.is_empty() {
        return Err(
            "the prompt is empty; the first response token needs something before it".to_owned()
        );
    }
    prefill::check_tokens(model, "prompt", prompt)?;
    if let Some(at) = response.iter().position(|&token| token as usize >= vocab) {
        return Err(format!(
            "token {at} of the response is {}, but there are {vocab} real tokens",
            response[at]
        ));
    }
    let (length, limit) = (prompt.len() + response.len(), model.config().max_position);
    if length > limit {
        return Err(format!(
            "prompt and response have {length} tokens together, more than the model's context of {limit}"
        ));
    }
    Ok(())
}

fn check_asked(vocab: usize, request: &ScoreRequest<'_>) -> Result<(), String> {
    if !request.asked.is_empty() && request.asked.len() != request.response.len() {
        return Err(format!(
            "{} lists of asked ids for {} response tokens; give one list per token or none at all",
            request.asked.len(),
            request.response.len()
        ));
    }
    match request.asked.iter().flatten().find(|&&id| id as usize >= vocab) {
        None => Ok(()),
        Some(id) => Err(format!("asked id {id} is not one of the {vocab} real tokens")),
    }
}
