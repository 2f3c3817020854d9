//! Typed configuration: one place for every default, layers that remember where each value came from,
//! and errors that name the file, the line, the key and the nearest key that exists.
//!
//! Layers, later ones win: the defaults in [`schema`], files in the order given (each after the files it
//! `include`s), then `--set a.b=c` overrides. The defaults are the paper's settings.
#![forbid(unsafe_code)]

pub mod changes;
pub mod check;
pub mod error;
pub mod layers;
mod read;
pub mod render;
pub mod schema;
pub mod trinity;

pub use error::ConfigError;
pub use layers::{Origin, Resolved, resolve, resolve_text};
pub use schema::Config;
