//! ScienceWorld: the real simulator, driven without Python.

pub mod gateway;
pub mod java;
pub mod jvm;
pub mod package;
pub mod random;
pub mod simulator;
mod store;
