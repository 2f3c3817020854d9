//! CPU time, which a busy machine does not inflate.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A moment on the clock of CPU time this process has used, on all its threads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CpuTime(Duration);

impl CpuTime {
    pub(crate) fn now() -> Self {
        let now = clock_gettime(ClockId::ProcessCPUTime);
        Self(Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32))
    }

    /// CPU seconds used since.
    pub(crate) fn seconds(self) -> f64 {
        Self::now().0.saturating_sub(self.0).as_secs_f64()
    }
}
