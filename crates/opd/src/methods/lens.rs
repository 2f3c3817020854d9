//! LENS-OPD: teach at the right depth, the right decision, the right token.
//!
//! Objective: `sum(m*r*l) / (sum(m*r) + eps) + lambda_GI * (1/B) * sum over gi rows of mean KL(q_H || p_0)`.
//! `r` differs from 1 only on the turn an accepted fork validated; gi rows exist only for accepted forks.
//! Needs: a teacher that names its favourite tokens and writes hints, environments that can be
//! restored, and a snapshot whose distributions under the hint can be kept as targets.
//! Leaves out: teacher actions, reference actions, rewards. Continuations are judged, never trained on.
//!
//! The ablations of the paper's table 3 are values of [`LensParams`]: `locate.clock = "fixed_f2b"`,
//! `locate.proposal = "last_turn"`, `refine.internalize = false`, `refine.focus = false`,
//! `validate.feedback = "reconsider"`.

use serde::{Deserialize, Serialize};

use super::exposure::{Exposure, Slot};
use super::record::ForkRecord;
use super::rows::{RowKind, TrainRow, plain_rows, row};
use super::state::{BatchCounter, MethodState};
use super::{
    FinishedFork, ForkRequest, Located, Method, MethodKind, Needs, Refined, Setting, TeacherDetail,
    common,
};
use crate::episode::ScoredBatch;
use crate::error::OpdError;
use crate::locate::fixed::forward_horizon;
use crate::locate::horizon::{HorizonClock, HorizonParams};
use crate::locate::proposal::{Proposal, ProposalKey, candidates, propose};
use crate::locate::support::frontier_competences;
use crate::objective::plan::Terms;
use crate::refine::focus::{FocusMass, FocusParams, focus};
use crate::validate::evaluator::Evaluator;
use crate::validate::fork::{Feedback, ForkKind, ForkResult};
use crate::validate::gate::{Completeness, Rules, Terminal, judge};

/// What sets the horizon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    /// The gap-adaptive clock (the paper).
    #[default]
    GapAdaptive,
    /// TCOD-F2B's fixed clock (ablation of table 3).
    FixedF2b,
    /// No curriculum: always the full length (diagnostics of section 3).
    Full,
}

/// Knobs of Locate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LocateParams {
    /// What sets the horizon.
    pub clock: Clock,
    /// Nominal number of batches at each depth.
    pub eta: u32,
    /// The deepest horizon; not set: the environment's limit of turns.
    pub k_max: Option<usize>,
    /// The slowest pace.
    pub pace_min: f64,
    /// The fastest pace.
    pub pace_max: f64,
    /// Guards the ratio of gaps.
    pub eps: f64,
    /// How turns are proposed.
    pub proposal: Proposal,
    /// Turns proposed per trajectory.
    pub proposals: usize,
    /// Log-probability that stands in for a favourite token a remote engine did not return; not
    /// set: such a position is an error.
    pub floor: Option<f32>,
}

impl Default for LocateParams {
    fn default() -> Self {
        Self {
            clock: Clock::GapAdaptive,
            eta: 5,
            k_max: None,
            pace_min: 0.5,
            pace_max: 1.5,
            eps: 1e-6,
            proposal: Proposal::TopKl,
            proposals: 1,
            floor: None,
        }
    }
}

/// Knobs of Validate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ValidateParams {
    /// Continuation turns `H`.
    pub continuation_turns: usize,
    /// Temperature `tau` of the teacher's log-probabilities.
    pub tau: f64,
    /// How a continuation is valued.
    pub evaluator: Evaluator,
    /// What a solved task counts for.
    pub terminal: Terminal,
    /// How long branches must be.
    pub completeness: Completeness,
    /// How the hint is framed.
    pub feedback: Feedback,
}

impl Default for ValidateParams {
    fn default() -> Self {
        Self {
            continuation_turns: 3,
            tau: 1.0,
            evaluator: Evaluator::TeacherLikelihood,
            terminal: Terminal::Exclude,
            completeness: Completeness::Natural,
            feedback: Feedback::Incorporate,
        }
    }
}

/// Knobs of Refine.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RefineParams {
    /// Whether accepted forks give a gi row.
    pub internalize: bool,
    /// Weight of the gi rows, `lambda_GI`.
    pub lambda_gi: f64,
    /// Whether accepted forks focus their turn's tokens.
    pub focus: bool,
    /// Scale of the conflict score.
    pub beta: f64,
    /// Cap on raw token weights, `c_tok`.
    pub c_tok: f64,
    /// Guards the mean weight.
    pub eps: f64,
}

