//! The laboratory: small language models of our own that make the whole method run on a laptop.
//!
//! An expert that sees only what a prompt shows plays generated games ([`corpus`]); a tokenizer is trained on the text
//! of those games ([`recipe`]); a teacher learns to play and to comment on a student's plan, then
//! from the expert's corrections of its own play ([`own_play`]); students learn the format,
//! to follow a comment, and to play a little.
#![forbid(unsafe_code)]

pub mod corpus;
pub mod own_play;
pub mod recipe;
pub mod tiny;
