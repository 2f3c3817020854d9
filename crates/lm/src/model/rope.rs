//! Cosines and sines of the rotary embedding, made when first needed.

use std::sync::OnceLock;

use crate::config::ModelConfig;

/// Positions computed together.
const BLOCK: usize = 256;

/// The rotary table of a model.
#[derive(Debug)]
pub(crate) struct Rope {
    inverse: Vec<f32>,
    /// Each block: for every position the cosines, then the sines.
    blocks: Vec<OnceLock<Vec<f32>>>,
}

impl Rope {
    pub(crate) fn new(config: &ModelConfig) -> Self {
        let inverse = config.rope_inverse_frequencies().into_iter().map(|f| f as f32).collect();
        let blocks = config.max_position.div_ceil(BLOCK);
        Self { inverse, blocks: std::iter::repeat_with(OnceLock::new).take(blocks).collect() }
    }

    /// Cosines and sines of a position below the model's maximum.
    pub(crate) fn at(&self, position: usize) -> (&[f32], &[f32]) {
        let half = self.inverse.len();
        let block = self.blocks[position / BLOCK].get_or_init(|| self.block(position / BLOCK));
        block[position % BLOCK * 2 * half..][..2 * half].split_at(half)
    }

    fn block(&self, block: usize) -> Vec<f32> {
        let mut table = Vec::with_capacity(BLOCK * 2 * self.inverse.len());
        for position in block * BLOCK..(block + 1) * BLOCK {
            // The angle is rounded to f32, as the checkpoints' own code does; at far positions a more exact angle
            // would be another one.
            let angles = self.inverse.iter().map(|&f| f64::from(position as f32 * f));
            table.extend(angles.clone().map(|angle| angle.cos() as f32));
            table.extend(angles.map(|angle| angle.sin() as f32));
        }
        table
    }
}
