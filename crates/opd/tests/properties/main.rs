//! What must hold for every input.

#[path = "../support/mod.rs"]
mod support;

mod focus;
mod gate;
mod gradients;
mod horizon;
mod plan;
mod statistics;
mod support_of_tokens;
