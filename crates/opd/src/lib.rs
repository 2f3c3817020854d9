//! LENS-OPD and its baselines as pure functions and state machines.
#![forbid(unsafe_code)]

pub mod random;
