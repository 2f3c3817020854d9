//! The truth about the gate: what a hint really changes, by playing both branches to the end many times.
//!
//! A fork is judged by a few short futures; here its state is restored again and again, and both branches go on to the end
//! of the task. The share solved with the hint less the share solved without it is what the gate is meant to find. The
//! draws that the gates are tried with and the draws of the truth come from different streams.

use lens_agent::{Episode, ForkConfig, ForkRun, Plan, RolloutConfig, play, run_forks, score_batch};
use lens_engine::{Models, Sampling};
use lens_env::Task;
use lens_opd::episode::ScoredBatch;
use lens_opd::error::OpdError;
use lens_opd::locate::proposal::{Candidate, Proposal, ProposalKey, candidates, propose};
use lens_opd::methods::exposure::Exposure;
use lens_opd::random::Purpose;
use lens_opd::validate::Validate;
use lens_opd::validate::fork::{
    Branch, BranchEnd, Coupling, FinishedFork, ForkRequest, ForkResult, Pair,
};
use lens_opd::validate::gate::{Completeness, Terminal, judge_against};
use lens_opd::validate::value::{BranchValue, Stages};
use lens_records::FORMAT;
use lens_records::audit::{AfterLine, AuditLine, GateDraws, OutcomeDraws};

use crate::error::TrainError;

/// Pairs that every gate is tried with.
pub const GATE_PAIRS: usize = 4;
/// Continuation turns of the gate that looks further than the configured one.
pub const LONG_TURNS: usize = 8;
/// Tells the streams of the truth from those of the gates.
const TRUTH: u64 = 0x7275_7468_0000_0000;
/// The rules that are compared; a random turn is the mean over all of them.
const RULES: [(Proposal, &str); 2] =
    [(Proposal::TopKl, "top-kl"), (Proposal::LastTurn, "last-turn")];

/// How a student is audited.
pub struct Audit {
    /// The environments and their limits.
    pub config: RolloutConfig,
    /// How the student's tokens are drawn.
    pub sampling: Sampling,
    /// The seed of all draws.
    pub seed: u64,
    /// How the configured method judges its forks.
    pub validate: Validate,
    /// How it proposes turns.
    pub proposal: Proposal,
    /// Continuations played to the end from each branch.
    pub continuations: usize,
}

/// A turn to audit.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// The episode.
    pub episode: u64,
    /// The turn and its divergence.
    pub candidate: Candidate,
    /// Whether every turn of the episode is audited.
    pub whole: bool,
    /// Whether the configured rule proposes it.
    pub proposed: bool,
    /// The rules that propose it.
    pub proposals: Vec<String>,
}

/// The episodes whose turns are audited, and which turns those are.
pub struct Prepared {
    episodes: Vec<Episode>,
    stages: Stages,
    /// The turns, by episode.
    pub places: Vec<Place>,
}

impl Audit {
    /// The gates' continuation turns: those configured, and more.
    pub fn turns(&self) -> [usize; 2] {
        let short = self.validate.continuation_turns;
        [short, LONG_TURNS.max(short)]
    }

    /// Plays the tasks at full length and chooses the turns: all of the first `whole` episodes, one of each other.
    /// `watch` is told how many episodes have ended.
    pub fn prepare(
        &self,
        models: &dyn Models,
        tasks: Vec<Task>,
        whole: usize,
        watch: &mut dyn FnMut(usize, usize),
    ) -> Result<Prepared, TrainError> {
        let config = self.config.starting_now();
        let plans = (0..).zip(tasks).map(|(key, task)| Plan {
            key,
            task,
            exposure: Exposure::student(config.turn_limit),
            reference: None,
            seed: self.seed,
            batch: 1,
            purpose: Purpose::Rollout,
            sampling: self.sampling,
        });
        let episodes = play(&config, models.student(), None, plans.collect(), true, watch)?;
        let judged = score_batch(&config, models, 1, &episodes, true)?.batch;
        let places = self.places(&judged, whole)?;
        Ok(Prepared { stages: Stages::of(&judged), episodes, places })
    }

