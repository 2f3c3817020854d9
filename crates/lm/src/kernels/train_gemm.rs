//! The matrix product of training.
//!
//! `dst = a * b` with `b` packed once into panels of 16 columns and used for many `a`: weights are packed once per
//! layer, keys once per row and head. The result is defined, not only bounded: every value is the sum of
//! blocks of `DEPTH` products, each block a chain of fused multiply-adds from zero in the order of the inner
//! index. No cut by rows, columns or threads can change a bit, and neither can the instruction set.

use std::cell::RefCell;
use std::ops::Range;

use rayon::prelude::*;

use super::dispatch::Isa;
use super::train_matrix::{MatMut, MatRef, Widen};
use super::train_tile::{Left, PANEL, run_block, strip_rows};

/// Inner indices per block: a block of a panel stays in the first-level cache.
const DEPTH: usize = 384;
/// Rows whose blocks of `a` stay in the second-level cache.
const ROWS: usize = 192;
/// From this many columns on, copying the rows of `a` into strips pays.
const PACK_COLS: usize = 1024;
/// Rows of a weight's gradient that one task computes.
const BAND: usize = 96;

thread_local! {
    static STRIPS: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// The right factor: `depth x cols`, stored as panels of 16 columns, each panel row by row, padded with zeros.
#[derive(Clone, Copy)]
pub(crate) struct Panels<'a> {
    data: &'a [f32],
    /// Rows stored per panel; `depth` of them take part.
    stored: usize,
    depth: usize,
    pub(super) cols: usize,
}

/// Values that the panels of a `depth x cols` factor take.
pub(crate) fn panels_len(depth: usize, cols: usize) -> usize {
    depth * cols.next_multiple_of(PANEL)
}

impl<'a> Panels<'a> {
    /// Packs `b` into the front of `buffer`.
    pub(crate) fn pack(buffer: &'a mut [f32], b: MatRef<'_>) -> Self {
        let data = &mut buffer[..panels_len(b.rows, b.cols)];
        for (panel, out) in data.chunks_exact_mut((b.rows * PANEL).max(1)).enumerate() {
            pack_panel(out, b, panel * PANEL);
        }
        Self { data, stored: b.rows, depth: b.rows, cols: b.cols }
    }

    /// [`Self::pack`] by all threads.
    pub(crate) fn par_pack<T: Widen>(buffer: &'a mut [f32], b: MatRef<'_, T>) -> Self {
        Self::par_pack_sum(buffer, b, &[])
    }

    /// [`Self::par_pack`] of `b` plus products of low rank, each value rounded once after its sum.
    pub(crate) fn par_pack_sum<T: Widen>(
        buffer: &'a mut [f32],
        b: MatRef<'_, T>,
        added: &[LowRank<'_>],
    ) -> Self {
        let data = &mut buffer[..panels_len(b.rows, b.cols)];
        data.par_chunks_exact_mut((b.rows * PANEL).max(1)).enumerate().with_min_len(4).for_each(
            |(panel, out)| {
                pack_panel(out, b, panel * PANEL);
                for part in added {
                    part.add_to_panel(out, panel * PANEL);
                }
            },
        );
        Self { data, stored: b.rows, depth: b.rows, cols: b.cols }
    }

    /// Rows and columns.
    pub(crate) fn shape(&self) -> (usize, usize) {
        (self.depth, self.cols)
    }

    /// The first rows of the factor.
    pub(crate) fn first_rows(self, depth: usize) -> Self {
        assert!(depth <= self.depth, "more rows than packed");
        Self { depth, ..self }
    }

    /// The first columns of the factor.
    pub(crate) fn first_cols(self, cols: usize) -> Self {
        assert!(cols <= self.cols, "more columns than packed");
        Self { cols, ..self }
    }

    /// Rows `depth` of the panel that starts at column `16 * panel`.
    pub(super) fn block(&self, panel: usize, depth: Range<usize>) -> &'a [f32] {
        let start = panel * self.stored * PANEL;
        &self.data[start + depth.start * PANEL..start + depth.end * PANEL]
    }
}

/// The product `left * right` of low rank, which is added to the block of a matrix that begins at (`row`, `col`).
#[derive(Clone, Copy)]
pub(crate) struct LowRank<'a> {
    /// Rows of the block x rank.
    pub(crate) left: MatRef<'a>,
    /// Rank x columns of the block.
    pub(crate) right: MatRef<'a>,
    /// The block's first row.
    pub(crate) row: usize,
    /// The block's first column.
    pub(crate) col: usize,
}