impl Default for RefineParams {
    fn default() -> Self {
        Self { internalize: true, lambda_gi: 1.0, focus: true, beta: 1.0, c_tok: 5.0, eps: 1e-6 }
    }
}

/// Knobs of LENS-OPD; the defaults are the paper's.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LensParams {
    /// Horizon and proposal.
    pub locate: LocateParams,
    /// Forks and gate.
    pub validate: ValidateParams,
    /// Gi rows and token weights.
    pub refine: RefineParams,
}

impl LensParams {
    /// Refuses values with which the method would mean nothing.
    pub fn check(&self, setting: &Setting) -> Result<(), OpdError> {
        self.horizon_params(setting).check()?;
        let (locate, validate, refine) = (&self.locate, &self.validate, &self.refine);
        let positive = |value: f64| value.is_finite() && value > 0.0;
        let rules: [(&'static str, String, bool, &'static str); 8] = [
            (
                "locate.k_max",
                format!("{:?}", locate.k_max),
                locate.k_max.is_none_or(|k| k <= setting.max_turns),
                "must not be above the environment's limit of turns",
            ),
            (
                "locate.proposals",
                locate.proposals.to_string(),
                locate.proposals >= 1,
                "must be at least 1",
            ),
            (
                "locate.floor",
                format!("{:?}", locate.floor),
                locate.floor.is_none_or(|floor| floor.is_finite() && floor < 0.0),
                "must be a negative number",
            ),
            (
                "validate.continuation_turns",
                validate.continuation_turns.to_string(),
                validate.continuation_turns >= 1,
                "must be at least 1",
            ),
            ("validate.tau", validate.tau.to_string(), positive(validate.tau), "must be positive"),
            (
                "refine.lambda_gi",
                refine.lambda_gi.to_string(),
                refine.lambda_gi.is_finite() && refine.lambda_gi >= 0.0,
                "must not be negative",
            ),
            (
                "refine.beta",
                refine.beta.to_string(),
                refine.beta.is_finite() && refine.beta >= 0.0,
                "must not be negative",
            ),
            (
                "refine.c_tok",
                refine.c_tok.to_string(),
                refine.c_tok.is_finite() && refine.c_tok >= 1.0 && positive(refine.eps),
                "must be at least 1, with refine.eps positive",
            ),
        ];
        for (key, value, good, expected) in rules {
            if !good {
                return Err(OpdError::Parameter { key, value, expected });
            }
        }
        Ok(())
    }

    fn horizon_params(&self, setting: &Setting) -> HorizonParams {
        HorizonParams {
            eta: self.locate.eta,
            eps: self.locate.eps,
            pace_min: self.locate.pace_min,
            pace_max: self.locate.pace_max,
            max_depth: self.locate.k_max.unwrap_or(setting.max_turns),
        }
    }

    fn rules(&self) -> Rules {
        Rules {
            evaluator: self.validate.evaluator,
            terminal: self.validate.terminal,
            completeness: self.validate.completeness,
            continuation_turns: self.validate.continuation_turns,
        }
    }

    fn focus_params(&self) -> FocusParams {
        FocusParams {
            beta: self.refine.beta,
            cap: self.refine.c_tok,
            eps: self.refine.eps,
            floor: self.locate.floor,
        }
    }
}

/// LENS-OPD.
#[derive(Debug)]
pub struct Lens {
    params: LensParams,
    setting: Setting,
    counter: BatchCounter,
    clock: HorizonClock,
}

impl Lens {
    /// LENS-OPD for a run.
    pub fn new(params: LensParams, setting: Setting) -> Result<Self, OpdError> {
        params.check(&setting)?;
        let clock = HorizonClock::new(params.horizon_params(&setting))?;
        Ok(Self { params, setting, counter: BatchCounter::default(), clock })
    }

    fn horizon(&self, batch: u64) -> usize {
        let deepest = self.params.locate.k_max.unwrap_or(self.setting.max_turns);
        match self.params.locate.clock {
            Clock::GapAdaptive => self.clock.depth(),
            Clock::FixedF2b => forward_horizon(batch, 1, self.params.locate.eta, deepest),
            Clock::Full => deepest,
        }
    }