    fn places(&self, judged: &ScoredBatch, whole: usize) -> Result<Vec<Place>, OpdError> {
        let mut places = Vec::new();
        for (index, episode) in judged.episodes.iter().enumerate() {
            let all = candidates(episode, judged.divergence)?;
            let key = ProposalKey { seed: self.seed, batch: 1, episode: episode.episode };
            let chosen = |rule| propose(rule, &all, 1, key);
            let configured = chosen(self.proposal);
            let audited = if index < whole { all.clone() } else { configured.clone() };
            for candidate in audited {
                let proposes = |rule: &(Proposal, &str)| chosen(rule.0).contains(&candidate);
                let rules = RULES.iter().filter(|rule| proposes(rule));
                places.push(Place {
                    episode: episode.episode,
                    candidate,
                    whole: index < whole,
                    proposed: configured.contains(&candidate),
                    proposals: rules.map(|rule| rule.1.to_owned()).collect(),
                });
            }
        }
        Ok(places)
    }

    /// Audits turns, all at once.
    pub fn audit(
        &self,
        models: &dyn Models,
        prepared: &Prepared,
        places: &[Place],
    ) -> Result<Vec<AuditLine>, TrainError> {
        let truth = self.truth(models, prepared, places)?;
        let mut lines: Vec<AuditLine> =
            places.iter().zip(&truth).map(|(place, run)| line(prepared, place, run)).collect();
        for coupling in [Coupling::Independent, Coupling::Common] {
            let gates = self.runs(models, prepared, places, self.seed, |request| ForkRequest {
                pairs: GATE_PAIRS,
                coupling,
                continuation_turns: self.turns()[1],
                favorites: true,
                ..request
            })?;
            for (line, run) in lines.iter_mut().zip(&gates) {
                if let ForkResult::Pair(pair) = &run.finished.result {
                    line.gates.extend(self.gains(&prepared.stages, run, pair, coupling)?);
                    line.outcomes.push(OutcomeDraws {
                        coupling: coupling_word(coupling).to_owned(),
                        differences: differences(pair),
                    });
                }
            }
        }
        Ok(lines)
    }

    /// Plays the same turns with another student: what of the hints it does by itself.
    pub fn after(
        &self,
        models: &dyn Models,
        prepared: &Prepared,
        places: &[Place],
    ) -> Result<Vec<AfterLine>, TrainError> {
        let truth = self.truth(models, prepared, places)?;
        let line = |(place, run): (&Place, &ForkRun)| AfterLine {
            format: FORMAT,
            episode: place.episode,
            turn: place.candidate.turn as u64,
            truth: pair_of(run).map(outcomes).unwrap_or_default(),
        };
        Ok(places.iter().zip(&truth).map(line).collect())
    }

    /// Both branches to the end, many times, unjudged.
    fn truth(
        &self,
        models: &dyn Models,
        prepared: &Prepared,
        places: &[Place],
    ) -> Result<Vec<ForkRun>, TrainError> {
        self.runs(models, prepared, places, self.seed ^ TRUTH, |request| ForkRequest {
            pairs: self.continuations,
            coupling: Coupling::Common,
            continuation_turns: 0,
            favorites: false,
            ..request
        })
    }

    fn runs(
        &self,
        models: &dyn Models,
        prepared: &Prepared,
        places: &[Place],
        seed: u64,
        change: impl Fn(ForkRequest) -> ForkRequest,
    ) -> Result<Vec<ForkRun>, TrainError> {
        let requests: Vec<ForkRequest> = places
            .iter()
            .map(|place| {
                let hint = self.validate.hint();
                let request = self.validate.request(place.episode, place.candidate, hint);
                ForkRequest { play_on: true, ..change(request) }
            })
            .collect();
        let forks = ForkConfig { seed, batch: 1, sampling: self.sampling, snapshot_targets: false };
        let config = self.config.starting_now();
        Ok(run_forks(&config, &forks, models, &prepared.episodes, &requests)?)
    }

