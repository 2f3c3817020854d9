use lens_opd::diagnostics::{
    ForkGain, TokenResponse, disagreements, gain_report, response_by_group, support_by_depth,
};
use lens_opd::locate::Clock;
use lens_opd::locate::proposal::Proposal;
use lens_opd::methods::MethodName;
use lens_opd::methods::exposure::EpisodeSlot;
use lens_opd::stats::bootstrap::Resampling;

use crate::build;
use crate::support::batch;

#[test]
fn forks_across_the_divergence_range_are_a_parameter() {
    let mut method = build(MethodName::Lens, |sections| {
        sections.locate.clock = Clock::Full;
        sections.locate.proposal = Proposal::KlRange;
        sections.locate.proposals_per_episode = 3;
    });
    let slot = EpisodeSlot { version: 0, batch: 1, episode: 0, reference_actions: None };
    assert_eq!(method.exposure(&slot).horizon, 30);
    let mut batch = batch(21, 1, 1, 5);
    for (turn, kl) in batch.episodes[0].turns.iter_mut().zip([0.5, 0.1, 0.9, 0.3, 0.7]) {
        turn.tokens.iter_mut().for_each(|token| token.kl = Some(kl));
    }
    let located = method.locate(&batch).expect("sound batch");
    let turns: Vec<usize> = located.forks.iter().map(|f| f.turn).collect();
    assert_eq!(turns, [0, 1, 2], "the largest, the middle and the smallest divergence");
}

#[test]
fn support_is_averaged_over_disagreements_by_depth() {
    let mut batch = batch(22, 1, 6, 3);
    for episode in &mut batch.episodes {
        for turn in &mut episode.turns {
            let depth = turn.turn as f32;
            for top in turn.tokens.iter_mut().filter_map(|token| token.top.as_mut()) {
                top.student_at_student = Some(-0.1);
                top.student_at_teacher = Some(-0.1 - depth);
            }
        }
    }
    let depths = support_by_depth(&batch.episodes, None).expect("scored");
    assert_eq!(depths.iter().map(|d| d.turn).collect::<Vec<_>>(), [0, 1, 2]);
    for depth in &depths {
        assert!((depth.support - (-(depth.turn as f64)).exp()).abs() < 1e-6, "{depth:?}");
    }
    let counted: usize = batch
        .episodes
        .iter()
        .flat_map(|episode| &episode.turns)
        .map(|turn| disagreements(turn, None).expect("scored").len())
        .sum();
    assert_eq!(depths.iter().map(|d| d.positions).sum::<usize>(), counted);
}

#[test]
fn gain_report_compares_divergence_with_gain() {
    let fork = |trajectory, divergence, gain| ForkGain { trajectory, divergence, gain };
    let forks = [
        fork(1, 3.0, 0.5),
        fork(1, 1.0, -0.1),
        fork(2, 2.5, 0.0),
        fork(2, 0.5, 0.4),
        fork(3, 9.0, 0.2),
    ];
    let report = gain_report(&forks).expect("finite");
    assert_eq!((report.forks, report.trajectories), (5, 2));
    assert!((report.non_positive - 0.4).abs() < 1e-12);
    assert_eq!(report.top_divergence_is_top_gain, Some(0.5));
    assert!(report.correlation.expect("not constant").abs() < 1.0);
    assert!(gain_report(&[]).is_err());
}

#[test]
fn responses_are_grouped_by_support_and_confidence() {
    let tokens: Vec<TokenResponse> = (0..200_u32)
        .map(|i| {
            let (support, confidence) = (f64::from(i % 2), f64::from((i / 2) % 2));
            let strong = support == 0.0 && confidence == 1.0;
            TokenResponse {
                fork: u64::from(i / 10),
                support,
                confidence,
                response: if strong { 5.0 } else { 1.0 } + f64::from(i % 7) * 0.01,
            }
        })
        .collect();
    let groups =
        response_by_group(&tokens, &Resampling { resamples: 300, ..Resampling::default() })
            .expect("finite");
    assert_eq!(groups.iter().map(|g| g.tokens).sum::<usize>(), 200);
    for group in groups {
        let interval = group.response.expect("no group is empty");
        let strong = !group.high_support && group.high_confidence;
        assert_eq!(interval.low > 4.0, strong, "{group:?}");
        assert!(interval.low <= interval.estimate && interval.estimate <= interval.high);
    }
}
