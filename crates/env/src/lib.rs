//! The benchmarks behind one pair of traits.
//!
//! A [`Benchmark`] is the immutable part: games, catalogs, splits. It is shared (`Arc`) by any number
//! of [`Environment`]s, each of which is one running episode that owns nothing global, is `Send`, and
//! can be copied at any turn ([`Environment::snapshot`]) and put back ([`Environment::restore`]).
//! The pair is shaped by the method: validation restores a state in the middle of an episode twice,
//! so restoring must be cheap where the environment is ours and checked where it is replayed.
//!
//! A benchmark describes itself in a [`Profile`]; [`registry`] is the only list of benchmarks.
#![forbid(unsafe_code)]

pub mod agentgym;
pub mod alfworld;
pub mod benchmark;
pub mod demonstration;
pub mod environment;
pub mod error;
pub mod expert;
mod files;
pub mod filter;
pub mod openenv;
pub mod profile;
pub mod prompt;
pub mod registry;
pub mod remote;
pub mod scienceworld;
pub mod stdio;
pub mod template;
pub mod webshop;
pub mod window;

pub use benchmark::{Benchmark, SplitInfo, Task};
pub use demonstration::{DemonstratedStep, Demonstration, demonstrate};
pub use environment::{Actions, Environment, Snapshot, Status, View};
pub use error::EnvError;
pub use expert::{Decision, Expert, Lapse, Situation};
pub use filter::TaskFilter;
pub use profile::{CommandStyle, Laboratory, Names, Profile, PromptStyle, ScoreScale};
pub use prompt::PromptTemplate;
pub use registry::{BenchmarkOptions, Registry};
pub use window::{PastStep, Window};
