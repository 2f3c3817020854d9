//! Letting the teacher judge a batch of episodes.

use lens_engine::{CallFailure, Codec, Compared, EngineError, Models, ScoreCall, Target};
use lens_opd::episode::{Actor, ScoredBatch, ScoredEpisode, ScoredToken, ScoredTurn, TurnDrop};

use crate::action::located;
use crate::config::RolloutConfig;
use crate::episode::{Episode, Turn};

/// A judged batch, and the engine's targets of its turns: entry `[episode][turn]`.
#[derive(Debug, Clone)]
pub struct Judged {
    /// What the method sees.
    pub batch: ScoredBatch,
    /// What each turn is pulled toward, where it was judged.
    pub targets: Vec<Vec<Option<Target>>>,
}

/// Judges every turn the student played. Teacher turns are not judged: they are imitated as they are. `detail` asks for
/// both models' favorite tokens at every position.
pub fn score_batch(
    config: &RolloutConfig,
    models: &dyn Models,
    number: u64,
    episodes: &[Episode],
    detail: bool,
) -> Result<Judged, EngineError> {
    let mut calls = Vec::new();
    for turn in episodes.iter().flat_map(|episode| &episode.turns).filter(|turn| is_judged(turn)) {
        calls.push(ScoreCall {
            prompt: turn.prompt.clone(),
            response: turn.response.clone(),
            drawn: Some(turn.logprobs.clone()),
            compare: detail,
            trainable: true,
            temperature: 1.0,
        });
    }
    let mut answers = models.compare(&calls, config.deadline)?.into_iter();
    let codec = models.student().codec();
    let mut batch = ScoredBatch {
        number,
        divergence: models.divergence(),
        episodes: Vec::with_capacity(episodes.len()),
    };
    let mut targets = Vec::with_capacity(episodes.len());
    for episode in episodes {
        let judged = episode.turns.iter().map(|turn| {
            let answer = if is_judged(turn) { answers.next() } else { None };
            scored_turn(codec, turn, answer)
        });
        let (turns, kept): (Vec<ScoredTurn>, Vec<Option<Target>>) = judged.unzip();
        targets.push(kept);
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
    Ok(Judged { batch, targets })
}

fn is_judged(turn: &Turn) -> bool {
    turn.actor == Actor::Student && turn.dropped.is_none() && !turn.response.is_empty()
}

fn scored_turn(
    codec: &dyn Codec,
    turn: &Turn,
    answer: Option<Result<Compared, CallFailure>>,
) -> (ScoredTurn, Option<Target>) {
    let mut scored = ScoredTurn {
        turn: turn.number,
        actor: turn.actor,
        parsed: turn.action.is_some(),
        admissible: turn.admissible,
        tokens: tokens_of(codec, &turn.response, &turn.logprobs),
        action: located(codec, &turn.response, &turn.text, turn.action.as_deref()),
        dropped: turn.dropped,
    };
    let target = annotate(&mut scored, answer);
    (scored, target)
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

/// Adds what the teacher said, or why it said nothing.
pub(crate) fn annotate(
    turn: &mut ScoredTurn,
    answer: Option<Result<Compared, CallFailure>>,
) -> Option<Target> {
    let Ok(row) = answer? else {
        turn.dropped = turn.dropped.or(Some(TurnDrop::TeacherFailed));
        return None;
    };
    for (token, position) in turn.tokens.iter_mut().zip(&row.positions) {
        token.teacher_logprob = position.teacher_logprob;
        token.student_logprob = token.student_logprob.or(position.student_logprob);
        token.top = position.top;
        token.kl = position.kl;
    }
    row.target
}
