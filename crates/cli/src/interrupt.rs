//! Ctrl-C and SIGTERM ask a run to finish what it is doing and save.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::Failure;

/// A flag that the first signal sets. A second one ends the process at once.
pub(crate) fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    let raised = flag.clone();
    ctrlc::set_handler(move || {
        if raised.swap(true, Ordering::Relaxed) {
            #[expect(clippy::exit, reason = "the user asked twice; the last checkpoint is whole")]
            std::process::exit(3);
        }
    })
    .map_err(|error| Failure::Runtime(error.into()))?;
    Ok(flag)
}
