//! Validate: two branches from the same state, with and without guidance, and the gate between them.

pub mod evaluator;
pub mod fork;
pub mod gate;
