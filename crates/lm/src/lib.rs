//! Decoder language models on the CPU.

pub mod bench;
pub mod cache;
pub mod chat;
pub mod checkpoint;
pub mod config;
pub mod error;
mod file;
pub mod generate;
pub mod gguf;
pub mod init;
#[allow(unsafe_code)]
pub mod kernels;
pub mod model;
pub mod pair;
mod prefill;
pub mod sampling;
pub mod score;
mod states;
pub mod tensor;
pub mod tokenizer;
pub mod train;
