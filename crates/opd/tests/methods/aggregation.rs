//! What internalization weighs next to OPD, by the three readings of Algorithm 1's aggregation (docs/methods/lens.md).

use lens_opd::buffer::{TRAIN_BATCH_ROWS, shuffle_rows};
use lens_opd::methods::MethodName;
use lens_opd::methods::rows::TrainRow;
use lens_opd::objective::Loss;
use lens_opd::objective::plan::{InternalizeAggregation, LossPlan, LossTerms};

use crate::build;
use crate::support::{batch, fork};

/// Rows of `batches` explorer batches of 16 episodes with `turns` turns each, every second fork accepted.
fn rows(turns: usize, batches: u64) -> Vec<TrainRow> {
    let mut method =
        build(MethodName::Lens, |sections| sections.locate.clock = lens_opd::locate::Clock::Full);
    let mut all = Vec::new();
    for number in 1..=batches {
        let batch = batch(number, number, 16, turns);
        let located = method.locate(&batch).expect("sound batch");
        let forks: Vec<_> = located
            .forks
            .iter()
            .map(|f| fork(3, f.episode, f.turn, -1.0, if f.episode % 2 == 0 { -0.5 } else { -1.5 }))
            .collect();
        let mut rows = method.refine(&batch, &located, &forks).expect("sound forks").rows;
        shuffle_rows(&mut rows, 42, number);
        all.extend(rows);
    }
    all
}

/// The mean over train batches of what internalization weighs next to 1 for OPD.
fn share(rows: &[TrainRow], internalize_aggregation: InternalizeAggregation) -> f64 {
    let terms = LossTerms { internalize_aggregation, ..LossTerms::default() };
    let shares: Vec<f64> = rows
        .chunks_exact(TRAIN_BATCH_ROWS)
        .map(|rows| {
            let plan = LossPlan::new(rows, &Loss::default(), &terms).expect("sound rows");
            plan.counts().internalize_share
        })
        .collect();
    shares.iter().sum::<f64>() / shares.len() as f64
}

#[test]
#[expect(clippy::print_stdout, reason = "the test prints the table of docs/methods/lens.md")]
fn internalization_weighs_the_accepted_share_at_every_horizon_if_counted_by_trajectory() {
    use InternalizeAggregation::{Batch, Rows, Trajectory};
    println!("accepted share 0.5; internalization's weight next to 1 for OPD");
    println!("{:>4} {:>12} {:>8} {:>8}", "K", "trajectory", "batch", "rows");
    let mut by_batch = Vec::new();
    for (turns, batches) in [(1, 80), (8, 60), (30, 40)] {
        let rows = rows(turns, batches);
        let [trajectory, batch, mean] =
            [Trajectory, Batch, Rows].map(|reading| share(&rows, reading));
        println!("{turns:>4} {trajectory:>12.3} {batch:>8.3} {mean:>8.3}");
        assert!((trajectory - 0.5).abs() < 0.02, "K = {turns}: {trajectory}");
        // A train batch without internalization rows gives 0, which happens once rows are many.
        assert!(mean <= 0.5 + 1e-9 && mean > 0.25, "K = {turns}: {mean}");
        by_batch.push(batch);
    }
    let fall = by_batch[0] / by_batch[2];
    assert!(fall > 4.0, "counted by train batch it falls with the horizon: {fall} times");
}
