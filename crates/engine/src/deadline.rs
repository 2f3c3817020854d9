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

    /// The time left; `None` without a deadline.
    pub fn remaining(self) -> Option<Duration> {
        self.0.map(|moment| moment.saturating_duration_since(Instant::now()))
    }

    /// This deadline, or `limit` from now if that is sooner.
    #[must_use]
    pub fn within(self, limit: Duration) -> Self {
        let sooner = Instant::now().checked_add(limit);
        match (self.0, sooner) {
            (Some(moment), Some(sooner)) => Self(Some(moment.min(sooner))),
            (moment, sooner) => Self(moment.or(sooner)),
        }
    }
}
