//! The fixed clocks of TCOD: horizons and prefixes that follow the batch number alone.

/// TCOD-F2B's horizon at explorer batch `batch` (from 1): `min(start + floor(n / eta), max_turns)`.
pub fn forward_horizon(batch: u64, start: usize, residence: u32, max_turns: usize) -> usize {
    grown(start, batch, residence).min(max_turns)
}

/// TCOD-B2F's replayed prefix at explorer batch `batch` (from 1): `max(0, (L - 1) - floor(n / eta))`.
///
/// A reference can be longer than the episode limit; the prefix is held below the limit so that the
/// student always has a turn. No reference actions: nothing is replayed.
pub fn backward_prefix(
    batch: u64,
    reference_actions: usize,
    residence: u32,
    max_turns: usize,
) -> usize {
    let student_turns = grown(1, batch, residence);
    reference_actions.saturating_sub(student_turns).min(max_turns.saturating_sub(1))
}

/// `start + floor(batch / eta)`, saturating. `residence` is validated to be positive where it enters.
fn grown(start: usize, batch: u64, residence: u32) -> usize {
    let steps = batch / u64::from(residence.max(1));
    start.saturating_add(usize::try_from(steps).unwrap_or(usize::MAX))
}
