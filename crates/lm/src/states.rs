//! What a model computed while it wrote its responses: last hidden states and softmaxes.
//!
//! Judging a response needs exactly these again, and no result depends on how it was batched (see [`crate::kernels`]), so
//! what writing left behind has the bits that judging would compute.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::model::RowSummary;

/// Response tokens whose states are kept at most: an explorer batch of a few hundred turns.
const MOST_TOKENS: usize = 1 << 15;
/// The share of a cache's budget that states may take.
const SHARE: usize = 16;

/// The states of one response, one entry per token: that of the position which predicts it.
#[derive(Debug)]
pub(crate) struct States {
    /// Hidden states after the final norm, row after row.
    pub(crate) hidden: Vec<f32>,
    /// Softmaxes at temperature 1.
    pub(crate) summaries: Vec<RowSummary>,
    /// How many ids the softmaxes run over.
    pub(crate) vocab: usize,
}

/// States of the latest responses, by prompt and response.
#[derive(Debug, Default)]
pub(crate) struct Written {
    responses: HashMap<Arc<[u32]>, Arc<States>>,
    /// The names in the order they came.
    order: VecDeque<Arc<[u32]>>,
    tokens: usize,
    bytes: usize,
}

impl Written {
    /// Keeps the states of a response and forgets the oldest beyond what `budget_bytes` of a cache allow.
    pub(crate) fn keep(
        &mut self,
        prompt: &[u32],
        response: &[u32],
        states: States,
        budget_bytes: usize,
    ) {
        let name = name(prompt, response);
        self.bytes += bytes(&name, &states);
        self.tokens += states.summaries.len();
        if let Some(old) = self.responses.insert(Arc::clone(&name), Arc::new(states)) {
            self.bytes -= bytes(&name, &old);
            self.tokens -= old.summaries.len();
        } else {
            self.order.push_back(name);
        }
        while self.tokens > MOST_TOKENS || self.bytes > budget_bytes / SHARE {
            let Some(oldest) = self.order.pop_front() else { break };
            if let Some(states) = self.responses.remove(&oldest) {
                self.bytes -= bytes(&oldest, &states);
                self.tokens -= states.summaries.len();
            }
        }
    }

    /// The states of a response that was written after exactly this prompt.
    pub(crate) fn find(&self, prompt: &[u32], response: &[u32]) -> Option<Arc<States>> {
        self.responses.get(&name(prompt, response)).map(Arc::clone)
    }

    /// Bytes kept.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// All tokens, and where the response begins.
fn name(prompt: &[u32], response: &[u32]) -> Arc<[u32]> {
    [prompt, response, &[prompt.len() as u32]].concat().into()
}

fn bytes(name: &[u32], states: &States) -> usize {
    size_of_val(name)
        + size_of_val(states.hidden.as_slice())
        + size_of_val(states.summaries.as_slice())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states(tokens: usize) -> States {
        let summary = RowSummary { top: 0, top_logit: 0.0, log_sum: 0.0 };
        States { hidden: vec![0.5; 4 * tokens], summaries: vec![summary; tokens], vocab: 8 }
    }

    #[test]
    fn a_response_is_found_after_its_own_prompt_only() {
        let mut written = Written::default();
        written.keep(&[1, 2], &[3, 4], states(2), 1 << 20);
        assert!(written.find(&[1, 2], &[3, 4]).is_some());
        assert!(written.find(&[1, 2, 3], &[4]).is_none(), "the same tokens, cut elsewhere");
        assert!(written.find(&[1, 2], &[3]).is_none());
        written.clear();
        assert!(written.find(&[1, 2], &[3, 4]).is_none());
        assert_eq!(written.bytes(), 0);
    }

    #[test]
    fn the_oldest_responses_make_room_and_bytes_add_up() {
        let mut written = Written::default();
        let one = bytes(&name(&[0], &[1]), &states(1));
        for prompt in 0..5 {
            written.keep(&[prompt], &[1], states(1), 3 * one * SHARE);
        }
        let found: Vec<bool> =
            (0..5).map(|prompt| written.find(&[prompt], &[1]).is_some()).collect();
        assert_eq!(found, [false, false, true, true, true]);
        assert_eq!(written.bytes(), 3 * one);
        written.keep(&[4], &[1], states(1), 3 * one * SHARE);
        assert_eq!(written.bytes(), 3 * one, "a response written twice counts once");
    }

    #[test]
    fn no_more_tokens_are_kept_than_an_explorer_batch_has() {
        let mut written = Written::default();
        written.keep(&[0], &[1], states(MOST_TOKENS), usize::MAX);
        written.keep(&[1], &[1], states(1), usize::MAX);
        assert!(written.find(&[0], &[1]).is_none());
        assert!(written.find(&[1], &[1]).is_some());
    }
}
