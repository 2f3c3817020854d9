//! Rows laid end to end: which tokens run together, and which of them carry loss.

use std::ops::Range;

use super::row::TrainRow;

/// One row inside a micro-batch.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Span {
    /// The row's tokens among the micro-batch's tokens.
    pub(super) keys: Range<usize>,
    /// The row's loss positions among the micro-batch's loss positions.
    pub(super) queries: Range<usize>,
}

/// A position that carries loss: its hidden state predicts a response token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LossPosition {
    /// The row's index in the batch.
    pub(super) row: usize,
    /// Index of the predicted token in the response.
    pub(super) at: usize,
    /// The token's coefficient in the batch loss.
    pub(super) weight: f32,
}

/// Tokens that go through the model together.
#[derive(Debug, Clone, Default)]
pub(super) struct MicroBatch {
    /// All tokens, row after row.
    pub(super) tokens: Vec<u32>,
    /// Each token's position in its row.
    pub(super) positions: Vec<u32>,
    /// The rows.
    pub(super) spans: Vec<Span>,
    /// The loss positions, row after row.
    pub(super) losses: Vec<LossPosition>,
    /// Per loss position, the token index whose hidden state predicts.
    pub(super) loss_tokens: Vec<u32>,
    /// Per loss position, that token's position in its row.
    pub(super) loss_positions: Vec<u32>,
}

impl MicroBatch {
    /// Adds a row's tokens and the positions that predict the response tokens with `weight(at) != 0`. What comes
    /// after the last such position cannot reach the loss and is left out; a row without any adds nothing.
    pub(super) fn push(
        &mut self,
        row: usize,
        tokens: &[u32],
        response_start: usize,
        weight: impl Fn(usize) -> f32,
    ) {
        let (key_start, query_start) = (self.tokens.len(), self.losses.len());
        for at in 0..tokens.len() - response_start {
            let weight = weight(at);
            if weight != 0.0 {
                let position = response_start + at - 1;
                self.losses.push(LossPosition { row, at, weight });
                self.loss_tokens.push((key_start + position) as u32);
                self.loss_positions.push(position as u32);
            }
        }
        if self.losses.len() == query_start {
            return;
        }
        let length = self.loss_positions[self.losses.len() - 1] as usize + 1;
        self.tokens.extend_from_slice(&tokens[..length]);
        self.positions.extend(0..length as u32);
        self.spans.push(Span {
            keys: key_start..self.tokens.len(),
            queries: query_start..self.losses.len(),
        });
    }

    /// Tokens of the longest row.
    pub(super) fn longest(&self) -> usize {
        self.spans.iter().map(|span| span.keys.len()).max().unwrap_or(0)
    }

    /// The spans for a layer in which every token asks.
    pub(super) fn full_spans(&self) -> Vec<Span> {
        self.spans
            .iter()
            .map(|span| Span { keys: span.keys.clone(), queries: span.keys.clone() })
            .collect()
    }
}

/// Cuts a batch into micro-batches of at most `most` tokens (one row at least), in order.
pub(super) fn micro_batches(lengths: &[usize], most: usize) -> Vec<Range<usize>> {
    let mut groups = Vec::new();
    let (mut start, mut tokens) = (0, 0);
    for (row, &length) in lengths.iter().enumerate() {
        if row > start && tokens + length > most {
            groups.push(start..row);
            (start, tokens) = (row, 0);
        }
        tokens += length;
    }
    if start < lengths.len() {
        groups.push(start..lengths.len());
    }
    groups
}

/// Packs the training rows of one micro-batch.
pub(super) fn pack(rows: &[TrainRow], range: Range<usize>) -> MicroBatch {
    let mut packed = MicroBatch::default();
    for row in range {
        let data = &rows[row];
        packed.push(row, &data.tokens, data.response_start, |at| data.weights[at]);
    }
    packed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::RowLoss;

    #[test]
    fn packing_keeps_only_what_can_reach_the_loss() {
        let row = |tokens: &[u32], response_start, weights: &[f32]| TrainRow {
            tokens: tokens.to_vec(),
            response_start,
            weights: weights.to_vec(),
            loss: RowLoss::Nll,
        };
        let rows = [
            row(&[1, 2, 3, 4, 5], 2, &[1.0, 0.0, 2.0]),
            row(&[6, 7, 8], 1, &[0.0, 0.0]),
            row(&[9, 10, 11], 1, &[3.0, 0.0]),
        ];
        let packed = pack(&rows, 0..3);
        assert_eq!(packed.tokens, [1, 2, 3, 4, 9]);
        assert_eq!(packed.positions, [0, 1, 2, 3, 0]);
        assert_eq!(packed.loss_tokens, [1, 3, 4]);
        assert_eq!(packed.loss_positions, [1, 3, 0]);
        assert_eq!(
            packed.spans,
            [Span { keys: 0..4, queries: 0..2 }, Span { keys: 4..5, queries: 2..3 }]
        );
        let weights: Vec<f32> = packed.losses.iter().map(|loss| loss.weight).collect();
        assert_eq!(weights, [1.0, 2.0, 3.0]);
    }

    #[test]
    fn micro_batches_keep_the_order_and_the_limit() {
        assert_eq!(micro_batches(&[3, 3, 3, 9, 1], 6), [0..2, 2..3, 3..4, 4..5]);
        assert_eq!(micro_batches(&[], 6), Vec::<Range<usize>>::new());
    }
}
