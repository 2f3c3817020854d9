//! The weights a model computes with, as they are kept: f32 where they are trained, f32 or bf16 where they are frozen.

use std::collections::BTreeMap;
use std::ops::Range;

use half::bf16;
use rayon::prelude::*;

use super::TrainError;
use super::layout::{Entry, Layout};
use crate::kernels::train_matrix::{MatRef, Widen};

/// Fills a slice with a parameter's values from an index on.
pub(super) type ReadValues<'a> = dyn FnMut(usize, &mut [f32]) -> Result<(), TrainError> + 'a;

/// Values one task rounds.
const PIECE: usize = 1 << 16;
/// Values read at a time where they are rounded.
const READ: usize = 1 << 22;

/// Values of a matrix as they are kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Values<'a> {
    /// 32-bit floats.
    F32(&'a [f32]),
    /// The upper halves of 32-bit floats.
    Bf16(&'a [bf16]),
}

impl<'a> From<&'a [f32]> for Values<'a> {
    fn from(values: &'a [f32]) -> Self {
        Self::F32(values)
    }
}

impl<'a> From<&'a Vec<f32>> for Values<'a> {
    fn from(values: &'a Vec<f32>) -> Self {
        Self::F32(values)
    }
}

impl<'a> From<&'a [bf16]> for Values<'a> {
    fn from(values: &'a [bf16]) -> Self {
        Self::Bf16(values)
    }
}

impl<'a> Values<'a> {
    /// Number of values.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::Bf16(values) => values.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Some of the values.
    #[must_use]
    pub fn slice(self, range: Range<usize>) -> Self {
        match self {
            Self::F32(values) => Self::F32(&values[range]),
            Self::Bf16(values) => Self::Bf16(&values[range]),
        }
    }

    /// Fills `out` with the values from `first` on, widened to f32.
    pub fn read(self, first: usize, out: &mut [f32]) {
        match self {
            Self::F32(values) => out.copy_from_slice(&values[first..first + out.len()]),
            Self::Bf16(values) => {
                for (out, value) in out.iter_mut().zip(&values[first..]) {
                    *out = value.widen();
                }
            }
        }
    }

    /// A copy, widened to f32.
    pub fn to_vec(self) -> Vec<f32> {
        let mut values = vec![0.0; self.len()];
        self.read(0, &mut values);
        values
    }

    /// The values as f32 matrix rows, widened into `scratch` (as long as the rows) where they are kept otherwise.
    pub(super) fn rows<'s>(
        self,
        rows: Range<usize>,
        width: usize,
        scratch: &'s mut [f32],
    ) -> MatRef<'s>
    where
        'a: 's,
    {
        let count = rows.len();
        let part = self.slice(rows.start * width..rows.end * width);
        match part {
            Self::F32(values) => MatRef::new(values, count, width),
            Self::Bf16(_) => {
                part.read(0, scratch);
                MatRef::new(scratch, count, width)
            }
        }
    }

    /// Values of scratch that [`Self::rows`] needs for a part of `count` values.
    pub(super) fn scratch(&self, count: usize) -> usize {
        match self {
            Self::F32(_) => 0,
            Self::Bf16(_) => count,
        }
    }
}

/// [`Values`] with their memory.
#[derive(Debug, Clone, PartialEq)]
pub enum OwnedValues {
    /// 32-bit floats.
    F32(Vec<f32>),
    /// The upper halves of 32-bit floats.
    Bf16(Vec<bf16>),
}

impl OwnedValues {
    /// The values.
    pub fn view(&self) -> Values<'_> {
        match self {
            Self::F32(values) => Values::F32(values),
            Self::Bf16(values) => Values::Bf16(values),
        }
    }
}

/// The model's own weights in the layout's order.
#[derive(Debug)]
pub(super) enum Base {
    /// Trained, or frozen as they came.
    F32(Vec<f32>),
    /// Frozen, matrices rounded to bf16.
    Bf16(Rounded),
}

/// Matrices in bf16; norms and biases, which are few, as they came.
#[derive(Debug)]
pub(super) struct Rounded {
    matrices: Vec<bf16>,
    small: Vec<f32>,
    /// Where a tensor of one dimension lies in `small`, by its place in the layout.
    small_at: BTreeMap<usize, usize>,
}

impl Base {
    /// Room for every parameter, in f32 or with matrices in bf16.
    pub(super) fn new(layout: &Layout, rounded: bool) -> Self {
        if !rounded {
            return Self::F32(vec![0.0; layout.total]);
        }
        let mut small_at = BTreeMap::new();
        let mut small = 0;
        for entry in layout.entries.iter().filter(|entry| entry.shape.len() == 1) {
            small_at.insert(entry.range.start, small);
            small += entry.range.len();
        }
        let matrices = vec![bf16::ZERO; layout.total];
        Self::Bf16(Rounded { matrices, small: vec![0.0; small], small_at })
    }

    /// Takes over a parameter's values; `read` fills a slice with those from an index on. Rounded matrices are read in
    /// pieces, so that they are never there in f32.
    pub(super) fn fill(
        &mut self,
        entry: &Entry,
        read: &mut ReadValues<'_>,
    ) -> Result<(), TrainError> {
        let mut checked = |first: usize, values: &mut [f32]| {
            read(first, values)?;
            match values.par_iter().position_first(|value| !value.is_finite()) {
                None => Ok(()),
                Some(at) => {
                    let (name, index) = (entry.name.clone(), first + at);
                    Err(TrainError::NonFiniteParameter { name, index })
                }
            }
        };
        match self {
            Self::F32(flat) => checked(0, &mut flat[entry.range.clone()]),
            Self::Bf16(rounded) => {
                if let Some(&at) = rounded.small_at.get(&entry.range.start) {
                    return checked(0, &mut rounded.small[at..at + entry.range.len()]);
                }
                let matrix = &mut rounded.matrices[entry.range.clone()];
                let mut values = vec![0.0; READ.min(matrix.len())];
                for (piece, out) in matrix.chunks_mut(READ).enumerate() {
                    let values = &mut values[..out.len()];
                    checked(piece * READ, values)?;
                    round(values, out);
                }
                Ok(())
            }
        }
    }

    /// A matrix, or several side by side.
    pub(super) fn matrix(&self, range: &Range<usize>) -> Values<'_> {
        match self {
            Self::F32(flat) => Values::F32(&flat[range.clone()]),
            Self::Bf16(rounded) => Values::Bf16(&rounded.matrices[range.clone()]),
        }
    }

    /// A norm or a bias, or several biases side by side.
    pub(super) fn small(&self, range: &Range<usize>) -> &[f32] {
        match self {
            Self::F32(flat) => &flat[range.clone()],
            Self::Bf16(rounded) => {
                let at = rounded.small_at.get(&range.start).copied().unwrap_or(0);
                &rounded.small[at..at + range.len()]
            }
        }
    }

    /// A parameter of either kind.
    pub(super) fn values(&self, entry: &Entry) -> Values<'_> {
        if entry.shape.len() == 1 {
            Values::F32(self.small(&entry.range))
        } else {
            self.matrix(&entry.range)
        }
    }
}

/// Rounds to nearest even, on all threads.
fn round(values: &[f32], out: &mut [bf16]) {
    out.par_chunks_mut(PIECE).zip(values.par_chunks(PIECE)).for_each(|(out, values)| {
        for (out, &value) in out.iter_mut().zip(values) {
            *out = bf16::from_f32(value);
        }
    });
}
