//! Training of a decoder model on the CPU: explicit forward and backward, fused losses, AdamW.
//!
//! A batch is a list of [`TrainRow`]s: a prompt, a response, one final coefficient per response token and
//! the loss those tokens take. [`Trainer::accumulate`] adds the batch's gradient, [`Trainer::step`] applies
//! it. Three properties hold throughout and shape the code:
//!
//! - **Nothing is padded.** Rows are concatenated; attention runs per row and key head.
//! - **Logits are never kept.** The output head sees only the positions that carry loss, a block of them at
//!   a time, and turns their logits into gradients in place (the private `head` module).
//! - **The bits do not depend on the number of threads.** Work is cut by shape alone, and every sum over
//!   parts is taken in the order of the parts.

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
mod optimizer;
mod pass;
mod report;
mod row;
mod state;
mod trainer;

pub use error::TrainError;
pub use optimizer::AdamWConfig;
pub use report::{KindTotals, LossKind, LossReport, RowReport, StepReport};
pub use row::{Head, Heads, PromptedRow, RowLoss, TrainRow};
pub use trainer::{ParameterView, Trainer, TrainerOptions, activation_bytes_per_token};
