//! The buffer's boundaries, and the constants of the paper's table 4.

use lens_opd::buffer::{MAX_STALENESS, Staleness, TRAIN_BATCH_ROWS, is_fresh, plan_train_batch};
use lens_opd::methods::MethodSections;
use lens_opd::objective::Loss;

#[test]
fn version_j_minus_2_is_kept_and_j_minus_3_is_dropped() {
    for step in 3..50 {
        assert!(is_fresh(step, step, MAX_STALENESS));
        assert!(is_fresh(step - 2, step, MAX_STALENESS), "step {step}");
        assert!(!is_fresh(step - 3, step, MAX_STALENESS), "step {step}");
    }
    assert!(is_fresh(0, 1, MAX_STALENESS) && is_fresh(0, 2, MAX_STALENESS));
}

#[test]
fn a_big_explorer_batch_is_consumed_where_the_configuration_says_so() {
    let limit = Staleness::Consume.limit(MAX_STALENESS);
    let mut queue = vec![0_u64; 480];
    for step in 1..=7 {
        let pop = plan_train_batch(&queue, step, TRAIN_BATCH_ROWS, limit);
        assert_eq!((pop.train.len(), pop.stale.len()), (64, 0), "step {step}");
        queue.drain(..64);
    }
    assert_eq!(plan_train_batch(&queue, 8, TRAIN_BATCH_ROWS, limit).stale, [0_usize; 0]);
    assert_eq!(Staleness::Paper.limit(MAX_STALENESS), MAX_STALENESS);
}

#[test]
fn a_big_explorer_batch_survives_for_two_steps_only() {
    // 480 rows of one snapshot: steps 1 and 2 take 64 each, at step 3 the rest is too old.
    let mut queue = vec![0_u64; 480];
    for step in 1..=2 {
        let pop = plan_train_batch(&queue, step, TRAIN_BATCH_ROWS, MAX_STALENESS);
        assert_eq!((pop.train.len(), pop.stale.len()), (64, 0));
        queue.drain(..64);
    }
    let pop = plan_train_batch(&queue, 3, TRAIN_BATCH_ROWS, MAX_STALENESS);
    assert_eq!((pop.train.len(), pop.stale.len()), (0, 352));
}

#[test]
fn too_few_rows_wait_for_more() {
    let pop = plan_train_batch(&[5; 63], 5, TRAIN_BATCH_ROWS, MAX_STALENESS);
    assert!(pop.train.is_empty() && pop.stale.is_empty());
}

#[test]
fn defaults_are_those_of_table_4() {
    let MethodSections { locate, validate, refine, .. } = MethodSections::default();
    assert_eq!((locate.residence, locate.proposals_per_episode), (5, 1));
    assert_eq!((locate.pace_min, locate.pace_max, locate.epsilon), (0.5, 1.5, 1e-6));
    assert_eq!((validate.continuation_turns, validate.temperature), (3, 1.0));
    assert_eq!((refine.focus_scale, refine.weight_cap, refine.internalize_weight), (1.0, 5.0, 1.0));
    let loss = Loss::default();
    assert_eq!((loss.kl_coef, loss.clip, loss.dual_clip), (1.0, 0.2, 3.0));
    assert_eq!((MAX_STALENESS, TRAIN_BATCH_ROWS), (2, 64));
}
