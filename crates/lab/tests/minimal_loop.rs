//! The loop of `examples/minimal_opd.rs`, run on the shipped models at a tiny setting.

#[allow(dead_code, reason = "the example's own entry is for the command line")]
#[path = "../../../examples/minimal_opd.rs"]
mod minimal_opd;

use minimal_opd::{Settings, train};

#[test]
fn the_minimal_loop_learns_and_publishes() {
    let settings = Settings {
        batches: 2,
        games: 3,
        turn_limit: 4,
        rows_per_step: 8,
        evaluation_games: 2,
        ..Settings::default()
    };
    let mut said = Vec::new();
    let outcome = train(&settings, |line| said.push(line.to_owned())).expect("it trains");
    // Three games of at most four turns are more than eight rows, so every batch takes two steps.
    assert_eq!(outcome.version, outcome.steps.len() as u64);
    assert!(outcome.version >= 3, "{outcome:?}");
    for step in &outcome.steps {
        assert!(step.loss.is_finite() && step.loss > 0.0 && step.grad_norm > 0.0, "{step:?}");
        assert!(!step.skipped && step.internalization_loss == 0.0, "{step:?}");
    }
    for share in [outcome.before, outcome.after] {
        assert!((0.0..=1.0).contains(&share), "{outcome:?}");
    }
    assert_eq!(said.len(), 2, "a line per batch: {said:?}");
    // The student that was published is another one, and a run can be repeated to the bit.
    let again = train(&settings, |_| {}).expect("it trains");
    assert_eq!(again.steps, outcome.steps);
    assert_ne!(
        outcome.steps[0].loss.to_bits(),
        outcome.steps[outcome.steps.len() - 1].loss.to_bits()
    );
}

#[test]
fn the_minimal_loop_is_short_enough_to_read() {
    let lines = include_str!("../../../examples/minimal_opd.rs").lines().count();
    assert!(lines < 300, "{lines} lines");
}
