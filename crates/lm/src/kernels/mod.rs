//! The one module that may use `unsafe`: SIMD kernels and memory maps, each block with its reason.

pub(crate) mod train_gemm;
pub(crate) mod train_math;
pub(crate) mod train_matrix;
