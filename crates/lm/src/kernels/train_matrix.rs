//! Views of row-major matrices that split into disjoint parts, and the matrix product over them.
//!
//! The training code is written against these views so that it needs no `unsafe` of its own: a view
//! is checked against its slice when it is made, and a mutable view can only be split, never copied.

use std::marker::PhantomData;
use std::ops::Range;

use rayon::prelude::*;

/// A read-only matrix: `rows x cols` values at `row * row_stride + col * col_stride`.
#[derive(Clone, Copy)]
pub(crate) struct MatRef<'a> {
    data: &'a [f32],
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
}

/// The index after the last one a strided matrix touches.
fn extent(rows: usize, cols: usize, row_stride: usize, col_stride: usize) -> usize {
    if rows == 0 || cols == 0 { 0 } else { (rows - 1) * row_stride + (cols - 1) * col_stride + 1 }
}

impl<'a> MatRef<'a> {
    /// A dense row-major matrix.
    pub(crate) fn new(data: &'a [f32], rows: usize, cols: usize) -> Self {
        Self::strided(data, rows, cols, cols)
    }

    /// A matrix whose rows are `row_stride` values apart.
    pub(crate) fn strided(data: &'a [f32], rows: usize, cols: usize, row_stride: usize) -> Self {
        assert!(extent(rows, cols, row_stride, 1) <= data.len(), "matrix exceeds its slice");
        Self { data, rows, cols, row_stride, col_stride: 1 }
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

    /// One row of a matrix whose columns are adjacent.
    pub(crate) fn row(self, row: usize) -> &'a [f32] {
        assert!(self.col_stride == 1 && row < self.rows, "row out of bounds");
        &self.data[row * self.row_stride..row * self.row_stride + self.cols]
    }
}

/// A mutable matrix with adjacent columns. Views made by splitting never overlap.
pub(crate) struct MatMut<'a> {
    data: *mut f32,
    rows: usize,
    cols: usize,
    row_stride: usize,
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
        assert!(extent(rows, cols, row_stride, 1) <= data.len(), "matrix exceeds its slice");
        assert!(rows <= 1 || cols <= row_stride, "rows overlap");
        Self { data: data.as_mut_ptr(), rows, cols, row_stride, owner: PhantomData }
    }

    /// Number of rows.
    pub(crate) fn row_count(&self) -> usize {
        self.rows
    }

    /// A shorter borrow of the same matrix.
    pub(crate) fn reborrow(&mut self) -> MatMut<'_> {
        MatMut { owner: PhantomData, ..*self }
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

    /// Blocks of at most `height` rows.
    pub(crate) fn row_blocks(self, height: usize) -> Vec<Self> {
        let mut blocks = Vec::new();
        let mut rest = self;
        while rest.rows > 0 {
            let at = rest.rows.min(height.max(1));
            let (block, tail) = rest.split_rows(at);
            blocks.push(block);
            rest = tail;
        }
        blocks
    }

    /// Bands of at most `width` columns.
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

