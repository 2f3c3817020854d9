//! Locate: how deep the student may go, and which of its turns deserves a look.

pub mod fixed;
pub mod horizon;
pub mod proposal;
pub mod support;
