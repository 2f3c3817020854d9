//! Letting the teacher judge a batch of episodes.

use std::sync::Arc;

use lens_engine::{CallFailure, Codec, EngineError, Policy, ScoreCall, ScoredRow, Teacher};
use lens_opd::episode::{Actor, ScoredBatch, ScoredEpisode, ScoredToken, ScoredTurn, TurnDrop};

use crate::episode::{Episode, Turn};
use crate::setup::Setup;

/// The teacher's last hidden states of one turn.
pub type TurnHidden = Option<Arc<Vec<f32>>>;

/// A judged batch, and what the full-vocabulary loss keeps of it: entry `[episode][turn]`.
#[derive(Debug, Clone)]
pub struct Judged {
    /// What the method sees.
    pub batch: ScoredBatch,
    /// The teacher's hidden states per episode and turn.
    pub hidden: Vec<Vec<TurnHidden>>,
}

/// Judges every turn the student played. Teacher turns are not judged: they are imitated as they are.
pub fn score_batch(
    setup: &Setup,
    student: &dyn Policy,
    teacher: &dyn Teacher,
    number: u64,
    episodes: &[Episode],
    detail: bool,
) -> Result<Judged, EngineError> {
    let mut calls = Vec::new();
    for turn in episodes.iter().flat_map(|episode| &episode.turns).filter(|turn| is_judged(turn)) {
        calls.push(ScoreCall {
            prompt: turn.prompt.clone(),
            response: turn.response.clone(),
            compare: detail,
            temperature: 1.0,
        });
    }
    let mut answers = teacher.score(student, &calls, setup.deadline)?.into_iter();
    let mut batch = ScoredBatch {
        number,
        divergence: teacher.divergence(),
        episodes: Vec::with_capacity(episodes.len()),
    };
    let mut hidden = Vec::with_capacity(episodes.len());
    for episode in episodes {
        let mut turns = Vec::with_capacity(episode.turns.len());
        let mut kept = Vec::with_capacity(episode.turns.len());
        for turn in &episode.turns {
            let answer = if is_judged(turn) { answers.next() } else { None };
            let (scored, states) = scored_turn(student.codec(), turn, answer);
            turns.push(scored);
            kept.push(states);
        }
        hidden.push(kept);
        batch.episodes.push(ScoredEpisode {
            episode: episode.plan.key,
            version: episode.version,
            prefix: episode.prefix,
            reference_actions: episode.plan.reference.as_ref().map(Vec::len),
            end: episode.end,
            success: episode.success,
            turns,
        });
    }
    Ok(Judged { batch, hidden })
}

fn is_judged(turn: &Turn) -> bool {
    turn.actor == Actor::Student && turn.dropped.is_none() && !turn.response.is_empty()
}

fn scored_turn(
    codec: &dyn Codec,
    turn: &Turn,
    answer: Option<Result<ScoredRow, CallFailure>>,
) -> (ScoredTurn, TurnHidden) {
    let mut scored = ScoredTurn {
        turn: turn.number,
        actor: turn.actor,
        parsed: turn.action.is_some(),
        tokens: tokens_of(codec, &turn.response, &turn.logprobs),
        dropped: turn.dropped,
    };
    match answer {
        Some(Ok(row)) => {
            annotate(&mut scored.tokens, &row);
            (scored, row.teacher_hidden)
        }
        Some(Err(_)) => {
            scored.dropped = scored.dropped.or(Some(TurnDrop::TeacherFailed));
            (scored, None)
        }
        None => (scored, None),
    }
}

/// A response's tokens with the rollout's own log-probabilities.
pub(crate) fn tokens_of(codec: &dyn Codec, response: &[u32], logprobs: &[f32]) -> Vec<ScoredToken> {
    response
        .iter()
        .enumerate()
        .map(|(position, &id)| ScoredToken {
            student_logprob: logprobs.get(position).copied(),
            ..ScoredToken::unscored(id, codec.is_special(id))
        })
        .collect()
}

/// Adds what the teacher said.
pub(crate) fn annotate(tokens: &mut [ScoredToken], row: &ScoredRow) {
    for (token, position) in tokens.iter_mut().zip(&row.positions) {
        token.teacher_logprob = position.teacher_logprob;
        token.student_logprob = token.student_logprob.or(position.student_logprob);
        token.top = position.top;
        token.kl = position.kl;
    }
}
