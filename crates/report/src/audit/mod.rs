//! What an audit says: how good each gate is, how much each rule finds, how much was learned.

mod figures;
mod gates;
mod text;

use std::collections::BTreeMap;

use lens_opd::stats::bootstrap::{Interval, Resampling, clustered_statistic};
use lens_records::audit::{AfterLine, AuditLine, AuditSettings, mean_difference};
use serde::Serialize;

pub use figures::figures;
pub use gates::{GateQuality, Variant};
pub use text::print;

/// Everything an audit found.
#[derive(Debug, Clone, Serialize)]
pub struct AuditReport {
    /// What was measured.
    pub settings: AuditSettings,
    /// Forks that the configured rule proposes, those that could not be run left out. What follows is of them, but for
    /// `proposals`: other turns of the episodes that are audited whole are none that the method would fork at.
    pub forks: usize,
    /// Forks that could not be run, of all turns audited.
    pub dropped: usize,
    /// Share solved without a hint.
    pub base_success: Option<Interval>,
    /// Share solved with one.
    pub guided_success: Option<Interval>,
    /// Mean change in success probability that a hint makes.
    pub utility: Option<Interval>,
    /// Share of forks whose hint helps.
    pub helpful: Option<Interval>,
    /// Share of forks whose hint leaves the action as it was.
    pub unchanged: Option<f64>,
    /// Every evaluator with every gate.
    pub gates: Vec<GateQuality>,
    /// What every rule of proposal finds.
    pub proposals: Vec<ProposalUtility>,
    /// What the student after training does by itself; empty without one.
    pub learned: Vec<Learned>,
}

/// What a rule of proposal finds, on episodes of which every turn was audited.
#[derive(Debug, Clone, Serialize)]
pub struct ProposalUtility {
    /// The rule.
    pub rule: String,
    /// Forks it asks for, per episode.
    pub forks_per_episode: f64,
    /// Mean change in success probability at the turns it chooses.
    pub utility: Option<Interval>,
}

/// How much of the hints' effect a trained student has without them.
#[derive(Debug, Clone, Serialize)]
pub struct Learned {
    /// Which forks: those the configured gate accepts, those it refuses, all.
    pub group: String,
    /// How many.
    pub forks: usize,
    /// Share solved before training, without a hint.
    pub base: f64,
    /// Share solved before training, with it.
    pub guided: f64,
    /// Share solved after training, without it.
    pub after: f64,
    /// Share solved after training, with it.
    pub after_guided: f64,
    /// What the hint is worth before training.
    pub utility: Option<Interval>,
    /// What training gained in the same states.
    pub gained: Option<Interval>,
    /// What the hint is worth after training.
    pub left: Option<Interval>,
}

/// How intervals are drawn: whole episodes, because forks of one episode are alike.
fn resampling() -> Resampling {
    Resampling { resamples: 2_000, ..Resampling::default() }
}

