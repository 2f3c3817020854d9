//! `lens view`: a run's records as pages in a browser, or as one HTML file.
//!
//! [`answer`](api::answer) turns a path into JSON; [`server`] puts it behind HTTP on this machine, [`export`] writes
//! the same answers and the same page into one file. The page itself is plain HTML, CSS and JavaScript in `assets/`,
//! embedded here. Nothing is ever written to a run.
#![forbid(unsafe_code)]

pub mod api;
mod assets;
mod error;
pub mod export;
mod guard;
pub mod server;

pub use error::ViewError;
