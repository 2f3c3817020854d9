//! Ctrl-C and SIGTERM: a run finishes what it is doing and saves, everything else ends at once. The exit code is 3.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::failure::Failure;
use crate::terminal::say;

/// The flag of a command that can stop in good order, and what it does then.
static STOP: OnceLock<(Arc<AtomicBool>, &'static str)> = OnceLock::new();

/// What training does before it stops.
const SAVES: &str = "the batch under way is finished and saved first";

/// Handles signals from here on.
pub(crate) fn install() -> Result<(), Failure> {
    ctrlc::set_handler(|| {
        let exit = match STOP.get() {
            None => "interrupted",
            Some((flag, does)) if flag.swap(true, Ordering::Relaxed) => match *does {
                SAVES => "stopped at once; what was saved last can be resumed",
                _ => "stopped at once",
            },
            Some((_, does)) => {
                say(&format!("\nstopping: {does}; press Ctrl-C again to stop at once"));
                return;
            }
        };
        say(&format!("\n{exit}"));
        #[expect(clippy::exit, reason = "the user asked for it; the last checkpoint is whole")]
        std::process::exit(3);
    })
    .map_err(|error| Failure::Runtime(error.into()))
}

/// A flag that the first signal sets, for work that saves itself; a second signal ends the process.
pub(crate) fn stop_flag() -> Arc<AtomicBool> {
    stop_flag_saying(SAVES)
}

/// The same for something else; `does` is what it does before it stops.
pub(crate) fn stop_flag_saying(does: &'static str) -> Arc<AtomicBool> {
    STOP.get_or_init(|| (Arc::default(), does)).0.clone()
}
