//! Refine: what an accepted fork changes in training.

pub mod focus;
pub mod internalize;