impl LowRank<'_> {
    /// The product that is added to the transposed matrix: the same bits, because a multiply-add takes its factors in
    /// either order.
    pub(crate) fn t(self) -> Self {
        Self { left: self.right.t(), right: self.left.t(), row: self.col, col: self.row }
    }

    /// Adds the columns that lie in the panel from column `first` on.
    fn add_to_panel(&self, panel: &mut [f32], first: usize) {
        let start = self.col.max(first);
        let end = (self.col + self.right.cols).min(first + PANEL);
        if start >= end {
            return;
        }
        let right = self.right.cols(start - self.col..end - self.col);
        let mut buffer = vec![0.0; panels_len(right.rows, right.cols)];
        let right = Panels::pack(&mut buffer, right);
        let block = &mut panel[self.row * PANEL + start - first..];
        let block = &mut MatMut::strided(block, self.left.rows, end - start, PANEL);
        multiply(block, self.left, right, true);
    }

    /// Adds the product to dense rows that hold the block from its row `first` on.
    pub(crate) fn add_to_rows(&self, rows: &mut [f32], first: usize) {
        let width = self.right.cols;
        let mut buffer = vec![0.0; panels_len(self.right.rows, width)];
        let right = Panels::pack(&mut buffer, self.right);
        let left = self.left.rows(first..first + rows.len() / width);
        multiply(&mut MatMut::new(rows, left.rows, width), left, right, true);
    }
}

/// Copies up to 16 columns of `b` from `first` on.
fn pack_panel<T: Widen>(out: &mut [f32], b: MatRef<'_, T>, first: usize) {
    let width = PANEL.min(b.cols - first);
    let (rows, _) = out.as_chunks_mut::<PANEL>();
    if width < PANEL {
        out_of_line_panel(rows, b, first, width);
    } else if b.col_stride == 1 {
        for (row, out) in rows.iter_mut().enumerate() {
            let start = row * b.row_stride + first;
            for (out, value) in out.iter_mut().zip(&b.data[start..start + PANEL]) {
                *out = value.widen();
            }
        }
    } else if b.row_stride == 1 {
        // Columns of `b` are contiguous: read eight values of each at a time and transpose them in registers.
        let columns: [&[T]; PANEL] = std::array::from_fn(|column| {
            let start = (first + column) * b.col_stride;
            &b.data[start..start + b.rows]
        });
        transpose(rows, columns);
    } else {
        out_of_line_panel(rows, b, first, width);
    }
}

fn transpose<T: Widen>(rows: &mut [[f32; PANEL]], columns: [&[T]; PANEL]) {
    const STEP: usize = 8;
    let (blocks, rest) = rows.as_chunks_mut::<STEP>();
    let done = blocks.len() * STEP;
    for (block, rows) in blocks.iter_mut().enumerate() {
        for (column, values) in columns.iter().enumerate() {
            let values = &values[block * STEP..(block + 1) * STEP];
            for (row, &value) in rows.iter_mut().zip(values) {
                row[column] = value.widen();
            }
        }
    }
    for (at, row) in rest.iter_mut().enumerate() {
        for (value, column) in row.iter_mut().zip(&columns) {
            *value = column[done + at].widen();
        }
    }
}

fn out_of_line_panel<T: Widen>(
    rows: &mut [[f32; PANEL]],
    b: MatRef<'_, T>,
    first: usize,
    width: usize,
) {
    for (row, out) in rows.iter_mut().enumerate() {
        out.fill(0.0);
        for (column, value) in out[..width].iter_mut().enumerate() {
            *value = b.data[row * b.row_stride + (first + column) * b.col_stride].widen();
        }
    }
}

/// `dst = a * b`, or `dst += a * b` when `accumulate`, on the calling thread.
pub(crate) fn multiply(dst: &mut MatMut<'_>, a: MatRef<'_>, b: Panels<'_>, accumulate: bool) {
    multiply_with(Isa::active(), dst, a, b, accumulate);
}

