//! Every call ends: by answering, or by its deadline.

use std::time::{Duration, Instant};

/// The moment a call must have answered.
#[derive(Debug, Clone, Copy)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// `limit` from now.
    pub fn after(limit: Duration) -> Self {
        Self(Instant::now().checked_add(limit))
    }

    /// No deadline: for callers that cannot hang.
    pub fn never() -> Self {
        Self(None)
    }

    /// Whether it has passed.
    pub fn has_passed(self) -> bool {
        self.0.is_some_and(|moment| Instant::now() >= moment)
    }
}