    fn forks(&self, batch: &ScoredBatch) -> Result<Vec<ForkRequest>, OpdError> {
        let (locate, validate) = (&self.params.locate, &self.params.validate);
        let mut forks = Vec::new();
        for episode in &batch.episodes {
            let candidates = candidates(episode, batch.divergence)?;
            let key = ProposalKey {
                seed: self.setting.seed,
                batch: batch.number,
                episode: episode.episode,
            };
            for chosen in propose(locate.proposal, &candidates, locate.proposals, key) {
                forks.push(ForkRequest {
                    episode: episode.episode,
                    turn: chosen.turn,
                    kind: ForkKind::Hint { feedback: validate.feedback },
                    continuation_turns: validate.continuation_turns,
                    score_temperature: validate.tau,
                    divergence: chosen.divergence,
                });
            }
        }
        Ok(forks)
    }

    /// What an accepted fork adds: weights on the original turn, and the hinted response as a row.
    fn absorb(
        &self,
        batch: &ScoredBatch,
        fork: &FinishedFork,
        rows: &mut Vec<TrainRow>,
    ) -> Result<Option<FocusMass>, OpdError> {
        let missing = || OpdError::Fork {
            episode: fork.episode,
            turn: fork.turn,
            message: "the batch has no such turn",
        };
        let episode = common::forked_episode(batch, fork)?;
        let original = episode.turn(fork.turn).ok_or_else(missing)?;
        let mut mass = None;
        if self.params.refine.focus {
            let focused = focus(original, &self.params.focus_params())
                .map_err(OpdError::at(fork.episode, fork.turn))?;
            let place = (fork.episode, fork.turn, RowKind::Opd);
            let target = rows
                .iter_mut()
                .find(|row| (row.episode, row.turn, row.kind) == place)
                .ok_or_else(missing)?;
            target.weights = focused.weights.iter().map(|&r| r as f32).collect();
            target.validated = true;
            mass = Some(focused.mass);
        }
        if let (true, ForkResult::Pair(pair)) = (self.params.refine.internalize, &fork.result) {
            let response = &pair.guided.response;
            rows.push(row(batch.number, episode, fork.turn, RowKind::Gi, response, true));
        }
        Ok(mass)
    }
}

impl Method for Lens {
    fn kind(&self) -> MethodKind {
        MethodKind::Lens
    }

    fn needs(&self) -> Needs {
        Needs {
            teacher_detail: TeacherDetail::TopTokens,
            reference_actions: false,
            teacher_acts: false,
            hints: true,
            forks: true,
            snapshot_targets: self.params.refine.internalize,
        }
    }

    fn terms(&self) -> Terms {
        Terms { lambda_gi: self.params.refine.lambda_gi, teacher_mix: None }
    }

    fn exposure(&self, slot: &Slot) -> Exposure {
        Exposure::student(self.horizon(slot.batch))
    }

    fn locate(&mut self, batch: &ScoredBatch) -> Result<Located, OpdError> {
        self.counter.expect(batch)?;
        let horizon = self.horizon(batch.number);
        let forks = self.forks(batch)?;
        let tick = match self.params.locate.clock {
            Clock::GapAdaptive => {
                let floor = self.params.locate.floor;
                let competences = frontier_competences(batch, horizon, floor)?;
                Some(self.clock.tick(&competences)?)
            }
            Clock::FixedF2b | Clock::Full => None,
        };
        self.counter.advance();
        Ok(Located { forks, horizon, tick })
    }

    fn refine(
        &self,
        batch: &ScoredBatch,
        located: &Located,
        forks: &[FinishedFork],
    ) -> Result<Refined, OpdError> {
        let mut rows = plain_rows(batch);
        let mut records = Vec::with_capacity(forks.len());
        for (request, fork) in common::paired(located, forks)? {
            let verdict = judge(fork, &self.params.rules())?;
            let focus = if verdict.accepted { self.absorb(batch, fork, &mut rows)? } else { None };
            records.push(ForkRecord::new(request, fork, verdict, focus));
        }
        let mut record = common::record(batch, located, &rows);
        record.forks = records;
        Ok(Refined { rows, record })
    }

    fn state(&self) -> MethodState {
        let adaptive = self.params.locate.clock == Clock::GapAdaptive;
        self.counter.state(self.kind(), adaptive.then(|| self.clock.state()))
    }

    fn restore(&mut self, state: &MethodState) -> Result<(), OpdError> {
        let mut counter = self.counter;
        counter.restore(MethodKind::Lens, state)?;
        if self.params.locate.clock == Clock::GapAdaptive {
            let horizon = state.horizon.as_ref().ok_or_else(|| OpdError::State {
                message: "it holds no gap-adaptive clock".to_owned(),
            })?;
            self.clock.restore(horizon)?;
        }
        self.counter = counter;
        Ok(())
    }
}