/// `dst = a * b`, or `dst += a * b` when `accumulate`, on the calling thread.
pub(crate) fn gemm(dst: &mut MatMut<'_>, a: MatRef<'_>, b: MatRef<'_>, accumulate: bool) {
    assert_eq!(a.cols, b.rows, "inner sizes differ");
    assert_eq!((dst.rows, dst.cols), (a.rows, b.cols), "outer sizes differ");
    if dst.rows == 0 || dst.cols == 0 {
        return;
    }
    // SAFETY: the views were checked against their slices when made, `dst` is exclusive, and the sizes
    // agree, so every access of the product stays inside the three borrowed regions.
    unsafe {
        gemm::gemm(
            dst.rows,
            dst.cols,
            a.cols,
            dst.data,
            1,
            dst.row_stride as isize,
            accumulate,
            a.data.as_ptr(),
            a.col_stride as isize,
            a.row_stride as isize,
            b.data.as_ptr(),
            b.col_stride as isize,
            b.row_stride as isize,
            1.0,
            1.0,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

/// Height and width of the tiles a parallel product is cut into. They depend on nothing but the shape, so
/// the bits of the result do not depend on the number of threads.
const TILE_ROWS: usize = 512;
const TILE_COLS: usize = 512;

/// The product of [`gemm`], cut into fixed tiles that the thread pool shares.
pub(crate) fn par_gemm(dst: MatMut<'_>, a: MatRef<'_>, b: MatRef<'_>, accumulate: bool) {
    let mut tiles = Vec::new();
    gemm_tiles(dst, a, b, accumulate, &mut tiles);
    run_tiles(tiles);
}

/// One tile of a parallel product.
pub(crate) struct Tile<'a> {
    dst: MatMut<'a>,
    a: MatRef<'a>,
    b: MatRef<'a>,
    accumulate: bool,
}

/// Cuts a product into tiles and adds them to a list, so that several products can share the pool.
pub(crate) fn gemm_tiles<'a>(
    dst: MatMut<'a>,
    a: MatRef<'a>,
    b: MatRef<'a>,
    accumulate: bool,
    tiles: &mut Vec<Tile<'a>>,
) {
    assert_eq!((dst.rows, dst.cols), (a.rows, b.cols), "outer sizes differ");
    let (height, width) = (even(dst.rows, TILE_ROWS), even(dst.cols, TILE_COLS));
    for (i, block) in dst.row_blocks(height).into_iter().enumerate() {
        let rows = i * height..i * height + block.rows;
        for (j, dst) in block.col_bands(width).into_iter().enumerate() {
            let cols = j * width..j * width + dst.cols;
            tiles.push(Tile { dst, a: a.rows(rows.clone()), b: b.cols(cols), accumulate });
        }
    }
}

/// Runs the tiles on the thread pool.
pub(crate) fn run_tiles(tiles: Vec<Tile<'_>>) {
    tiles.into_par_iter().for_each(|mut tile| gemm(&mut tile.dst, tile.a, tile.b, tile.accumulate));
}

/// The size of equal parts of `length`, none above `most`, rounded up to whole vectors.
fn even(length: usize, most: usize) -> usize {
    let parts = length.div_ceil(most).max(1);
    length.div_ceil(parts).next_multiple_of(16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(count: usize, seed: u32) -> Vec<f32> {
        (0..count as u32)
            .map(|i| {
                let word = (i + seed).wrapping_mul(2_654_435_761) >> 8;
                word as f32 / 16_777_216.0 - 0.5
            })
            .collect()
    }

    #[test]
    fn products_equal_the_definition_for_every_transposition_and_split() {
        for (m, n, k) in [(1, 1, 1), (7, 5, 3), (33, 70, 17), (600, 530, 40)] {
            let (a, b) = (values(m * k, 1), values(k * n, 2));
            for (ta, tb) in [(false, false), (false, true), (true, false)] {
                let a_view = if ta { MatRef::new(&a, k, m).t() } else { MatRef::new(&a, m, k) };
                let b_view = if tb { MatRef::new(&b, n, k).t() } else { MatRef::new(&b, k, n) };
                let mut dst = vec![1.0; m * (n + 3)];
                par_gemm(MatMut::strided(&mut dst, m, n, n + 3), a_view, b_view, true);
                for (i, row) in dst.chunks(n + 3).enumerate() {
                    for (j, &got) in row[..n].iter().enumerate() {
                        let want: f64 = (0..k)
                            .map(|x| {
                                let left = if ta { a[x * m + i] } else { a[i * k + x] };
                                let right = if tb { b[j * k + x] } else { b[x * n + j] };
                                f64::from(left) * f64::from(right)
                            })
                            .sum();
                        assert!((f64::from(got) - 1.0 - want).abs() < 1e-4, "{m} {n} {k} {i} {j}");
                    }
                    assert_eq!(&row[n..], &[1.0; 3], "the gap between rows is left alone");
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "matrix exceeds its slice")]
    fn a_view_larger_than_its_slice_is_refused() {
        let _ = MatRef::new(&[0.0; 5], 2, 3);
    }
}
