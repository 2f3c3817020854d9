//! Which turn of an episode to inspect. A proposal is where to look, not a reason to supervise.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::episode::{Actor, DivergenceSource, ScoredEpisode, ScoredTurn, divergence};
use crate::error::{InputError, OpdError, measured};
use crate::random::{Purpose, StreamKey};

/// How turns are proposed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Proposal {
    /// The turns with the largest divergence (the paper's Top-KL).
    #[default]
    TopKl,
    /// The last valid turns (ablation of table 3).
    LastTurn,
    /// Turns drawn at random from a keyed stream.
    Random,
    /// Turns spread evenly over the range of divergences (diagnostic of figure 2b).
    KlRange,
}

/// A proposed turn.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// The turn's number, from 0 at reset.
    pub turn: usize,
    /// Its mean divergence `D_t`.
    pub divergence: f64,
}

/// Mean divergence of a turn's content tokens, `D_t` (eq. top-kl-proposal).
pub fn turn_divergence(turn: &ScoredTurn, source: DivergenceSource) -> Result<f64, InputError> {
    let (mut sum, mut count) = (0.0, 0_usize);
    for (position, token) in turn.content() {
        sum += match source {
            DivergenceSource::Full | DivergenceSource::TopK => {
                let kl = token.kl.ok_or(InputError::Missing { what: "KL divergence", position })?;
                divergence(kl, position)?
            }
            DivergenceSource::Sampled => {
                measured(token.student_logprob, "student log-probability", position)?
                    - measured(token.teacher_logprob, "teacher log-probability", position)?
            }
        };
        count += 1;
    }
    if count == 0 {
        return Err(InputError::NoContent { what: "turn divergence" });
    }
    Ok(sum / count as f64)
}

/// Whether a turn may be proposed: the student's, with content tokens and an action that parses.
pub fn is_valid(turn: &ScoredTurn) -> bool {
    turn.actor == Actor::Student
        && turn.parsed
        && turn.drop_reason().is_none()
        && turn.content().next().is_some()
}

/// Every valid turn of an episode with its divergence, in order (eq. top-kl-proposal).
pub fn candidates(
    episode: &ScoredEpisode,
    source: DivergenceSource,
) -> Result<Vec<Candidate>, OpdError> {
    let valid = episode.turns.iter().filter(|turn| is_valid(turn));
    valid
        .map(|turn| {
            let divergence =
                turn_divergence(turn, source).map_err(OpdError::at(episode.episode, turn.turn))?;
            Ok(Candidate { turn: turn.turn, divergence })
        })
        .collect()
}

/// The turn of largest divergence, `t* = argmax D_t`, ties to the earlier (eq. top-kl-proposal).
pub fn top_kl(candidates: &[Candidate]) -> Option<Candidate> {
    candidates.iter().copied().reduce(
        |best, next| {
            if next.divergence > best.divergence { next } else { best }
        },
    )
}

/// Picks up to `count` of the candidates, in turn order. `key` names the episode's own stream.
pub fn propose(
    proposal: Proposal,
    candidates: &[Candidate],
    count: usize,
    key: ProposalKey,
) -> Vec<Candidate> {
    let count = count.min(candidates.len());
    let mut order: Vec<Candidate> = candidates.to_vec();
    let by_divergence = |a: &Candidate, b: &Candidate| {
        b.divergence.total_cmp(&a.divergence).then(a.turn.cmp(&b.turn))
    };
    match proposal {
        Proposal::TopKl => order.sort_by(by_divergence),
        Proposal::LastTurn => order.reverse(),
        Proposal::Random => key.stream().open().shuffle(&mut order),
        Proposal::KlRange => {
            order.sort_by(by_divergence);
            order = evenly_spaced(&order, count);
        }
    }
    order.truncate(count);
    order.sort_by_key(|candidate| candidate.turn);
    order
}

/// `count` items at evenly spaced ranks, the first and the last among them; one item: the first.
fn evenly_spaced(ranked: &[Candidate], count: usize) -> Vec<Candidate> {
    let steps = count.saturating_sub(1).max(1);
    let last = ranked.len().saturating_sub(1);
    (0..count).map(|rank| ranked[rank * last / steps]).collect()
}

/// Names the stream of a random proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProposalKey {
    /// The run's seed.
    pub seed: u64,
    /// The explorer batch.
    pub batch: u64,
    /// The episode inside the batch.
    pub episode: u64,
}

impl ProposalKey {
    fn stream(self) -> StreamKey {
        StreamKey::new(self.seed, self.batch, self.episode, Purpose::Proposal, 0)
    }
}
