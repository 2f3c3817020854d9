//! Activations, kept from one pass to the next.

use std::sync::{Mutex, PoisonError};

use crate::config::ModelConfig;
use crate::kernels::matrix::Matrix;

/// Activations of one chunk of rows, reused by every block.
#[derive(Debug)]
pub(crate) struct Scratch {
    /// The residual stream.
    pub(crate) x: Matrix,
    pub(crate) normed: Matrix,
    pub(crate) qkv: Matrix,
    pub(crate) attended: Matrix,
    pub(crate) projected: Matrix,
    pub(crate) gate_up: Matrix,
    pub(crate) activated: Matrix,
}

impl Scratch {
    fn new(config: &ModelConfig) -> Self {
        let matrix = |cols| Matrix::zeros(0, cols);
        Self {
            x: matrix(config.hidden_size),
            normed: matrix(config.hidden_size),
            qkv: matrix(config.q_width() + 2 * config.kv_width()),
            attended: matrix(config.q_width()),
            projected: matrix(config.hidden_size),
            gate_up: matrix(2 * config.intermediate_size),
            activated: matrix(config.intermediate_size),
        }
    }

    /// Makes room for a chunk (see [`Matrix::set_rows`] for what becomes of the values).
    pub(crate) fn set_rows(&mut self, rows: usize) {
        let Self { x, normed, qkv, attended, projected, gate_up, activated } = self;
        for matrix in [x, normed, qkv, attended, projected, gate_up, activated] {
            matrix.set_rows(rows);
        }
    }

    /// Goes on with some rows (ascending) of the residual stream and the queries alone.
    pub(crate) fn keep_rows(&mut self, kept: &[usize]) {
        for matrix in [&mut self.x, &mut self.qkv] {
            let stride = matrix.stride();
            for (to, &from) in kept.iter().enumerate() {
                matrix.padded_mut().copy_within(from * stride..(from + 1) * stride, to * stride);
            }
        }
        self.set_rows(kept.len());
    }
}

/// The activations no thread is using.
#[derive(Debug, Default)]
pub(crate) struct ScratchPool(Mutex<Vec<Scratch>>);

impl ScratchPool {
    pub(crate) fn take(&self, config: &ModelConfig) -> Scratch {
        let free = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        free.unwrap_or_else(|| Scratch::new(config))
    }

    pub(crate) fn give_back(&self, scratch: Scratch) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(scratch);
    }
}
