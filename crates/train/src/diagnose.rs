//! The three diagnostics of section 3, measured on a frozen student (figure 2).
//!
//! Batches are played at full length with forks spread over the range of divergences. What comes of them: how much the
//! student supports the teacher's tokens at every depth (a), whether local divergence predicts future gain (b), and
//! which disagreement tokens of future-beneficial turns one plain OPD update moves (c).

use std::collections::BTreeSet;
use std::sync::Arc;

use lens_agent::{Episode, score_batch};
use lens_engine::{Learner, Policy, Teacher};
use lens_env::Task;
use lens_opd::diagnostics::{
    DepthSupport, ForkGain, GainReport, ResponseGroup, TokenResponse, disagreements, gain_report,
    response_by_group, support_by_depth,
};
use lens_opd::episode::{ScoredBatch, ScoredEpisode, ScoredToken};
use lens_opd::error::OpdError;
use lens_opd::locate::proposal::Proposal;
use lens_opd::methods::lens::{Clock, Lens, LensParams};
use lens_opd::methods::{Method, Setting};
use lens_opd::objective::LossParams;
use lens_opd::stats::bootstrap::Resampling;
use serde::Serialize;

use crate::error::TrainError;
use crate::iteration::Explorer;
use crate::queue::{Queue, QueuedRow};

/// How a student is examined.
pub struct Examination {
    /// The environments, the sampling and the seed.
    pub explorer: Explorer,
    /// The method's own settings for forks; clock, proposal and refinement are set here.
    pub lens: LensParams,
    /// Forks per episode.
    pub forks: usize,
    /// The loss of the one update.
    pub loss: LossParams,
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
    /// Plays `batches` with the learner's present weights, applies one update to it and looks again. The learner must be
    /// fresh from its checkpoint.
    pub fn examine(
        &self,
        learner: &mut dyn Learner,
        teacher: &dyn Teacher,
        batches: Vec<Vec<Task>>,
        mut progress: impl FnMut(usize),
    ) -> Result<Findings, TrainError> {
        let mut params = self.lens;
        params.locate.clock = Clock::Full;
        params.locate.proposal = Proposal::KlRange;
        params.locate.proposals = self.forks;
        (params.refine.internalize, params.refine.focus) = (false, false);
        let setting =
            Setting { seed: self.explorer.seed, max_turns: self.explorer.setup.turn_limit };
        let mut method = Lens::new(params, setting)?;
        let student: Arc<dyn Policy> = learner.snapshot()?;
        let (mut probes, mut rows, mut gains) = (Vec::new(), Vec::new(), Vec::new());
        for (number, tasks) in (1..).zip(batches) {
            let explored = self.explorer.explore(&mut method, &student, teacher, number, tasks)?;
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
        let floor = params.locate.floor;
        let responses = if self.update(learner, &method, rows)? {
            self.responses(&*learner.snapshot()?, teacher, &probes, floor)?
        } else {
            Vec::new()
        };
        Ok(Findings {
            episodes: scored.len(),
            support: support_by_depth(&scored, floor)?,
            gain: if gains.is_empty() {
                None
            } else {
                Some(gain_report(&gains).map_err(|error| input(&error))?)
            },
            forks: gains.iter().map(|fork| (fork.divergence, fork.gain)).collect(),
            responses,
        })
    }

    /// One plain OPD step on all beneficial turns together; whether there were any.
    fn update(
        &self,
        learner: &mut dyn Learner,
        method: &dyn Method,
        rows: Vec<QueuedRow>,
    ) -> Result<bool, TrainError> {
        let count = rows.len();
        let mut queue = Queue::default();
        queue.push(rows);
        let batch =
            queue.pop(learner.version() + 1, count, u64::MAX, &self.loss, &method.terms())?;
        let Some(batch) = batch else { return Ok(false) };
        let report = learner.learn(&batch.rows)?;
        if report.skipped {
            return Err(TrainError::Nothing(
                "the one update of figure 2c met a number that is not finite".to_owned(),
            ));
        }
        Ok(true)
    }

    /// How far the update moved the student towards the teacher's token, at every disagreement of a beneficial turn.
    fn responses(
        &self,
        updated: &dyn Policy,
        teacher: &dyn Teacher,
        probes: &[Probe],
        floor: Option<f32>,
    ) -> Result<Vec<ResponseGroup>, TrainError> {
        let mut tokens = Vec::new();
        for probe in probes {
            let after = score_batch(
                &self.explorer.setup,
                updated,
                teacher,
                probe.number,
                &probe.episodes,
                true,
            )?;
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
        let resampling = Resampling { seed: self.explorer.seed, ..Resampling::default() };
        response_by_group(&tokens, &resampling).map_err(|error| input(&error))
    }
}

/// A trajectory's number among all batches.
fn cluster(batch: u64, episode: u64) -> u64 {
    batch << 24 | episode
}

fn input(error: &lens_opd::error::InputError) -> TrainError {
    TrainError::Nothing(format!("the diagnostics: {error}"))
}
