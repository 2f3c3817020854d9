//! What an audit says about gates whose answers are known.

use lens_records::audit::{
    AfterLine, AuditLine, AuditSettings, GateDraws, GateSettings, OutcomeDraws,
};
use lens_report::audit::{AuditReport, GateQuality, figures, print};

const CONTINUATIONS: usize = 10;

fn settings() -> AuditSettings {
    AuditSettings {
        format: 2,
        student: "student".to_owned(),
        configuration: "hash".to_owned(),
        inputs: "another".to_owned(),
        seed: 1,
        forks: 40,
        episodes: 0,
        continuations: CONTINUATIONS as u64,
        pairs: 4,
        turns: [3, 8],
        gate: GateSettings {
            evaluator: "teacher-likelihood".to_owned(),
            coupling: "independent".to_owned(),
            pairs: 1,
            margin: 0.0,
            outcome_first: false,
        },
    }
}

/// A fork whose hint solves `guided` of ten continuations where `base` are solved without it.
fn fork(episode: u64, turn: u64, (base, guided): (usize, usize)) -> AuditLine {
    let utility = (guided as f64 - base as f64) / CONTINUATIONS as f64;
    let gates = |evaluator: &'static str, gain: f64| -> Vec<GateDraws> {
        let each = [("independent", 3), ("independent", 8), ("common", 3), ("common", 8)];
        let draws = each.map(|(coupling, turns)| GateDraws {
            evaluator: evaluator.to_owned(),
            coupling: coupling.to_owned(),
            turns,
            gains: vec![Some(gain); 4],
        });
        draws.into()
    };
    // The paper's value is right, regret has it the wrong way around, turn means know nothing.
    let all = [
        gates("teacher-likelihood", utility),
        gates("regret", -utility),
        gates("turn-mean", if episode.is_multiple_of(2) { 0.1 } else { -0.1 }),
    ];
    AuditLine {
        format: 2,
        episode,
        turn,
        proposed: true,
        truth: (0..CONTINUATIONS).map(|n| (n < base, n < guided)).collect(),
        gates: all.concat(),
        outcomes: vec![OutcomeDraws {
            coupling: "common".to_owned(),
            differences: vec![if utility > 0.0 { 1 } else { -1 }; 4],
        }],
        ..AuditLine::default()
    }
}

fn quality<'r>(report: &'r AuditReport, evaluator: &str) -> &'r GateQuality {
    let found = report.gates.iter().find(|quality| {
        quality.variant.evaluator == evaluator
            && quality.variant.gate().starts_with("independent, 1")
    });
    found.expect("every evaluator is tried")
}