/// The mean of a value over forks, with its interval over episodes.
fn mean_over<'a>(
    lines: &[&'a AuditLine],
    value: impl Fn(&'a AuditLine) -> Option<f64>,
) -> Option<Interval> {
    clustered_statistic(
        lines,
        |line| line.episode,
        &resampling(),
        |drawn| crate::stats::mean(drawn.iter().filter_map(|line| value(line))),
    )
}

impl AuditReport {
    /// What the lines of an audit say; `after` are those of the student after training, if it was played.
    pub fn new(settings: AuditSettings, lines: &[AuditLine], after: &[AfterLine]) -> Self {
        let all_run = lines.iter().filter(|line| !line.truth.is_empty());
        let dropped = lines.len() - all_run.clone().count();
        let run: Vec<&AuditLine> = all_run.filter(|line| line.proposed).collect();
        let solved = |side: fn(&(bool, bool)) -> bool| {
            move |line: &AuditLine| share(line.truth.iter().map(side))
        };
        let unchanged = run.iter().map(|line| line.original == line.guided);
        Self {
            forks: run.len(),
            dropped,
            base_success: mean_over(&run, solved(|pair| pair.0)),
            guided_success: mean_over(&run, solved(|pair| pair.1)),
            utility: mean_over(&run, AuditLine::utility),
            helpful: mean_over(&run, |line| {
                line.utility().map(|utility| f64::from(u8::from(utility > 0.0)))
            }),
            unchanged: share(unchanged),
            gates: gates::qualities(&settings, &run),
            proposals: proposals(lines),
            learned: learned(&settings, &run, after),
            settings,
        }
    }
}

fn share(of: impl Iterator<Item = bool>) -> Option<f64> {
    crate::stats::mean(of.map(|yes| f64::from(u8::from(yes))))
}

/// What the rules find. A random turn is the mean over the episode's turns. The best turn is chosen on one half of the
/// continuations and measured on the other, so that luck is not taken for utility. A fork that could not be run changes
/// nothing.
fn proposals(lines: &[AuditLine]) -> Vec<ProposalUtility> {
    let whole: Vec<&AuditLine> = lines.iter().filter(|line| line.whole).collect();
    let utility = |line: &AuditLine| line.utility().unwrap_or(0.0);
    let mut episodes: BTreeMap<u64, Vec<&AuditLine>> = BTreeMap::new();
    for line in &whole {
        episodes.entry(line.episode).or_default().push(line);
    }
    if episodes.is_empty() {
        return Vec::new();
    }
    let episodes: Vec<Vec<&AuditLine>> = episodes.into_values().collect();
    let of_episodes = |value: &dyn Fn(&[&AuditLine]) -> Option<f64>| {
        let values: Vec<f64> = episodes.iter().filter_map(|turns| value(turns)).collect();
        clustered_statistic(
            &values.iter().copied().enumerate().collect::<Vec<_>>(),
            |(index, _)| *index as u64,
            &resampling(),
            |drawn| crate::stats::mean(drawn.iter().map(|(_, value)| *value)),
        )
    };
    let rule = |name: &'static str| {
        move |turns: &[&AuditLine]| {
            let chosen = turns.iter().find(|line| line.proposals.iter().any(|one| one == name));
            chosen.map(|line| utility(line))
        }
    };
    let random = |turns: &[&AuditLine]| crate::stats::mean(turns.iter().map(|line| utility(line)));
    let best = |turns: &[&AuditLine]| {
        let half = |line: &AuditLine| line.truth.len() / 2;
        let score = |line: &AuditLine| mean_difference(&line.truth[..half(line)]).unwrap_or(0.0);
        // Of equal turns the earliest, as the rules of proposal have it.
        let chosen = turns.iter().rev().max_by(|a, b| score(a).total_cmp(&score(b)))?;
        Some(mean_difference(&chosen.truth[half(chosen)..]).unwrap_or(0.0))
    };
    let named = |rule: &str, utility| ProposalUtility {
        rule: rule.to_owned(),
        forks_per_episode: 1.0,
        utility,
    };
    vec![
        named("top-kl", of_episodes(&rule("top-kl"))),
        named("last-turn", of_episodes(&rule("last-turn"))),
        named("random", of_episodes(&random)),
        ProposalUtility {
            forks_per_episode: whole.len() as f64 / episodes.len() as f64,
            ..named("all turns", mean_over(&whole, |line| Some(utility(line))))
        },
        named("best turn", of_episodes(&best)),
    ]
}

fn learned(settings: &AuditSettings, run: &[&AuditLine], after: &[AfterLine]) -> Vec<Learned> {
    let by_turn: BTreeMap<(u64, u64), &AfterLine> =
        after.iter().map(|line| ((line.episode, line.turn), line)).collect();
    let both: Vec<(&AuditLine, &AfterLine)> = run
        .iter()
        .filter_map(|line| Some((*line, *by_turn.get(&(line.episode, line.turn))?)))
        .filter(|(_, after)| !after.truth.is_empty())
        .collect();
    let configured = gates::configured(settings);
    let mut found = Vec::new();
    for (group, verdict) in [("accepted", Some(true)), ("refused", Some(false)), ("all", None)] {
        let belongs = |line| verdict.is_none() || configured.accepts(line) == verdict;
        let forks: Vec<_> = both.iter().copied().filter(|(line, _)| belongs(line)).collect();
        let solved = |pairs: &[(bool, bool)], side: fn(&(bool, bool)) -> bool| {
            share(pairs.iter().map(side)).unwrap_or(0.0)
        };
        let mean = |value: &dyn Fn(&(&AuditLine, &AfterLine)) -> f64| {
            crate::stats::mean(forks.iter().map(value)).unwrap_or(0.0)
        };
        let interval = |value: &dyn Fn(&(&AuditLine, &AfterLine)) -> f64| {
            clustered_statistic(
                &forks,
                |(line, _)| line.episode,
                &resampling(),
                |drawn| crate::stats::mean(drawn.iter().map(|fork| value(fork))),
            )
        };
        if forks.is_empty() {
            continue;
        }
        found.push(Learned {
            group: group.to_owned(),
            forks: forks.len(),
            base: mean(&|(line, _)| solved(&line.truth, |pair| pair.0)),
            guided: mean(&|(line, _)| solved(&line.truth, |pair| pair.1)),
            after: mean(&|(_, after)| solved(&after.truth, |pair| pair.0)),
            after_guided: mean(&|(_, after)| solved(&after.truth, |pair| pair.1)),
            utility: interval(&|(line, _)| line.utility().unwrap_or(0.0)),
            gained: interval(&|(line, after)| {
                solved(&after.truth, |pair| pair.0) - solved(&line.truth, |pair| pair.0)
            }),
            left: interval(&|(_, after)| mean_difference(&after.truth).unwrap_or(0.0)),
        });
    }
    found
}
