//! ALFWorld's text games, natively: byte for byte what TextWorld's engine answers, in microseconds.
//!
//! The domain and the grammar are the same in all of ALFWorld's games, so this is no general planner
//! and no grammar interpreter: a game file's domain and grammar are checked by their hashes
//! ([`file`]), its problem is parsed ([`parser`]) and indexed ([`game`]), and the fifteen actions and
//! their texts are written down here.

mod action;
pub mod archive;
pub mod benchmark;
mod bits;
mod engine;
pub mod environment;
pub mod episode;
pub mod expert;
pub mod file;
pub mod game;
pub mod generator;
pub mod goal;
pub mod lists;
mod names;
pub mod parser;
pub mod planner;
pub mod problem;
pub mod replay;
pub mod state;
pub mod statistics;

pub use benchmark::{Alfworld, Options, PROFILE};
pub use environment::AlfworldEnvironment;
pub use episode::Episode;
pub use expert::AlfworldExpert;
pub use game::{Game, Wording};
pub use goal::{Goal, TaskKind};
pub use problem::Problem;
pub use state::State;
