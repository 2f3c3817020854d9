//! The laboratory: small language models of our own that make the whole method run on a laptop.
//!
//! An expert that sees only what a prompt shows plays generated games ([`corpus`]); a tokenizer is trained on the text
//! of those games ([`recipe`]); all models begin with exercises in finding a thing in a list ([`exercises`]); a teacher
//! learns to play and to comment on a student's plan, and, if asked for, from the expert's corrections of its own play
//! ([`own_play`]); students learn the format, to follow a comment, and to play carelessly ([`slips`]). What a model's comments
//! are worth, and whether it follows those of others, is in [`hints`].
#![forbid(unsafe_code)]

pub mod corpus;
pub mod exercises;
pub mod hints;
pub mod own_play;
pub mod recipe;
pub mod slips;
pub mod tiny;
