//! The three diagnostics of section 3, measured on a frozen student (figure 2).
//!
//! Batches are played at full length with forks spread over the range of divergences. What comes of them: how much the
//! student supports the teacher's tokens at every depth (a), whether local divergence predicts future gain (b), and
//! which disagreement tokens of future-beneficial turns one plain OPD update moves (c).

use std::collections::BTreeSet;

use lens_agent::{Episode, score_batch};
use lens_engine::{Engine, Models};
use lens_env::Task;
use lens_opd::diagnostics::{
    DepthSupport, ForkGain, GainReport, ResponseGroup, TokenResponse, disagreements, gain_report,
    response_by_group, support_by_depth,
};
use lens_opd::episode::{ScoredBatch, ScoredEpisode, ScoredToken};
use lens_opd::error::OpdError;
use lens_opd::locate::Clock;
use lens_opd::locate::proposal::Proposal;
use lens_opd::methods::{Driver, MethodName, MethodSections, RunFacts};
use lens_opd::objective::Loss;
use lens_opd::stats::bootstrap::Resampling;
use serde::Serialize;

use crate::error::TrainError;
use crate::iteration::Rollout;
use crate::queue::{Queue, QueuedRow};

/// How a student is examined.
pub struct Examination {
    /// The environments, the sampling and the seed.
    pub rollout: Rollout,
    /// The method's own settings for forks; clock, proposal and refinement are set here.
    pub sections: MethodSections,
    /// Forks per episode.
    pub forks: usize,
    /// The loss of the one update.
    pub loss: Loss,
}

/// What an examination found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Findings {
    /// Episodes played.
    pub episodes: usize,
    /// Figure 2a.
    pub support: Vec<DepthSupport>,
    /// Figure 2b, every complete fork: local divergence and future gain.
    pub forks: Vec<(f64, f64)>,
    /// Figure 2b in numbers; `None` without a complete fork.
    pub gain: Option<GainReport>,
    /// Figure 2c; empty if no fork was beneficial at a turn where the models disagree.
    pub responses: Vec<ResponseGroup>,
}

/// A batch that was played, and where it pays to look again after the update.
struct Probe {
    number: u64,
    episodes: Vec<Episode>,
    judged: ScoredBatch,
    /// Episode and turn of every fork with positive gain.
    beneficial: BTreeSet<(u64, usize)>,
}

impl Examination {
    /// Plays `batches` with the student's present weights, applies one update to it and looks again. The engine must be
    /// fresh from its checkpoint.
    pub fn examine(
        &self,
        engine: &mut dyn Engine,
        batches: Vec<Vec<Task>>,
        mut progress: impl FnMut(usize),
    ) -> Result<Findings, TrainError> {
        let mut sections = self.sections.clone();
        sections.locate.clock = Clock::Full;
        sections.locate.proposal = Proposal::KlRange;
        sections.locate.proposals_per_episode = self.forks;
        (sections.refine.internalize, sections.refine.focus) = (false, false);
        let facts = RunFacts {
            seed: self.rollout.seed,
            max_turns: self.rollout.config.turn_limit,
            steps: 1,
        };
        let mut method = Driver::new(MethodName::Lens, &sections, facts)?;
        let models = engine.models();
        let (mut probes, mut rows, mut gains) = (Vec::new(), Vec::new(), Vec::new());
        for (number, tasks) in (1..).zip(batches) {
            let explored =
                self.rollout.explore(&mut method, &*models, number, tasks, &mut |_| {})?;
            let mut beneficial = BTreeSet::new();
            for fork in &explored.record.forks {
                let Some(gain) = fork.verdict.gain else { continue };
                gains.push(ForkGain {
                    trajectory: cluster(number, fork.request.episode),
                    divergence: fork.request.divergence,
                    gain,
                });
                if gain > 0.0 {
                    beneficial.insert((fork.request.episode, fork.request.turn));
                }
            }
            let of_interest =
                |row: &QueuedRow| beneficial.contains(&(row.row.episode, row.row.turn));
            rows.extend(explored.rows.into_iter().filter(of_interest));
            let (episodes, judged) = (explored.episodes, explored.judged.batch);
            probes.push(Probe { number, episodes, judged, beneficial });
            progress(probes.len());
        }
        let scored: Vec<ScoredEpisode> =
            probes.iter().flat_map(|probe| probe.judged.episodes.clone()).collect();
        let floor = sections.locate.floor;
        let responses = if self.update(engine, &method, rows)? {
            engine.publish(&[])?;
            self.responses(&*engine.models(), &probes, floor)?
        } else {
            Vec::new()
        };
        Ok(Findings {
            episodes: scored.len(),
            support: support_by_depth(&scored, floor)?,
            gain: if gains.is_empty() { None } else { Some(gain_report(&gains).map_err(input)?) },
            forks: gains.iter().map(|fork| (fork.divergence, fork.gain)).collect(),
            responses,
        })
    }

    /// One plain OPD step on all beneficial turns together; whether there were any.
    fn update(
        &self,
        engine: &mut dyn Engine,
        method: &Driver,
        rows: Vec<QueuedRow>,
    ) -> Result<bool, TrainError> {
        let count = rows.len();
        let mut queue = Queue::default();
        queue.push(rows);
        let batch =
            queue.pop(engine.version() + 1, count, u64::MAX, &self.loss, &method.terms())?;
        let Some(batch) = batch else { return Ok(false) };
        let report = engine.learn(&batch.rows)?;
        if report.skipped {
            return Err(TrainError::NotFiniteUpdate);
        }
        Ok(true)
    }

    /// How far the update moved the student toward the teacher's token, at every disagreement of a beneficial turn.
    fn responses(
        &self,
        updated: &dyn Models,
        probes: &[Probe],
        floor: Option<f32>,
    ) -> Result<Vec<ResponseGroup>, TrainError> {
        let mut tokens = Vec::new();
        for probe in probes {
            let config = self.rollout.config.starting_now();
            let after = score_batch(&config, updated, probe.number, &probe.episodes, true)?;
            for (before, after) in probe.judged.episodes.iter().zip(&after.batch.episodes) {
                for (turn, moved) in before.turns.iter().zip(&after.turns) {
                    if !probe.beneficial.contains(&(before.episode, turn.turn)) {
                        continue;
                    }
                    let found = disagreements(turn, floor)
                        .map_err(OpdError::at(before.episode, turn.turn))?;
                    for found in found {
                        let support = |tokens: &[ScoredToken]| {
                            tokens.get(found.position)?.top?.student_at_teacher.or(floor)
                        };
                        let (Some(was), Some(is)) = (support(&turn.tokens), support(&moved.tokens))
                        else {
                            continue;
                        };
                        tokens.push(TokenResponse {
                            fork: cluster(probe.number, before.episode) << 8 | turn.turn as u64,
                            support: found.support,
                            confidence: found.confidence,
                            response: f64::from(is) - f64::from(was),
                        });
                    }
                }
            }
        }
        if tokens.is_empty() {
            return Ok(Vec::new());
        }
        let resampling = Resampling { seed: self.rollout.seed, ..Resampling::default() };
        response_by_group(&tokens, &resampling).map_err(input)
    }
}

/// A trajectory's number among all batches.
fn cluster(batch: u64, episode: u64) -> u64 {
    batch << 24 | episode
}

fn input(reason: lens_opd::error::InputError) -> TrainError {
    TrainError::Measures { what: "diagnostics", reason }
}
