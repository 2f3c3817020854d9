//! Runs the beginnings of many sequences, each common beginning once.

use std::collections::HashSet;
use std::ops::Range;

use crate::cache::{PrefixCache, SequenceCache};
use crate::error::LmError;
use crate::kernels::attention::PAGE;
use crate::kernels::matrix::Matrix;
use crate::model::{Model, Segment};

/// A sequence to run, and the positions whose last hidden states are wanted.
pub(crate) struct Job<'a> {
    pub(crate) tokens: &'a [u32],
    pub(crate) wanted: Range<usize>,
}

/// A sequence that was run.
pub(crate) struct Prefilled {
    pub(crate) cache: SequenceCache,
    /// One row per wanted position.
    pub(crate) hidden: Matrix,
}

/// Runs all jobs. Jobs that begin alike wait until the first of them has run and then take over its pages.
pub(crate) fn prefill(model: &Model, prefix: &mut PrefixCache, jobs: &[Job<'_>]) -> Vec<Prefilled> {
    let inner = model.inner();
    let page_bytes = inner.cache_shape().page_bytes();
    prefix.bind(inner.identity, &inner.pages);
    let mut done: Vec<Option<Prefilled>> = Vec::new();
    done.resize_with(jobs.len(), || None);
    let mut waiting: Vec<usize> = (0..jobs.len()).collect();
    while !waiting.is_empty() {
        let mut claimed = HashSet::new();
        let mut wave: Vec<(usize, SequenceCache)> = Vec::new();
        waiting.retain(|&index| {
            let job = &jobs[index];
            let (cache, next) = prefix.longest(&inner.pages, job.tokens, job.wanted.start);
            if next.is_some_and(|key| !claimed.insert(key)) {
                return true;
            }
            wave.push((index, cache));
            false
        });
        let pages = |(index, cache): &(usize, SequenceCache)| {
            (jobs[*index].tokens.len() - cache.len()).div_ceil(PAGE)
        };
        prefix.make_room(wave.iter().map(pages).sum::<usize>() * page_bytes);
        let mut segments: Vec<Segment<'_>> = wave
            .iter_mut()
            .map(|(index, cache)| {
                let job = &jobs[*index];
                let known = cache.len();
                prefix.note_reuse(known);
                let wanted = job.wanted.start - known..job.wanted.end - known;
                Segment { cache, tokens: &job.tokens[known..], wanted }
            })
            .collect();
        let hidden = inner.forward(&mut segments);
        let mut row = 0;
        for (index, cache) in wave {
            let rows = row..row + jobs[index].wanted.len();
            row = rows.end;
            prefix.publish(&cache);
            let rows: Vec<&[f32]> = rows.map(|row| hidden.row(row)).collect();
            let hidden = Matrix::from_rows(hidden.cols(), rows.into_iter());
            done[index] = Some(Prefilled { cache, hidden });
        }
    }
    done.into_iter().flatten().collect()
}

/// Memory for the keys and values of sequences in flight unless told otherwise.
pub(crate) const DEFAULT_KV_BUDGET: usize = 4 << 30;
/// Budget of the prefix cache that lives for one call.
pub(crate) const CALL_PREFIX_BYTES: usize = 1 << 30;
/// Tokens of the sequences that are scored together: enough to fill every thread with large products, and no more memory
/// than that takes.
pub(crate) const SCORED_TOGETHER: usize = 8192;

/// Cuts sequences into consecutive batches to score: their keys and values fit into `budget_bytes`, and none is larger
/// than pays ([`SCORED_TOGETHER`] tokens). Each has at least one.
pub(crate) fn batches(
    lengths: impl Iterator<Item = usize>,
    bytes_per_token: usize,
    budget_bytes: usize,
) -> Vec<Range<usize>> {
    let most = SCORED_TOGETHER.min(budget_bytes / bytes_per_token.max(1));
    let mut batches: Vec<Range<usize>> = Vec::new();
    let mut used = 0;
    for (index, length) in lengths.enumerate() {
        match batches.last_mut() {
            Some(batch) if used + length <= most => {
                batch.end = index + 1;
                used += length;
            }
            _ => {
                batches.push(index..index + 1);
                used = length;
            }
        }
    }
    batches
}

/// How many ids take part in the softmax.
pub(crate) fn real_vocab(model: &Model, real_vocab: Option<usize>) -> Result<usize, LmError> {
    let padded = model.config().vocab_size;
    match real_vocab {
        None => Ok(padded),
        Some(real) if (1..=padded).contains(&real) => Ok(real),
        Some(real) => Err(LmError::Setting(format!(
            "{real} real tokens do not fit a model with {padded} rows of embedding; tokenizer and model do not belong together"
        ))),
    }
}

/// Whether the model has an embedding for every token.
pub(crate) fn check_tokens(model: &Model, what: &str, tokens: &[u32]) -> Result<(), String> {
    let vocab = model.config().vocab_size;
    match tokens.iter().position(|&token| token as usize >= vocab) {
        None => Ok(()),
        Some(at) => Err(format!(
            "token {at} of the {what} is {}, but the model has {vocab} tokens",
            tokens[at]
        )),
    }
}