/// [`multiply`] with an instruction set of the caller's choice.
fn multiply_with(isa: Isa, dst: &mut MatMut<'_>, a: MatRef<'_>, b: Panels<'_>, accumulate: bool) {
    assert_eq!(a.cols, b.depth, "inner sizes differ");
    assert_eq!((dst.rows, dst.cols), (a.rows, b.cols), "outer sizes differ");
    if b.depth == 0 && !accumulate {
        for row in 0..dst.rows {
            dst.row(row).fill(0.0);
        }
    }
    let direct = a.col_stride == 1 && dst.cols < PACK_COLS;
    let height = strip_rows(isa);
    let mut strips = STRIPS.take();
    for rows in parts(dst.rows, ROWS) {
        for depth in parts(b.depth, DEPTH) {
            let left = if direct {
                let start = rows.start * a.row_stride + depth.start;
                Left {
                    data: &a.data[start..],
                    strip: height * a.row_stride,
                    row: a.row_stride,
                    depth: 1,
                }
            } else {
                match height {
                    12 => pack_strips::<12>(&mut strips, a, &rows, &depth),
                    6 => pack_strips::<6>(&mut strips, a, &rows, &depth),
                    _ => pack_strips::<4>(&mut strips, a, &rows, &depth),
                }
                Left { data: &strips, strip: height * depth.len(), row: 1, depth: height }
            };
            let add = accumulate || depth.start > 0;
            run_block(isa, dst, rows.clone(), &left, b, depth, add);
        }
    }
    STRIPS.set(strips);
}

/// Equal parts of `0..length`, none longer than `most`.
fn parts(length: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    let count = length.div_ceil(most);
    let size = if count == 0 { 0 } else { length.div_ceil(count) };
    (0..count).map(move |part| part * size..((part + 1) * size).min(length))
}

/// Copies a block of `a` into strips of rows, each strip by inner index.
fn pack_strips<const STRIP: usize>(
    strips: &mut Vec<f32>,
    a: MatRef<'_>,
    rows: &Range<usize>,
    depth: &Range<usize>,
) {
    let needed = rows.len().next_multiple_of(STRIP) * depth.len();
    if strips.len() < needed {
        strips.resize(needed, 0.0);
    }
    for (strip, out) in strips[..needed].chunks_exact_mut(STRIP * depth.len()).enumerate() {
        let first = rows.start + strip * STRIP;
        let height = STRIP.min(rows.end - first);
        let (out, _) = out.as_chunks_mut::<STRIP>();
        if height == STRIP && a.row_stride == 1 {
            for (at, out) in out.iter_mut().enumerate() {
                let start = first + (depth.start + at) * a.col_stride;
                out.copy_from_slice(&a.data[start..start + STRIP]);
            }
        } else if height == STRIP && a.col_stride == 1 {
            let lines: [&[f32]; STRIP] = std::array::from_fn(|row| {
                let start = (first + row) * a.row_stride + depth.start;
                &a.data[start..start + depth.len()]
            });
            for (at, out) in out.iter_mut().enumerate() {
                *out = std::array::from_fn(|row| lines[row][at]);
            }
        } else {
            for (at, out) in out.iter_mut().enumerate() {
                for (row, value) in out[..height].iter_mut().enumerate() {
                    *value =
                        a.data[(first + row) * a.row_stride + (depth.start + at) * a.col_stride];
                }
            }
        }
    }
}

/// The right factor of a weight's gradient, tokens x width, packed in parts of at most `DEPTH` tokens.
#[derive(Clone, Copy)]
pub(crate) struct TokenPanels<'a> {
    data: &'a [f32],
    tokens: usize,
    cols: usize,
}

impl<'a> TokenPanels<'a> {
    /// Packs `b` into the front of `buffer`, which holds [`panels_len`] values, by all threads.
    pub(crate) fn par_pack(buffer: &'a mut [f32], b: MatRef<'_>) -> Self {
        let data = &mut buffer[..panels_len(b.rows, b.cols)];
        let mut rest = &mut *data;
        let mut work = Vec::new();
        for tokens in parts(b.rows, DEPTH) {
            let (part, tail) = rest.split_at_mut(panels_len(tokens.len(), b.cols));
            rest = tail;
            let b = b.rows(tokens);
            work.extend(part.chunks_exact_mut(b.rows * PANEL).enumerate().map(|work| (b, work)));
        }
        work.into_par_iter()
            .with_min_len(4)
            .for_each(|(b, (panel, out))| pack_panel(out, b, panel * PANEL));
        Self { data, tokens: b.rows, cols: b.cols }
    }

