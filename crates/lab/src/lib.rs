//! The laboratory: small language models, trained from scratch, on which the whole method runs on a laptop.
//!
//! A [`recipe`] is a TOML file: tasks, shares of the corpus, tokenizer, models, and the stages of each model. The
//! [`build`] follows it: demonstrations by an expert that sees only what a prompt shows become the [`corpus`]; a
//! [`tokenizer`] is trained on it; every model starts with [`exercises`] in finding an object in a list; teachers
//! learn to act and to critique a plan; students learn to act, to follow an instruction, and, from [`corrupted`]
//! demonstrations or from the lapses of [`habits`], to act wrongly often enough that there is something to teach them. A
//! stage can add the expert's corrections of the model's own rollouts ([`dagger`]). [`examine`] shows where a model
//! disagrees with the expert, [`critique`] what a teacher's critiques are worth to it, and [`regime`] whether the method
//! can be judged with a pair of models.
#![forbid(unsafe_code)]

pub mod build;
pub mod corpus;
pub mod corrupted;
pub mod critique;
pub mod dagger;
pub mod episodes;
pub mod error;
pub mod examine;
pub mod exercises;
pub mod habits;
pub mod recipe;
pub mod regime;
pub mod stage;
pub mod tiny;
pub mod tokenizer;

pub use error::LabError;
