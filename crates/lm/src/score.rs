//! Scoring: what a model thinks of responses that already exist.

use crate::cache::PrefixCache;
use crate::error::LmError;
use crate::kernels::matrix::Matrix;
use crate::model::Model;
use crate::prefill::{self, Job, prefill};
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
    /// One entry a response token.
    pub positions: Vec<ScoredPosition>,
    /// Last hidden states after the final norm, one row a response token (that of the position which predicts it).
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
        let hidden = response_states(model, prefix, &rows[batch.clone()]);
        let summaries = model.inner().summaries(&hidden, vocab, options.tau, options.top_k);
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

/// The states that predict each response token, all rows below one another.
pub(crate) fn response_states(
    model: &Model,
    prefix: &mut PrefixCache,
    rows: &[(&[u32], &[u32])],
) -> Matrix {
    let sequences: Vec<(Vec<u32>, usize)> = rows
        .iter()
        .map(|(prompt, response)| {
            // The last response token predicts nothing that is asked for.
            let fed = response.len().saturating_sub(1);
            ([prompt, &response[..fed]].concat(), prompt.len() - 1)
        })
        .collect();
    let jobs: Vec<Job<'_>> = sequences
        .iter()
        .zip(rows)
        .filter(|(_, (_, response))| !response.is_empty())
        .map(|((tokens, start), (_, response))| Job {
            tokens,
            wanted: *start..start + response.len(),
        })
        .collect();
    let prefilled = prefill(model, prefix, &jobs);
    let states: Vec<&[f32]> = prefilled
        .iter()
        .flat_map(|one| (0..one.hidden.rows()).map(|row| one.hidden.row(row)))
        .collect();
    let states = Matrix::from_rows(model.config().hidden_size, states.into_iter());
    drop(prefilled);
    prefix.make_room(0);
    states
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
            "{} lists of asked ids for {} response tokens; give one list a token or none at all",
            request.asked.len(),
            request.response.len()
        ));
    }
    match request.asked.iter().flatten().find(|&&id| id as usize >= vocab) {
        None => Ok(()),
        Some(id) => Err(format!("asked id {id} is not one of the {vocab} real tokens")),
    }
}
