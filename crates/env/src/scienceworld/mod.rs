//! ScienceWorld: the real simulator, driven without Python.
//!
//! The simulator is a Scala program in a JAR of 8 MB that the user downloads. It is started in Java virtual machines
//! ([`jvm`]) and spoken to in the text protocol of its own Python package ([`gateway`]). A machine ([`host`]) keeps many
//! worlds apart ([`world`]); a [`pool`] of machines starts, watches and replaces them. An episode ([`environment`]) is a world
//! and the history from which it can be made again: that is how states are restored, and how an episode survives its
//! machine.

mod admission;
pub mod benchmark;
pub mod catalog;
pub mod environment;
pub mod episode;
mod expert;
pub mod gateway;
pub mod gold;
pub mod golden;
pub mod host;
pub mod java;
pub mod jvm;
pub mod package;
pub mod pool;
pub mod random;
pub mod scoring;
pub mod simulator;
mod store;
pub mod world;

pub use benchmark::{Options, PROFILE, Rules, ScienceWorld};
pub use environment::{Replay, ScienceWorldEnvironment};
pub use pool::{Incidents, PoolLimits};
