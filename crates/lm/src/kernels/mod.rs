//! The one module that may use `unsafe`: SIMD kernels and memory maps, each block with its reason.
//!
//! Every kernel computes an output value by one fixed sequence of roundings that depends on that
//! value's own inputs alone: a matrix product is one chain of fused multiply-adds over the inner
//! dimension in ascending order, a sum over a row is eight interleaved chains joined in a fixed tree.
//! So neither the number of rows in a batch, nor blocking, nor the number of threads, nor the
//! instruction set changes a bit of any result.

pub mod aligned;
pub(crate) mod attention;
mod bf16_pairs;
pub mod dispatch;
pub mod elementwise;
pub(crate) mod map;
pub mod matrix;
pub(crate) mod moment_codes;
pub mod packed;
pub mod peak;
pub(crate) mod pool;
pub(crate) mod tile;
pub(crate) mod train_gemm;
pub(crate) mod train_math;
pub(crate) mod train_matrix;
pub(crate) mod train_tile;
pub mod weight_format;

/// Asks for values that will be needed soon; does nothing where the processor has no such request.
pub(crate) fn prefetch(values: &[f32]) {
    #[cfg(target_arch = "x86_64")]
    for line in values.chunks(matrix::PANEL) {
        tile::prefetch(line.as_ptr());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = values;
}
