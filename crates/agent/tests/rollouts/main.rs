//! Episodes and forks on a scripted engine and a small text corridor: every way they can end, and what both branches of
//! a fork see. No model runs, so all of it takes milliseconds.

mod corridor;
mod coupling;
mod episodes;
mod every_failure;
mod forks;
mod prompting;
mod same_past;
mod support;
