//! Ctrl-C and SIGTERM: a run finishes what it is doing and saves, everything else ends at once. The exit code is 3.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::failure::Failure;
use crate::terminal::say;

/// The flag of a command that can stop in good order.
static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Handles signals from here on.
pub(crate) fn install() -> Result<(), Failure> {
    ctrlc::set_handler(|| {
        let exit = match STOP.get() {
            None => "interrupted",
            Some(flag) if flag.swap(true, Ordering::Relaxed) => {
                "stopped at once; what was saved last can be resumed"
            }
            Some(_) => {
                say(
                    "\nstopping: the batch under way is finished and saved first; press Ctrl-C again to stop at once",
                );
                return;
            }
        };
        say(&format!("\n{exit}"));
        #[expect(clippy::exit, reason = "the user asked for it; the last checkpoint is whole")]
        std::process::exit(3);
    })
    .map_err(|error| Failure::Runtime(error.into()))
}

/// A flag that the first signal sets; a second signal ends the process.
pub(crate) fn stop_flag() -> Arc<AtomicBool> {
    STOP.get_or_init(Arc::default).clone()
}
