//! Engines on other machines: models behind vLLM or SGLang, training in the PyTorch worker.
//!
//! [`Served`] is one model behind one or more servers of a kind, with everything their answers must be checked for.
//! [`ServedTeacherEngine`] trains on this machine and learns from a served teacher; [`TorchEngine`] trains in the worker,
//! whose weights travel to the student's servers by disk or over NCCL. Both publish [`RemoteModels`].

mod check;
mod dialect;
mod mixed;
mod models;
mod npy;
mod scorer;
mod served;
mod sglang;
mod targets;
mod torch;
mod transfer;
mod turns;
mod vllm;
mod weights;
mod wire;
mod worker;

pub use check::{Finding, Needed, check, same_endings};
pub use dialect::{Kind as ServerKind, ServerInfo};
pub use mixed::ServedTeacherEngine;
pub use models::RemoteModels;
pub use served::{Served, ServedOptions, ServedPolicy};
pub use torch::{TeacherPlace, TorchEngine, TorchOptions};
pub use transfer::{Transfer, check_transfer};
pub use worker::{Worker, WorkerInfo};