    fn part(&self, tokens: &Range<usize>) -> Panels<'a> {
        let start = panels_len(tokens.start, self.cols);
        let data = &self.data[start..start + panels_len(tokens.len(), self.cols)];
        Panels { data, stored: tokens.len(), depth: tokens.len(), cols: self.cols }
    }
}

/// One band of rows of a weight's gradient: `dst += a^T * b`.
pub(crate) struct Band<'a> {
    dst: MatMut<'a>,
    a: MatRef<'a>,
    b: TokenPanels<'a>,
}

/// Cuts `dst += a^T * b`, `a` being tokens x rows, into bands and adds them to a list, so that several products share
/// the pool.
pub(crate) fn gradient_bands<'a>(
    dst: MatMut<'a>,
    a: MatRef<'a>,
    b: TokenPanels<'a>,
    bands: &mut Vec<Band<'a>>,
) {
    assert_eq!((a.rows, dst.rows, dst.cols), (b.tokens, a.cols, b.cols), "sizes differ");
    let mut rest = dst;
    for rows in parts(a.cols, BAND) {
        let (dst, tail) = rest.split_rows(rows.len());
        rest = tail;
        bands.push(Band { dst, a: a.cols(rows), b });
    }
}

/// Computes the bands on the thread pool.
pub(crate) fn run_bands(bands: Vec<Band<'_>>) {
    bands.into_par_iter().with_max_len(1).for_each(|mut band| {
        for tokens in parts(band.b.tokens, DEPTH) {
            let part = band.b.part(&tokens);
            multiply(&mut band.dst, band.a.rows(tokens).t(), part, true);
        }
    });
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

    /// The result by its definition.
    fn defined(
        a: &dyn Fn(usize, usize) -> f32,
        b: &dyn Fn(usize, usize) -> f32,
        depth: usize,
    ) -> f32 {
        let mut total = None;
        for part in parts(depth, DEPTH) {
            let sum = part.fold(0.0_f32, |sum, x| a(0, x).mul_add(b(x, 0), sum));
            total = Some(total.map_or(sum, |total: f32| total + sum));
        }
        total.unwrap_or(0.0)
    }

    #[test]
    fn products_equal_their_definition_bit_for_bit() {
        let shapes = [
            (1, 1, 1),
            (6, 16, 4),
            (12, 32, 4),
            (25, 48, 9),
            (7, 5, 3),
            (33, 70, 17),
            (200, 40, 400),
            (13, 1030, 385),
            (9, 20, 0),
        ];
        for (m, n, k) in shapes {
            let (a, b) = (values(m * k, 1), values(k * n, 2));
            for (ta, tb) in [(false, false), (false, true), (true, false), (true, true)] {
                let a_view = if ta { MatRef::new(&a, k, m).t() } else { MatRef::new(&a, m, k) };
                let b_view = if tb { MatRef::new(&b, n, k).t() } else { MatRef::new(&b, k, n) };
                let mut buffer = vec![f32::NAN; panels_len(k, n)];
                let panels = Panels::par_pack(&mut buffer, b_view);
                let mut results = Isa::available().into_iter().map(|isa| {
                    let mut dst = vec![f32::NAN; m * (n + 3)];
                    let view = &mut MatMut::strided(&mut dst, m, n, n + 3);
                    multiply_with(isa, view, a_view, panels, false);
                    dst
                });
                let dst = results.next().expect("plain Rust is always there");
                for other in results {
                    let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect();
                    let [one, other]: [Vec<u32>; 2] = [bits(&dst), bits(&other)];
                    assert_eq!(one, other, "{m} {n} {k} {ta} {tb}");
                }
                for (i, row) in dst.chunks(n + 3).enumerate() {
                    for (j, &got) in row[..n].iter().enumerate() {
                        let left =
                            |_: usize, x: usize| if ta { a[x * m + i] } else { a[i * k + x] };
                        let right =
                            |x: usize, _: usize| if tb { b[j * k + x] } else { b[x * n + j] };
                        let want = defined(&left, &right, k);
                        assert_eq!(got.to_bits(), want.to_bits(), "{m} {n} {k} {ta} {tb} {i} {j}");
                    }
                    assert!(
                        row[n..].iter().all(|x| x.is_nan()),
                        "the gap between rows is left alone"
                    );
                }
            }
        }
    }

    #[test]
    fn parts_of_panels_are_the_products_of_parts() {
        let (m, n, k) = (5, 40, 30);
        let (a, b) = (values(m * k, 6), values(k * n, 7));
        let mut buffer = vec![0.0; panels_len(k, n)];
        let panels = Panels::pack(&mut buffer, MatRef::new(&b, k, n)).first_rows(11).first_cols(19);
        let mut got = vec![0.0; m * 19];
        multiply(
            &mut MatMut::new(&mut got, m, 19),
            MatRef::new(&a, m, k).cols(0..11),
            panels,
            false,
        );
        for (i, row) in got.chunks(19).enumerate() {
            for (j, &got) in row.iter().enumerate() {
                let want = (0..11).fold(0.0_f32, |sum, x| a[i * k + x].mul_add(b[x * n + j], sum));
                assert_eq!(got, want);
            }
        }
    }

    #[test]
    fn a_low_rank_product_is_added_alike_to_panels_of_a_matrix_and_of_its_transpose() {
        use half::bf16;

        let (rows, cols, rank) = (37, 45, 5);
        let stored: Vec<bf16> = values(rows * cols, 11).into_iter().map(bf16::from_f32).collect();
        let (left, right) = (values(20 * rank, 12), values(rank * cols, 13));
        let added = LowRank {
            left: MatRef::new(&left, 20, rank),
            right: MatRef::new(&right, rank, cols),
            row: 9,
            col: 0,
        };
        let mut want: Vec<f32> = stored.iter().map(|value| value.to_f32()).collect();
        added.add_to_rows(&mut want[9 * cols..29 * cols], 0);
        let stored = MatRef::new(&stored, rows, cols);
        let identity = |size: usize| -> Vec<f32> {
            (0..size * size).map(|at| f32::from(u8::from(at % (size + 1) == 0))).collect()
        };
        let mut buffer = vec![0.0; panels_len(rows, cols)];
        let panels = Panels::par_pack_sum(&mut buffer, stored, &[added]);
        let mut found = vec![0.0; rows * cols];
        let one = identity(rows);
        let view = &mut MatMut::new(&mut found, rows, cols);
        multiply(view, MatRef::new(&one, rows, rows), panels, false);
        assert_eq!(found, want);
        let mut buffer = vec![0.0; panels_len(cols, rows)];
        let panels = Panels::par_pack_sum(&mut buffer, stored.t(), &[added.t()]);
        let mut transposed = vec![0.0; rows * cols];
        let one = identity(cols);
        let view = &mut MatMut::new(&mut transposed, cols, rows);
        multiply(view, MatRef::new(&one, cols, cols), panels, false);
        for row in 0..rows {
            for col in 0..cols {
                assert_eq!(transposed[col * rows + row], want[row * cols + col], "{row} {col}");
            }
        }
        let sum: f32 = (0..rank).map(|at| left[3 * rank + at] * right[at * cols + 7]).sum();
        let base = stored.data[12 * cols + 7].to_f32();
        assert!(
            (want[12 * cols + 7] - base - sum).abs() < 1e-6,
            "the product is added where it belongs"
        );
    }

    #[test]
    fn a_gradient_is_the_sum_over_tokens_whatever_the_cut() {
        let (tokens, rows, cols) = (500, 450, 530);
        let (a, b) = (values(tokens * rows, 8), values(tokens * cols, 9));
        let mut dst = vec![1.0; rows * cols];
        let mut bands = Vec::new();
        let mut buffer = vec![0.0; panels_len(tokens, cols)];
        let panels = TokenPanels::par_pack(&mut buffer, MatRef::new(&b, tokens, cols));
        let a_view = MatRef::new(&a, tokens, rows);
        gradient_bands(MatMut::new(&mut dst, rows, cols), a_view, panels, &mut bands);
        assert!(bands.len() > 4);
        run_bands(bands);
        for (i, row) in dst.chunks(cols).enumerate().step_by(7) {
            for (j, &got) in row.iter().enumerate().step_by(5) {
                let products =
                    (0..tokens).map(|t| f64::from(a[t * rows + i]) * f64::from(b[t * cols + j]));
                assert!((f64::from(got) - 1.0 - products.sum::<f64>()).abs() < 1e-4);
            }
        }
    }
}
