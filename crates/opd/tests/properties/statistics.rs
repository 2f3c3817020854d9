use lens_opd::buffer::{is_fresh, plan_train_batch, shuffle_rows};
use lens_opd::locate::proposal::{Candidate, Proposal, ProposalKey, propose, top_kl};
use lens_opd::stats::bootstrap::{
    Clustered, Paired, Resampling, clustered_mean, paired_difference,
};
use proptest::prelude::*;

use crate::support::draws;

const QUICK: Resampling = Resampling { resamples: 400, level: 0.9, seed: 5, index: 0 };

fn measurements() -> impl Strategy<Value = Vec<Clustered>> {
    prop::collection::vec((0_u64..8, -3.0_f64..3.0), 1..60).prop_map(|values| {
        values.into_iter().map(|(cluster, value)| Clustered { cluster, value }).collect()
    })
}

/// Draws from the standard normal distribution, each repeated `copies` times in a cluster of its own.
fn normal(count: u64, copies: usize) -> Vec<Clustered> {
    let mut stream = draws(77);
    (0..count)
        .flat_map(|cluster| vec![Clustered { cluster, value: stream.normal() }; copies])
        .collect()
}

fn width(values: &[Clustered]) -> f64 {
    let interval =
        clustered_mean(values, &Resampling { resamples: 4000, ..QUICK }).expect("finite");
    interval.high - interval.low
}

#[test]
fn an_interval_is_as_wide_as_theory_says() {
    // 90% of a normal mean lies within 1.645 standard errors.
    let theory = 2.0 * 1.645 / 400_f64.sqrt();
    let found = width(&normal(400, 1));
    assert!((found / theory - 1.0).abs() < 0.15, "{found}, theory {theory}");
}

#[test]
fn copies_inside_a_cluster_are_no_new_evidence() {
    let (once, copied) = (width(&normal(100, 1)), width(&normal(100, 9)));
    assert!((copied / once - 1.0).abs() < 1e-9, "{copied} against {once}");
    let mut unclustered = normal(100, 9);
    for (value, cluster) in unclustered.iter_mut().zip(0..) {
        value.cluster = cluster;
    }
    assert!(
        width(&unclustered) < 0.5 * once,
        "pretending they are independent narrows the interval"
    );
}

proptest! {
    #[test]
    fn an_interval_is_ordered_and_reproducible(values in measurements()) {
        let interval = clustered_mean(&values, &QUICK).expect("finite");
        prop_assert!(interval.low <= interval.high);
        let reversed: Vec<Clustered> = values.iter().rev().copied().collect();
        let again = clustered_mean(&reversed, &QUICK).expect("finite");
        prop_assert!((again.low - interval.low).abs() < 1e-9, "order of measurements is no matter");
        let values: Vec<f64> = values.iter().map(|v| v.value).collect();
        let (min, max) = values.iter().fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(*v), h.max(*v)));
        prop_assert!(interval.low >= min - 1e-9 && interval.high <= max + 1e-9);
    }

    #[test]
    fn one_cluster_has_nothing_to_resample(values in prop::collection::vec(-3.0_f64..3.0, 1..20)) {
        let pairs: Vec<Paired> =
            values.iter().map(|&v| Paired { cluster: 9, base: 1.0, treated: 1.0 + v }).collect();
        let interval = paired_difference(&pairs, &QUICK).expect("finite");
        prop_assert!((interval.high - interval.low).abs() < 1e-12);
        prop_assert!((interval.low - interval.estimate).abs() < 1e-12);
    }

    #[test]
    fn proposals_come_from_the_candidates(
        divergences in prop::collection::vec(0_u8..6, 0..20), count in 1_usize..5, batch in 1_u64..50,
    ) {
        let candidates: Vec<Candidate> = divergences
            .iter()
            .enumerate()
            .map(|(turn, &d)| Candidate { turn, divergence: f64::from(d) })
            .collect();
        let key = ProposalKey { seed: 42, batch, episode: 3 };
        for proposal in [Proposal::TopKl, Proposal::LastTurn, Proposal::Random, Proposal::KlRange] {
            let chosen = propose(proposal, &candidates, count, key);
            prop_assert_eq!(chosen.len(), count.min(candidates.len()));
            prop_assert!(chosen.windows(2).all(|pair| pair[0].turn < pair[1].turn), "no repetition");
            prop_assert!(chosen.iter().all(|c| candidates.contains(c)));
            prop_assert_eq!(&chosen, &propose(proposal, &candidates, count, key));
        }
        let largest = divergences.iter().max();
        let first = largest.and_then(|max| divergences.iter().position(|d| d == max));
        prop_assert_eq!(top_kl(&candidates).map(|c| c.turn), first, "ties go to the earlier turn");
        let one = propose(Proposal::TopKl, &candidates, 1, key);
        prop_assert_eq!(one.first().map(|c| c.turn), first);
        let last = propose(Proposal::LastTurn, &candidates, 1, key);
        prop_assert_eq!(last.first().map(|c| c.turn), divergences.len().checked_sub(1));
    }

    #[test]
    fn train_batches_are_the_first_fresh_rows(
        versions in prop::collection::vec(0_u64..12, 0..200), step in 1_u64..14, rows in 1_usize..70,
    ) {
        let pop = plan_train_batch(&versions, step, rows, 2);
        let fresh: Vec<usize> =
            (0..versions.len()).filter(|&i| versions[i] + 2 >= step).take(rows).collect();
        if fresh.len() == rows {
            prop_assert_eq!(&pop.train, &fresh);
            let end = fresh.last().map_or(0, |last| last + 1);
            let stale: Vec<usize> = (0..end).filter(|&i| versions[i] + 2 < step).collect();
            prop_assert_eq!(&pop.stale, &stale);
        } else {
            prop_assert!(pop.train.is_empty());
            prop_assert!(pop.stale.iter().all(|&i| !is_fresh(versions[i], step, 2)));
        }
    }

    #[test]
    fn shuffling_is_a_keyed_permutation(count in 0_usize..300, batch in 1_u64..9) {
        let order = |seed, batch| {
            let mut rows: Vec<usize> = (0..count).collect();
            shuffle_rows(&mut rows, seed, batch);
            rows
        };
        prop_assert_eq!(order(42, batch), order(42, batch));
        let mut sorted = order(42, batch);
        sorted.sort_unstable();
        prop_assert_eq!(sorted, (0..count).collect::<Vec<_>>());
        if count > 20 {
            prop_assert_ne!(order(42, batch), order(43, batch));
            prop_assert_ne!(order(42, batch), order(42, batch + 1));
        }
    }
}
