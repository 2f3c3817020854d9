//! Activations: row-major matrices whose rows are padded.

use super::aligned::AlignedBuf;

/// Columns are padded to a multiple of this, so kernels may always write whole panels.
pub const PANEL: usize = 16;

/// A row-major matrix of activations. The distance between rows is never a power of two: rows of
/// 4,096 bytes would all fall into the same few cache sets.
#[derive(Debug, Clone)]
pub struct Matrix {
    data: AlignedBuf<f32>,
    rows: usize,
    cols: usize,
    stride: usize,
}

impl Matrix {
    /// A matrix of zeros.
    pub fn zeros(rows: usize, cols: usize) -> Self {
        let padded = cols.next_multiple_of(PANEL);
        let stride = if (padded / PANEL).is_multiple_of(2) { padded + PANEL } else { padded };
        Self { data: AlignedBuf::zeroed(rows * stride), rows, cols, stride }
    }

    /// A matrix with the given rows.
    pub fn from_rows<'a>(cols: usize, rows: impl ExactSizeIterator<Item = &'a [f32]>) -> Self {
        let mut matrix = Self::zeros(rows.len(), cols);
        for (index, row) in rows.enumerate() {
            matrix.row_mut(index).copy_from_slice(row);
        }
        matrix
    }

    /// Changes the number of rows. Fewer rows keep their values, more leave all values unspecified; memory is taken only
    /// when there are more rows than ever before.
    pub fn set_rows(&mut self, rows: usize) {
        if rows * self.stride > self.data.len() {
            self.data = AlignedBuf::zeroed(rows * self.stride);
        }
        self.rows = rows;
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns, padding excluded.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Distance between rows.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// One row.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.data[row * self.stride..][..self.cols]
    }

    /// One row.
    pub fn row_mut(&mut self, row: usize) -> &mut [f32] {
        &mut self.data[row * self.stride..][..self.cols]
    }

    /// All rows, padding included.
    pub fn padded(&self) -> &[f32] {
        &self.data[..self.rows * self.stride]
    }

    /// All rows, padding included.
    pub fn padded_mut(&mut self) -> &mut [f32] {
        &mut self.data[..self.rows * self.stride]
    }
}
