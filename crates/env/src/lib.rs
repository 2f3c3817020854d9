//! The benchmarks behind one pair of traits.
//!
//! A [`Benchmark`] is the immutable part: games, catalogues, splits. It is shared (`Arc`) by any number
//! of [`Environment`]s, each of which is one running episode that owns nothing global, is `Send`, and
//! can be copied at any turn ([`Environment::snapshot`]) and put back ([`Environment::restore`]).
//! The pair is shaped by the method: validation restores a state in the middle of an episode twice,
//! so restoring must be cheap where the environment is ours and checked where it is replayed.
#![forbid(unsafe_code)]

pub mod alfworld;
pub mod benchmark;
pub mod demonstration;
pub mod environment;
pub mod error;
pub mod expert;
pub mod kinds;
pub mod scienceworld;
pub mod webshop;

pub use benchmark::{Benchmark, SplitInfo, Task};
pub use demonstration::{DemonstratedStep, Demonstration, demonstrate};
pub use environment::{Actions, Environment, Snapshot, Status, View};
pub use error::EnvError;
pub use expert::{Decision, Expert, PastStep, Window};
pub use kinds::OfKinds;
