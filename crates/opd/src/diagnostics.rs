//! The measurements behind the three diagnostics of section 3 (figure 2).
//!
//! Which turns are forked for them is a matter of LENS-OPD's parameters (`locate.clock = "full"`,
//! `locate.proposal = "kl-range"`, `locate.proposals_per_episode = n`); here is what is computed from the result.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::episode::{ScoredEpisode, ScoredTurn};
use crate::error::{InputError, OpdError};
use crate::locate::support::{median, soft_support};
use crate::refine::focus::Conflict;
use crate::stats::bootstrap::{Clustered, Interval, Resampling, clustered_mean};
use crate::stats::rank_correlation;

/// Student support at one depth.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DepthSupport {
    /// The turn, from 0.
    pub turn: usize,
    /// Content positions where student and teacher favor different tokens.
    pub positions: usize,
    /// Mean soft support there.
    pub support: f64,
}

/// Mean support of the teacher's token at disagreement positions, by depth (eq. frontier-soft-support; figure 2a).
pub fn support_by_depth(
    episodes: &[ScoredEpisode],
    floor: Option<f32>,
) -> Result<Vec<DepthSupport>, OpdError> {
    let mut sums: BTreeMap<usize, (usize, f64)> = BTreeMap::new();
    for episode in episodes {
        for turn in episode.turns.iter().filter(|turn| turn.drop_reason().is_none()) {
            let tokens =
                disagreements(turn, floor).map_err(OpdError::at(episode.episode, turn.turn))?;
            for token in tokens {
                let (count, sum) = sums.entry(turn.turn).or_default();
                *count += 1;
                *sum += token.support;
            }
        }
    }
    let depths = sums.into_iter();
    Ok(depths
        .map(|(turn, (positions, sum))| DepthSupport {
            turn,
            positions,
            support: sum / positions as f64,
        })
        .collect())
}

/// A position where the two models favor different tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Disagreement {
    /// The token's position in the response.
    pub position: usize,
    /// The teacher's favorite token.
    pub teacher_top: u32,
    /// The student's soft support of it.
    pub support: f64,
    /// How decided the teacher is, `rhoT`.
    pub confidence: f64,
}

/// The disagreement positions among a turn's content tokens (eq. confident-disagreement-components).
pub fn disagreements(
    turn: &ScoredTurn,
    floor: Option<f32>,
) -> Result<Vec<Disagreement>, InputError> {
    let mut found = Vec::new();
    for (position, token) in turn.content() {
        let top = token.top.ok_or(InputError::Missing { what: "top-1 tokens", position })?;
        if !top.agree() {
            found.push(Disagreement {
                position,
                teacher_top: top.teacher_top,
                support: soft_support(&top, floor, position)?,
                confidence: Conflict::at(&top, floor, position)?.teacher_decision,
            });
        }
    }
    Ok(found)
}

/// One valid fork of figure 2b.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ForkGain {
    /// The trajectory it belongs to.
    pub trajectory: u64,
    /// Local divergence `D_t`.
    pub divergence: f64,
    /// Future gain `U_t`.
    pub gain: f64,
}

/// How well local divergence predicts future gain (figure 2b).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct GainReport {
    /// Valid forks.
    pub forks: usize,
    /// Rank correlation of divergence and gain; `None` when one of them is constant.
    pub correlation: Option<f64>,
    /// Share of forks with a gain of zero or less.
    pub non_positive: f64,
    /// Trajectories with at least two valid forks.
    pub trajectories: usize,
    /// Share of those whose fork of largest divergence is also the one of largest gain.
    pub top_divergence_is_top_gain: Option<f64>,
}

/// Compares local divergence with future gain over valid forks (eq. future-validation-gate; figure 2b).
pub fn gain_report(forks: &[ForkGain]) -> Result<GainReport, InputError> {
    let divergences: Vec<f64> = forks.iter().map(|fork| fork.divergence).collect();
    let gains: Vec<f64> = forks.iter().map(|fork| fork.gain).collect();
    let correlation = rank_correlation(&divergences, &gains)?;
    let non_positive = gains.iter().filter(|&&gain| gain <= 0.0).count();
    let mut by_trajectory: BTreeMap<u64, Vec<&ForkGain>> = BTreeMap::new();
    for fork in forks {
        by_trajectory.entry(fork.trajectory).or_default().push(fork);
    }
    by_trajectory.retain(|_, forks| forks.len() > 1);
    let trajectories = by_trajectory.len();
    let hits = by_trajectory.values().filter(|forks| {
        let first_max =
            |key: fn(&ForkGain) -> f64| {
                (1..forks.len()).fold(0, |best, next| {
                    if key(forks[next]) > key(forks[best]) { next } else { best }
                })
            };
        first_max(|fork| fork.divergence) == first_max(|fork| fork.gain)
    });
    let hits = hits.count();
    Ok(GainReport {
        forks: forks.len(),
        correlation,
        non_positive: non_positive as f64 / forks.len() as f64,
        trajectories,
        top_divergence_is_top_gain: (trajectories > 0).then(|| hits as f64 / trajectories as f64),
    })
}

/// How one update moved one disagreement token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenResponse {
    /// The fork the token belongs to.
    pub fork: u64,
    /// Student support before the update.
    pub support: f64,
    /// Teacher confidence.
    pub confidence: f64,
    /// Increase of the student's log-probability of the teacher's token.
    pub response: f64,
}

/// One quarter of figure 2c.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ResponseGroup {
    /// Whether support is above the split.
    pub high_support: bool,
    /// Whether confidence is above the split.
    pub high_confidence: bool,
    /// Tokens in the group.
    pub tokens: usize,
    /// Mean response with its interval, clustered by fork; `None` for an empty group.
    pub response: Option<Interval>,
}

/// Mean response by support and confidence, each split at its median (figure 2c).
pub fn response_by_group(
    tokens: &[TokenResponse],
    resampling: &Resampling,
) -> Result<Vec<ResponseGroup>, InputError> {
    let empty = InputError::Empty { what: "the list of disagreement tokens" };
    let split = |key: fn(&TokenResponse) -> f64| {
        median(&tokens.iter().map(key).collect::<Vec<_>>()).ok_or_else(|| empty.clone())
    };
    let support_split = split(|token| token.support)?;
    let confidence_split = split(|token| token.confidence)?;
    let mut groups = Vec::with_capacity(4);
    for (index, (high_support, high_confidence)) in
        [(false, false), (false, true), (true, false), (true, true)].into_iter().enumerate()
    {
        let members: Vec<Clustered> = tokens
            .iter()
            .filter(|token| {
                (token.support > support_split) == high_support
                    && (token.confidence > confidence_split) == high_confidence
            })
            .map(|token| Clustered { cluster: token.fork, value: token.response })
            .collect();
        let own = Resampling { index: resampling.index + index as u64, ..*resampling };
        let response =
            if members.is_empty() { None } else { Some(clustered_mean(&members, &own)?) };
        groups.push(ResponseGroup {
            high_support,
            high_confidence,
            tokens: members.len(),
            response,
        });
    }
    Ok(groups)
}
