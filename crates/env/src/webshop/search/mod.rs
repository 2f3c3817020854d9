//! Search as Anserini does it: terms of an English analyzer, scores of BM25 in Lucene's arithmetic.

pub mod analyzer;
mod emoji;
mod index;
mod porter;

pub use index::{Hit, IndexBuilder, QueryTooLong, SearchIndex};
