//! GGUF files, read into the shapes and names of a Hugging Face directory.

pub mod blocks;
pub mod header;
mod metadata;
mod model;
mod tokenizer;
mod value;

pub use model::GgufModel;
pub use value::Value;
