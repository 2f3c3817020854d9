//! Decoder language models on the CPU.

pub mod chat;
pub mod checkpoint;
pub mod config;
pub mod error;
pub mod gguf;
pub mod init;
#[allow(unsafe_code)]
pub mod kernels;
pub mod tensor;
pub mod tokenizer;
pub mod train;
