//! Putting a state back: two environments for every pair of branches.

use lens_engine::Message;
use lens_env::{EnvError, PastStep};
use lens_opd::validate::fork::{ForkDrop, ForkRequest};

use super::OpenFork;
use super::branch::BranchRun;
use crate::config::RolloutConfig;
use crate::episode::{Episode, Turn};

/// Restores the state before the fork turn twice per pair; a state that cannot be restored exactly is a reason to drop
/// the fork.
pub(super) fn restore<'a>(
    config: &RolloutConfig,
    episodes: &'a [Episode],
    request: &ForkRequest,
) -> Result<OpenFork<'a>, ForkDrop> {
    let episode = episodes
        .iter()
        .find(|episode| episode.plan.key == request.episode)
        .ok_or(ForkDrop::RestoreFailed)?;
    let index = episode
        .turns
        .iter()
        .position(|turn| turn.number == request.turn)
        .ok_or(ForkDrop::RestoreFailed)?;
    let turn = &episode.turns[index];
    let past = &episode.past[..request.turn.min(episode.past.len())];
    let conversation = &episode.conversations[index];
    let branch = || restored(config, turn, past, conversation);
    let pairs = (0..request.pairs.max(1)).map(|_| Ok([branch()?, branch()?]));
    Ok(OpenFork { turn, plain_prompt: Vec::new(), pairs: pairs.collect::<Result<_, _>>()? })
}

fn restored(
    config: &RolloutConfig,
    turn: &Turn,
    past: &[PastStep],
    conversation: &[Message],
) -> Result<BranchRun, ForkDrop> {
    let snapshot = turn.snapshot.as_ref().ok_or(ForkDrop::RestoreFailed)?;
    let mut environment =
        config.benchmark.clone().environment().map_err(|_| ForkDrop::RestoreFailed)?;
    let view = environment.restore(snapshot).map_err(|error| match error {
        EnvError::NotRepeatable(_) => ForkDrop::NotRepeatable,
        _ => ForkDrop::RestoreFailed,
    })?;
    if view.fingerprint() != turn.view.fingerprint() {
        return Err(ForkDrop::RestoreMismatch);
    }
    Ok(BranchRun::new(environment, view, past.to_vec(), conversation.to_vec()))
}
