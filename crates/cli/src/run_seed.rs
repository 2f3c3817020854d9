//! Opening and running one seed: what `train`, `quickstart` and `sweep` share.

use std::sync::atomic::AtomicBool;

use lens_config::Config;
use lens_train::{Finish, Opening, Progress, Run, RunInputs};

use crate::assemble;
use crate::engines;
use crate::failure::Failure;

/// Opens the run of `seed` and runs it to its end, or until `stop` is set. `opened` is told where it starts.
pub(crate) fn run_seed<P: Progress>(
    config: &Config,
    seed: u64,
    opening: Opening,
    stop: &AtomicBool,
    progress: &mut P,
    opened: impl FnOnce(&mut P, &Run),
) -> Result<(Run, Finish), Failure> {
    let config = assemble::with_models(config).or_else(|error| {
        engines::missing_from_hub(config)?;
        Err(error)
    })?;
    let inputs = RunInputs {
        seed,
        benchmark: assemble::benchmark(&config)?,
        engine: engines::engine(&config, seed, opening == Opening::Resume)?,
        config,
    };
    let mut run = Run::open(inputs, opening, progress)?;
    opened(progress, &run);
    let finish = run.run(stop, progress)?;
    Ok((run, finish))
}
