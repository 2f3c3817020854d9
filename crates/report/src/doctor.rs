//! Why is it not learning? Detectors over a run's records.
//!
//! A detector is a function from a run to at most one [`Finding`]: what was seen, what it likely means, what to try. It
//! says nothing where the records are too few to tell; [`MIN_FORKS`] and the constants beside each detector are the
//! thresholds. The list is [`DETECTORS`].

mod evaluation;
mod gate;
mod learning;
mod rollout;

use lens_records::episodes::EpisodeText;
use serde::Serialize;

use crate::run::Run;

/// Fewer forks than this say nothing about the gate.
pub const MIN_FORKS: usize = 20;

/// Batches at the end of a run that count as its present.
pub const RECENT: usize = 8;

/// Batches whose episodes are read.
const EPISODE_BATCHES: usize = 4;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// Likely costs something.
    Warning,
    /// Learning cannot work like this.
    Problem,
}

impl Severity {
    /// The severity in one word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// What a detector found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// A stable name, such as `gate.closed`.
    pub code: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What is the matter, in one sentence.
    pub title: String,
    /// The numbers.
    pub evidence: String,
    /// The likely cause.
    pub cause: &'static str,
    /// What to try.
    pub advice: &'static str,
}

/// A run and its latest episodes.
#[derive(Debug)]
pub struct Patient<'a> {
    /// The run.
    pub run: &'a Run,
    /// Episodes of the last batches.
    pub episodes: Vec<EpisodeText>,
}

/// A detector.
pub type Detector = fn(&Patient<'_>) -> Option<Finding>;

/// All detectors.
pub const DETECTORS: &[Detector] = &[
    gate::closed,
    gate::coin_flip,
    gate::incomplete,
    gate::identical_branches,
    gate::approving_hints,
    learning::diverging,
    learning::saturated_clock,
    learning::nothing_to_internalize,
    learning::stale_rows,
    learning::horizon_out_of_reach,
    rollout::unparsed,
    rollout::growing_length,
    rollout::repetition,
    rollout::entropy_collapse,
    rollout::uniform_teacher,
    evaluation::no_difference,
    evaluation::falling,
];

/// Examines a run; the worst findings first.
pub fn examine(run: &Run) -> Vec<Finding> {
    let patient = Patient { run, episodes: run.last_texts(EPISODE_BATCHES) };
    let mut findings: Vec<Finding> =
        DETECTORS.iter().filter_map(|detector| detector(&patient)).collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    findings
}

/// The findings in at most `lines` lines, for the end of a command; empty when there are none.
pub fn brief(findings: &[Finding], lines: usize) -> Vec<String> {
    let serious: Vec<&Finding> =
        findings.iter().filter(|finding| finding.severity > Severity::Note).collect();
    let shown = if serious.len() > lines { lines.saturating_sub(1) } else { serious.len() };
    let mut brief: Vec<String> = serious[..shown]
        .iter()
        .map(|finding| {
            format!("{}: {} ({})", finding.severity.word(), finding.title, finding.evidence)
        })
        .collect();
    if serious.len() > shown {
        brief.push(format!("and {} more: lens doctor RUN", serious.len() - shown));
    }
    brief
}

/// The first and the last third of values, at least three each; `None` with fewer.
fn thirds(values: &[f64]) -> Option<(&[f64], &[f64])> {
    let third = values.len() / 3;
    (third >= 3).then(|| (&values[..third], &values[values.len() - third..]))
}