#[test]
fn a_gate_that_follows_the_truth_is_told_from_one_that_does_not() {
    // Half of the hints help by 40 points, half hurt by 20; independent of whether the episode's number is even.
    let lines: Vec<AuditLine> = (0..40)
        .map(|episode| fork(episode, 0, if episode % 4 < 2 { (2, 6) } else { (3, 1) }))
        .collect();
    let report = AuditReport::new(settings(), &lines, &[]);
    assert_eq!((report.forks, report.dropped), (40, 0));
    let utility = report.utility.expect("forks").estimate;
    assert!((utility - 0.1).abs() < 1e-9, "{utility}");
    let right = quality(&report, "teacher-likelihood");
    let of = |interval: &Option<lens_opd::stats::bootstrap::Interval>| {
        interval.as_ref().expect("defined").estimate
    };
    assert_eq!((right.accepted, of(&right.precision), of(&right.recall)), (20, 1.0, 1.0));
    assert!((of(&right.correlation) - 1.0).abs() < 1e-9);
    assert!((of(&right.accepted_utility) - 0.4).abs() < 1e-9);
    assert!((of(&right.refused_utility) + 0.2).abs() < 1e-9);
    let wrong = quality(&report, "regret");
    assert_eq!((of(&wrong.precision), of(&wrong.recall)), (0.0, 0.0));
    assert!((of(&wrong.correlation) + 1.0).abs() < 1e-9);
    let blind = quality(&report, "turn-mean").correlation.expect("defined");
    assert!(blind.low < 0.0 && blind.high > 0.0, "{blind:?}");
    let text = print(&report);
    assert!(text.contains("teacher-likelihood") && text.contains("+1.00"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let drawn = figures(&report);
    assert!(!drawn[0].is_empty() && drawn[1].is_empty() && drawn[2].is_empty());
    assert!(drawn[0].svg().starts_with("<svg"));
}

#[test]
fn outcomes_that_are_weighed_first_overrule_a_wrong_value() {
    let lines: Vec<AuditLine> = (0..20).map(|episode| fork(episode, 0, (1, 5))).collect();
    let report = AuditReport::new(settings(), &lines, &[]);
    let first = report.gates.iter().find(|quality| {
        quality.variant.outcome_first && quality.variant.gate().starts_with("common, 4 pairs, 3")
    });
    assert_eq!(first.expect("it is tried").accepted, 20);
}

#[test]
fn rules_of_proposal_are_compared_on_whole_episodes() {
    // In every episode the first turn's hint helps, the last turn's hurts; divergence points to the first.
    let mut lines = Vec::new();
    for episode in 0..6 {
        for turn in 0..4 {
            let solved = match turn {
                0 => (1, 6),
                3 => (5, 3),
                _ => (4, 4),
            };
            let rules: &[&str] = match turn {
                0 => &["top-kl"],
                3 => &["last-turn"],
                _ => &[],
            };
            let proposals = rules.iter().map(|&rule| rule.to_owned()).collect();
            let proposed = turn == 0;
            lines.push(AuditLine {
                whole: true,
                proposed,
                proposals,
                ..fork(episode, turn, solved)
            });
        }
    }
    // In two more, the turn of largest divergence could not be forked.
    for episode in 6..8 {
        let proposals = vec!["top-kl".to_owned()];
        let dropped = AuditLine { truth: Vec::new(), ..fork(episode, 0, (0, 0)) };
        lines.push(AuditLine { whole: true, proposals, ..dropped });
    }
    let report = AuditReport::new(settings(), &lines, &[]);
    let utility = |rule: &str| {
        let found = report.proposals.iter().find(|one| one.rule == rule).expect("compared");
        found.utility.expect("measured").estimate
    };
    for (rule, expected) in
        [("top-kl", 0.375), ("last-turn", -0.2), ("random", 0.05625), ("all turns", 1.8 / 26.0)]
    {
        assert!((utility(rule) - expected).abs() < 1e-9, "{rule}: {}", utility(rule));
    }
    assert!(!figures(&report)[1].is_empty());
    // The method forks at the first turn alone, so the others tell nothing about its gate.
    assert_eq!((report.forks, report.dropped), (6, 2));
    assert!((report.utility.expect("forks").estimate - 0.5).abs() < 1e-9);
}

#[test]
fn what_was_learned_is_told_by_what_the_gate_says() {
    let lines: Vec<AuditLine> = (0..10)
        .map(|episode| fork(episode, 0, if episode < 6 { (2, 6) } else { (3, 1) }))
        .collect();
    let after: Vec<AfterLine> = lines
        .iter()
        .map(|line| AfterLine {
            format: 2,
            episode: line.episode,
            turn: line.turn,
            truth: (0..CONTINUATIONS).map(|n| (n < 5, n < 6)).collect(),
        })
        .collect();
    let report = AuditReport::new(settings(), &lines, &after);
    let accepted = report.learned.iter().find(|group| group.group == "accepted").expect("some");
    assert_eq!(accepted.forks, 6);
    assert!((accepted.utility.expect("measured").estimate - 0.4).abs() < 1e-9);
    assert!((accepted.gained.expect("measured").estimate - 0.3).abs() < 1e-9);
    assert!((accepted.left.expect("measured").estimate - 0.1).abs() < 1e-9);
    assert!(!figures(&report)[2].is_empty());
}
