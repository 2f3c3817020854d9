//! Decoder language models on the CPU.

pub mod config;
#[allow(unsafe_code)]
pub mod kernels;
pub mod tensor;
pub mod train;
