//! How good a gate is: what it accepts against what is true.

use lens_opd::stats::bootstrap::{Interval, clustered_statistic};
use lens_opd::stats::rank_correlation;
use lens_opd::validate::gate::clears;
use lens_opd::validate::value::BranchValue;
use lens_records::audit::{AuditLine, AuditSettings};
use serde::Serialize;

use super::resampling;

/// A way to judge a fork.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Variant {
    /// What a continuation is worth.
    pub evaluator: String,
    /// `independent` or `common`.
    pub coupling: String,
    /// Pairs the gain is a mean of.
    pub pairs: u64,
    /// Continuation turns.
    pub turns: u64,
    /// Standard errors above 0.
    pub margin: f64,
    /// Whether outcomes are weighed before values.
    pub outcome_first: bool,
}

impl Variant {
    /// The gate without its evaluator, in words.
    pub fn gate(&self) -> String {
        let pairs =
            if self.pairs == 1 { "1 pair".to_owned() } else { format!("{} pairs", self.pairs) };
        let mut words = vec![self.coupling.clone(), pairs, format!("{} turns", self.turns)];
        if self.margin > 0.0 {
            words.push(format!("margin {}", self.margin));
        }
        words.join(", ")
    }

    /// The evaluator, in words.
    pub fn value(&self) -> String {
        if self.outcome_first {
            format!("outcome, then {}", self.evaluator)
        } else {
            self.evaluator.clone()
        }
    }

    /// The mean gain and its standard error; `None` if no pair is complete.
    fn gain(&self, line: &AuditLine) -> Option<(f64, Option<f64>)> {
        let draws = line.gates.iter().find(|draws| {
            draws.evaluator == self.evaluator
                && draws.coupling == self.coupling
                && draws.turns == self.turns
        })?;
        let gains: Vec<f64> =
            draws.gains.iter().take(self.pairs as usize).flatten().copied().collect();
        let summary = lens_opd::stats::summary(&gains).ok()?;
        Some((summary.mean, summary.std.map(|std| std / (summary.count as f64).sqrt())))
    }

    /// The balance of outcomes where they are weighed first.
    fn balance(&self, line: &AuditLine) -> i64 {
        let of_coupling = line.outcomes.iter().find(|draws| draws.coupling == self.coupling);
        let Some(draws) = of_coupling.filter(|_| self.outcome_first) else { return 0 };
        draws.differences.iter().take(self.pairs as usize).map(|&one| i64::from(one)).sum()
    }

    /// Whether the gate opens; `None` where it has nothing to go by.
    pub fn accepts(&self, line: &AuditLine) -> Option<bool> {
        let balance = self.balance(line);
        if balance != 0 {
            return Some(balance > 0);
        }
        self.gain(line).map(|(gain, error)| clears(gain, error, self.margin))
    }

    /// What forks are ranked by: outcomes first where they count, then the gain.
    fn rank(&self, line: &AuditLine) -> Option<f64> {
        let gain = self.gain(line).map(|(gain, _)| gain);
        match self.balance(line) {
            0 => gain,
            // No gain of a mean log-likelihood reaches a thousand nats.
            balance => Some(1e3 * balance as f64 + gain.unwrap_or(0.0)),
        }
    }
}

/// How good an evaluator with a gate is.
#[derive(Debug, Clone, Serialize)]
pub struct GateQuality {
    /// The evaluator and the gate.
    pub variant: Variant,
    /// Forks it could judge.
    pub forks: usize,
    /// Forks it accepts.
    pub accepted: usize,
    /// Share of accepted forks whose hint helps.
    pub precision: Option<Interval>,
    /// Share of forks whose hint helps that are accepted.
    pub recall: Option<Interval>,
    /// Spearman's rank correlation of gain and truth.
    pub correlation: Option<Interval>,
    /// Mean change in success probability of accepted forks.
    pub accepted_utility: Option<Interval>,
    /// Mean change in success probability of refused forks.
    pub refused_utility: Option<Interval>,
}

/// A fork as a gate sees it.
struct Judged {
    episode: u64,
    utility: f64,
    accepted: bool,
    rank: f64,
}

/// The gates that are compared: the paper's, and one change after the other.
fn gates(settings: &AuditSettings) -> Vec<Variant> {
    let [short, long] = settings.turns;
    let gate = |coupling: &str, pairs, turns, margin| Variant {
        evaluator: String::new(),
        coupling: coupling.to_owned(),
        pairs,
        turns,
        margin,
        outcome_first: false,
    };
    let many = settings.pairs;
    vec![
        gate("independent", 1, short, 0.0),
        gate("independent", many, short, 0.0),
        gate("common", 1, short, 0.0),
        gate("common", many, short, 0.0),
        gate("common", many, long, 0.0),
        gate("common", many, long, 1.0),
    ]
}

/// The gate of the configured method, with as many pairs as were drawn.
pub(super) fn configured(settings: &AuditSettings) -> Variant {
    let gate = &settings.gate;
    Variant {
        evaluator: gate.evaluator.clone(),
        coupling: gate.coupling.clone(),
        pairs: gate.pairs.min(settings.pairs),
        turns: settings.turns[0],
        margin: gate.margin,
        outcome_first: gate.outcome_first,
    }
}

/// Every evaluator with every gate.
pub(super) fn qualities(settings: &AuditSettings, run: &[&AuditLine]) -> Vec<GateQuality> {
    let mut found = Vec::new();
    for gate in gates(settings) {
        let plain = BranchValue::ALL.iter().map(|value| (value.as_str(), false));
        let first = [BranchValue::TeacherLikelihood, BranchValue::Advantage];
        let first = first.iter().map(|value| (value.as_str(), true));
        for (evaluator, outcome_first) in plain.chain(first) {
            let variant =
                Variant { evaluator: evaluator.to_owned(), outcome_first, ..gate.clone() };
            found.push(quality(variant, run));
        }
    }
    found
}

fn quality(variant: Variant, run: &[&AuditLine]) -> GateQuality {
    let judged: Vec<Judged> = run
        .iter()
        .filter_map(|line| {
            Some(Judged {
                episode: line.episode,
                utility: line.utility()?,
                accepted: variant.accepts(line)?,
                rank: variant.rank(line)?,
            })
        })
        .collect();
    let interval = |statistic: &dyn Fn(&[&Judged]) -> Option<f64>| {
        clustered_statistic(&judged, |fork| fork.episode, &resampling(), statistic)
    };
    let mean_of = |accepted: bool| {
        move |forks: &[&Judged]| {
            let chosen = forks.iter().filter(|fork| fork.accepted == accepted);
            crate::stats::mean(chosen.map(|fork| fork.utility))
        }
    };
    let share = |forks: &mut dyn Iterator<Item = bool>| {
        crate::stats::mean(forks.map(|yes| f64::from(u8::from(yes))))
    };
    GateQuality {
        forks: judged.len(),
        accepted: judged.iter().filter(|fork| fork.accepted).count(),
        precision: interval(&|forks| {
            share(&mut forks.iter().filter(|f| f.accepted).map(|f| f.utility > 0.0))
        }),
        recall: interval(&|forks| {
            share(&mut forks.iter().filter(|f| f.utility > 0.0).map(|f| f.accepted))
        }),
        correlation: interval(&|forks| {
            let ranks: Vec<f64> = forks.iter().map(|fork| fork.rank).collect();
            let truths: Vec<f64> = forks.iter().map(|fork| fork.utility).collect();
            rank_correlation(&ranks, &truths).ok().flatten()
        }),
        accepted_utility: interval(&mean_of(true)),
        refused_utility: interval(&mean_of(false)),
        variant,
    }
}
