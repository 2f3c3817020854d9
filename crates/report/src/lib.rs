//! What a run's records say: summaries, comparisons, figures and a diagnosis.
//!
//! [`run`] loads a run through `lens-records`; everything else is a function of loaded runs. [`figures`] has one file
//! per figure, [`doctor`] one function per thing that can be wrong. Nothing here knows of HTTP, HTML or a terminal's
//! colors, and nothing writes files.
#![forbid(unsafe_code)]

pub mod audit;
pub mod compare;
pub mod doctor;
pub mod figures;
pub mod list;
pub mod plot;
pub mod run;
pub mod stats;
pub mod summary;
pub mod text;

pub use run::Run;
