//! Training of a decoder model on the CPU: explicit forward and backward, fused losses, AdamW.
//!
//! A batch is a list of [`TrainRow`]s: a prompt, a response, one final coefficient per response token and
//! the loss those tokens take. [`Trainer::accumulate`] adds the batch's gradient, [`Trainer::step`] applies
//! it. Four properties hold throughout and shape the code:
//!
//! - **Nothing is padded.** Rows are concatenated; attention runs per row and key head.
//! - **Logits are never kept.** The output head sees only the positions that carry loss, a block of them at
//!   a time, and turns their logits into gradients in place (the private `head` module).
//! - **Frozen weights cost nothing but their place.** With [`LoraOptions`] only adapters have gradients, moments and f32
//!   masters; the model's own matrices may be bf16 (the private `adapters` module).
//! - **The bits do not depend on the number of threads.** Work is cut by shape alone, and every sum over
//!   parts is taken in the order of the parts.

mod adapter_gradients;
mod adapters;
mod attention;
mod backward;
mod batch;
pub mod bench;
mod buffer;
mod error;
mod forward;
mod head;
mod labels;
mod layout;
mod moments;
mod optimizer;
mod options;
mod pass;
mod report;
mod row;
mod state;
mod trainer;
mod weights;

pub use adapters::{LoraOptions, Projection, Targets};
pub use error::TrainError;
pub use moments::MomentFormat;
pub use optimizer::AdamWConfig;
pub use options::{Recompute, TrainerOptions, activation_bytes_per_token, scratch_bytes};
pub use report::{KindTotals, LossKind, LossReport, RowReport, StepReport};
pub use row::{Head, Heads, PromptedRow, RowLoss, TrainRow};
pub use trainer::{ParameterView, Trainer};
pub use weights::{OwnedValues, Values};
