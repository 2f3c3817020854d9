use lens_opd::locate::Locate;
use lens_opd::locate::horizon::{HorizonClock, HorizonState, pace};
use lens_opd::methods::RunFacts;
use proptest::prelude::*;

fn clock(residence: u32, max_turns: usize) -> HorizonClock {
    let facts = RunFacts { seed: 1, max_turns, steps: 250 };
    HorizonClock::new(Locate { residence, ..Locate::default() }, &facts)
}

/// Competences of up to 16 episodes in each of many batches.
fn batches() -> impl Strategy<Value = Vec<Vec<f64>>> {
    prop::collection::vec(prop::collection::vec(0.0_f64..=1.0, 0..16), 1..200)
}

proptest! {
    #[test]
    fn pace_stays_within_its_bounds(entry in 0.0_f64..=1.0, competence in 0.0_f64..=1.0) {
        let v = pace(entry, competence, &Locate::default());
        prop_assert!((0.5..=1.5).contains(&v), "{}", v);
        prop_assert_eq!(v > 1.0, 1.0 - competence < entry, "faster exactly when the gap closes");
    }

    #[test]
    fn the_horizon_grows_by_one_at_most_and_never_too_far(
        batches in batches(), eta in 2_u32..8, max_depth in 1_usize..12,
    ) {
        let mut clock = clock(eta, max_depth);
        let mut entered = true;
        for competences in &batches {
            let before = clock.depth();
            let tick = clock.tick(competences).expect("in range");
            prop_assert_eq!(tick.depth, before, "a batch is measured at the depth it was played at");
            prop_assert!(tick.next_depth >= before && tick.next_depth <= before + 1);
            prop_assert!(clock.depth() <= max_depth);
            if let Some(v) = tick.pace {
                prop_assert!((0.5..=1.5).contains(&v));
                if competences.is_empty() || entered {
                    prop_assert_eq!(v, 1.0, "no valid episode, or the first valid batch here");
                }
            }
            prop_assert_eq!(tick.pace.is_none(), before == max_depth, "only the stopped clock has no pace");
            entered = if tick.next_depth > before { true } else { entered && competences.is_empty() };
        }
    }

    #[test]
    fn the_remainder_is_carried(batches in batches(), eta in 2_u32..8) {
        let mut clock = clock(eta, usize::MAX);
        let mut total = 0.0;
        for competences in &batches {
            total += clock.tick(competences).expect("in range").pace.expect("never stops");
            let state = clock.state();
            let accounted = f64::from(eta) * (state.depth - 1) as f64 + state.elapsed;
            prop_assert!((accounted - total).abs() < 1e-9, "{} != {}", accounted, total);
            prop_assert!((0.0..f64::from(eta)).contains(&state.elapsed));
        }
    }

    #[test]
    fn a_restored_clock_goes_on_bit_for_bit(batches in batches(), cut in 0_usize..200) {
        let cut = cut.min(batches.len());
        let mut straight = clock(3, 20);
        let mut resumed = clock(3, 20);
        for competences in &batches[..cut] {
            straight.tick(competences).expect("in range");
            resumed.tick(competences).expect("in range");
        }
        let saved = serde_json::to_string(&resumed.state()).expect("plain data");
        let state: HorizonState = serde_json::from_str(&saved).expect("just written");
        let mut resumed = clock(3, 20);
        resumed.restore(&state).expect("own state");
        for competences in &batches[cut..] {
            let one = straight.tick(competences).expect("in range");
            prop_assert_eq!(one, resumed.tick(competences).expect("in range"));
        }
        prop_assert_eq!(straight.state(), resumed.state());
    }
}