    /// What every evaluator says of every pair, after the short and after the long continuation.
    fn gains(
        &self,
        stages: &Stages,
        run: &ForkRun,
        pair: &Pair,
        coupling: Coupling,
    ) -> Result<Vec<GateDraws>, TrainError> {
        let mut found = Vec::new();
        for turns in self.turns() {
            for evaluator in BranchValue::ALL {
                let rules = Validate {
                    evaluator,
                    continuation_turns: turns,
                    pairs: 1,
                    margin: 0.0,
                    terminal: Terminal::Exclude,
                    completeness: Completeness::Natural,
                    ..self.validate
                };
                let gain = |(base, guided): (&Branch, &Branch)| {
                    let pair = Pair {
                        base: shortened(base, turns),
                        guided: shortened(guided, turns),
                        internalization_gap: None,
                        repeats: Vec::new(),
                    };
                    let result = ForkResult::Pair(Box::new(pair));
                    let fork = FinishedFork { result, ..run.finished.clone() };
                    judge_against(&fork, &rules, stages).map(|verdict| verdict.gain)
                };
                found.push(GateDraws {
                    evaluator: evaluator.as_str().to_owned(),
                    coupling: coupling_word(coupling).to_owned(),
                    turns: turns as u64,
                    gains: pair.draws().map(gain).collect::<Result<_, _>>()?,
                });
            }
        }
        Ok(found)
    }
}

/// The word of a coupling in configurations and records.
pub fn coupling_word(coupling: Coupling) -> &'static str {
    match coupling {
        Coupling::Independent => "independent",
        Coupling::Common => "common",
    }
}

/// A branch as a shorter continuation would have it.
fn shortened(branch: &Branch, turns: usize) -> Branch {
    let continuation = branch.continuation.iter().take(turns).cloned().collect();
    Branch { continuation, ..branch.clone() }
}

fn pair_of(run: &ForkRun) -> Option<&Pair> {
    match &run.finished.result {
        ForkResult::Pair(pair) => Some(pair),
        ForkResult::Dropped(_) => None,
    }
}

fn is_known((base, guided): &(&Branch, &Branch)) -> bool {
    !base.end.is_cut() && !guided.end.is_cut()
}

fn solved(branch: &Branch) -> bool {
    branch.end == BranchEnd::Ended { success: true }
}

/// Whether each pair solved the task, without and with the hint. Pairs that were cut are left out.
fn outcomes(pair: &Pair) -> Vec<(bool, bool)> {
    pair.draws().filter(is_known).map(|(base, guided)| (solved(base), solved(guided))).collect()
}

/// Solved with the hint less solved without, pair by pair. A pair that was cut has 0, so that every pair has the same
/// place here and among the gains.
fn differences(pair: &Pair) -> Vec<i8> {
    let difference = |(base, guided): (&Branch, &Branch)| {
        if is_known(&(base, guided)) {
            i8::from(solved(guided)) - i8::from(solved(base))
        } else {
            0
        }
    };
    pair.draws().map(difference).collect()
}

/// What is known of a turn before any gate is tried.
fn line(prepared: &Prepared, place: &Place, run: &ForkRun) -> AuditLine {
    let episode = prepared.episodes.iter().find(|one| one.plan.key == place.episode);
    let turn =
        episode.and_then(|episode| episode.turns.iter().find(|t| t.number == place.candidate.turn));
    let dropped = match &run.finished.result {
        ForkResult::Dropped(reason) => Some(format!("{reason:?}")),
        ForkResult::Pair(_) => None,
    };
    AuditLine {
        format: FORMAT,
        episode: place.episode,
        turn: place.candidate.turn as u64,
        task: episode.map(|episode| episode.plan.task.id.clone()).unwrap_or_default(),
        divergence: place.candidate.divergence,
        whole: place.whole,
        proposed: place.proposed,
        proposals: place.proposals.clone(),
        dropped,
        hint: run.hint.clone(),
        original: turn.and_then(|turn| turn.action.clone()),
        guided: run.guided.turns.first().and_then(|turn| turn.action.clone()),
        truth: pair_of(run).map(outcomes).unwrap_or_default(),
        gates: Vec::new(),
        outcomes: Vec::new(),
    }
}
