//! Views of row-major matrices that split into disjoint parts.
//!
//! The training code is written against these views so that it needs no `unsafe` of its own: a view
//! is checked against its slice when it is made, and a mutable view can only be split, never copied.

use std::marker::PhantomData;
use std::ops::Range;

use half::bf16;

/// A stored value that products read as f32.
pub(crate) trait Widen: Copy + Send + Sync {
    /// The value itself, exactly.
    fn widen(self) -> f32;
}

impl Widen for f32 {
    fn widen(self) -> f32 {
        self
    }
}

impl Widen for bf16 {
    fn widen(self) -> f32 {
        // The stored half is the upper half of the f32.
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
}

/// A read-only matrix: `rows x cols` values at `row * row_stride + col * col_stride`.
#[derive(Clone, Copy)]
pub(crate) struct MatRef<'a, T = f32> {
    pub(super) data: &'a [T],
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) row_stride: usize,
    pub(super) col_stride: usize,
}

/// The index after the last one a strided matrix touches.
fn extent(rows: usize, cols: usize, row_stride: usize) -> usize {
    if rows == 0 || cols == 0 { 0 } else { (rows - 1) * row_stride + cols }
}

impl<'a, T: Copy> MatRef<'a, T> {
    /// A dense row-major matrix.
    pub(crate) fn new(data: &'a [T], rows: usize, cols: usize) -> Self {
        assert!(extent(rows, cols, cols) <= data.len(), "matrix exceeds its slice");
        Self { data, rows, cols, row_stride: cols, col_stride: 1 }
    }

    /// Rows and columns.
    pub(crate) fn shape(&self) -> (usize, usize) {
        (self.rows, self.cols)
    }

    /// The transposed matrix.
    pub(crate) fn t(self) -> Self {
        Self {
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
            ..self
        }
    }

    /// Some of the rows.
    pub(crate) fn rows(self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.rows, "row range out of bounds");
        let start = (range.start * self.row_stride).min(self.data.len());
        Self { data: &self.data[start..], rows: range.len(), ..self }
    }

    /// Some of the columns.
    pub(crate) fn cols(self, range: Range<usize>) -> Self {
        self.t().rows(range).t()
    }
}

/// A mutable matrix with adjacent columns. Views made by splitting never overlap.
pub(crate) struct MatMut<'a> {
    pub(super) data: *mut f32,
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) row_stride: usize,
    owner: PhantomData<&'a mut [f32]>,
}

// SAFETY: a `MatMut` is an exclusive borrow of the values it covers, as `&mut [f32]` is; f32 is Send.
unsafe impl Send for MatMut<'_> {}

impl<'a> MatMut<'a> {
    /// A dense row-major matrix.
    pub(crate) fn new(data: &'a mut [f32], rows: usize, cols: usize) -> Self {
        Self::strided(data, rows, cols, cols)
    }

    /// A matrix whose rows are `row_stride` values apart.
    pub(crate) fn strided(
        data: &'a mut [f32],
        rows: usize,
        cols: usize,
        row_stride: usize,
    ) -> Self {
        assert!(extent(rows, cols, row_stride) <= data.len(), "matrix exceeds its slice");
        assert!(rows <= 1 || cols <= row_stride, "rows overlap");
        Self { data: data.as_mut_ptr(), rows, cols, row_stride, owner: PhantomData }
    }

    /// One row.
    pub(crate) fn row(&mut self, row: usize) -> &mut [f32] {
        assert!(row < self.rows, "row out of bounds");
        // SAFETY: the constructor checked that every row lies inside the borrowed slice, splitting only
        // narrows the view, and `&mut self` makes the borrow of the row exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(row * self.row_stride), self.cols) }
    }

    /// The first `at` rows and the rest.
    pub(crate) fn split_rows(self, at: usize) -> (Self, Self) {
        assert!(at <= self.rows, "split out of bounds");
        // Wrapping arithmetic: an empty second half may point past the slice and is never read.
        let second = self.data.wrapping_add(at * self.row_stride);
        (Self { rows: at, ..self }, Self { data: second, rows: self.rows - at, ..self })
    }

    /// The first `at` columns and the rest.
    pub(crate) fn split_cols(self, at: usize) -> (Self, Self) {
        assert!(at <= self.cols, "split out of bounds");
        let second = self.data.wrapping_add(at);
        (Self { cols: at, ..self }, Self { data: second, cols: self.cols - at, ..self })
    }

    /// Bands of `width` columns.
    pub(crate) fn col_bands(self, width: usize) -> Vec<Self> {
        let mut bands = Vec::new();
        let mut rest = self;
        while rest.cols > 0 {
            let at = rest.cols.min(width.max(1));
            let (band, tail) = rest.split_cols(at);
            bands.push(band);
            rest = tail;
        }
        bands
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_views_cover_their_own_parts() {
        let mut data: Vec<f32> = (0..24).map(|x| x as f32).collect();
        let (mut top, bottom) = MatMut::new(&mut data, 4, 6).split_rows(1);
        let mut bands = bottom.col_bands(4);
        top.row(0).fill(-1.0);
        bands[0].row(2).fill(-2.0);
        bands[1].row(0).fill(-3.0);
        assert_eq!(data[..6], [-1.0; 6]);
        assert_eq!(data[10..12], [-3.0; 2]);
        assert_eq!(data[18..22], [-2.0; 4]);
        let untouched = data.iter().filter(|&&x| x >= 0.0).count();
        assert_eq!(untouched, 24 - 6 - 2 - 4);
    }

    #[test]
    #[should_panic(expected = "matrix exceeds its slice")]
    fn a_view_larger_than_its_slice_is_refused() {
        let _ = MatRef::new(&[0.0; 5], 2, 3);
    }
}
