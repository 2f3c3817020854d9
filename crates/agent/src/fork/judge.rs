//! Judging both branches of every fork: the teacher's scores of their futures, and the snapshot's own view of each hinted
//! response.

use lens_engine::{
    CallFailure, Codec, CrossContext, CrossContextTarget, EngineError, Policy, ScoreCall, Teacher,
};
use lens_opd::episode::{Actor, ScoredTurn, TurnDrop};
use lens_opd::validate::fork::{
    Branch, BranchEnd, FinishedFork, ForkDrop, ForkKind, ForkResult, Pair, Side,
};

use super::{BranchLog, ForkRun, Walk, WalkTurn, Work};
use crate::score::{annotate, tokens_of};
use crate::setup::Setup;

/// Judges the continuations and puts the pairs together.
pub(super) fn finish(
    setup: &Setup,
    student: &dyn Policy,
    teacher: &dyn Teacher,
    works: Vec<Work<'_>>,
    walks: &[Walk],
) -> Result<Vec<ForkRun>, EngineError> {
    let mut calls = Vec::new();
    for walk in walks {
        let request = works[walk.fork].request;
        for (place, turn) in walk.turns.iter().enumerate() {
            let bridge_response = place == 0 && request.kind == ForkKind::Bridge;
            if place > 0 || bridge_response {
                calls.push(ScoreCall {
                    prompt: turn.prompt.clone(),
                    response: turn.response.clone(),
                    compare: bridge_response,
                    temperature: request.score_temperature as f32,
                });
            }
        }
    }
    let mut answers = teacher.score(student, &calls, setup.deadline)?.into_iter();
    let targets = cross_contexts(student, &works, walks)?;
    let mut pairs: Vec<(Option<Branch>, Option<Branch>)> =
        works.iter().map(|_| (None, None)).collect();
    let mut logs: Vec<(BranchLog, BranchLog)> = works.iter().map(|_| Default::default()).collect();
    let mut responses: Vec<Vec<u32>> = works.iter().map(|_| Vec::new()).collect();
    for walk in walks {
        let kind = works[walk.fork].request.kind;
        let mut scored = Vec::with_capacity(walk.turns.len());
        for (place, turn) in walk.turns.iter().enumerate() {
            let judged = place > 0 || kind == ForkKind::Bridge;
            scored.push(scored_turn(
                student.codec(),
                turn,
                judged.then(|| answers.next()).flatten(),
            ));
        }
        let mut scored = scored.into_iter();
        let response = scored.next();
        let log = walk.log();
        let branch = response.map(|response| Branch {
            response,
            continuation: scored.collect(),
            end: walk.end.unwrap_or(BranchEnd::Horizon),
        });
        match walk.side {
            Side::Base => {
                pairs[walk.fork].0 = branch;
                logs[walk.fork].0 = log;
            }
            Side::Guided => {
                if let Some(first) = walk.turns.first() {
                    responses[walk.fork].clone_from(&first.response);
                }
                pairs[walk.fork].1 = branch;
                logs[walk.fork].1 = log;
            }
        }
    }
    let runs = works.into_iter().zip(pairs).zip(logs).zip(responses).zip(targets).map(
        |((((work, pair), (base_log, guided_log)), guided_response), target)| {
            let result = match (work.dropped, pair) {
                (Some(reason), _) => ForkResult::Dropped(reason),
                (None, (Some(base), Some(guided))) => {
                    let internalization_gap = target.as_ref().map(|target| target.gap);
                    ForkResult::Pair(Box::new(Pair { base, guided, internalization_gap }))
                }
                (None, _) => ForkResult::Dropped(ForkDrop::EngineFailure),
            };
            let finished =
                FinishedFork { episode: work.request.episode, turn: work.request.turn, result };
            ForkRun {
                finished,
                hint: work.hint,
                base: base_log,
                guided: guided_log,
                plain_prompt: work.plain_prompt,
                guided_response,
                target,
            }
        },
    );
    Ok(runs.collect())
}

fn scored_turn(
    codec: &dyn Codec,
    turn: &WalkTurn,
    answer: Option<Result<lens_engine::ScoredRow, CallFailure>>,
) -> ScoredTurn {
    let own = if turn.actor == Actor::Student { turn.logprobs.as_slice() } else { &[] };
    let mut scored = ScoredTurn {
        turn: turn.number,
        actor: turn.actor,
        parsed: turn.log.action.is_some(),
        tokens: tokens_of(codec, &turn.response, own),
        dropped: None,
    };
    match answer {
        Some(Ok(row)) => annotate(&mut scored.tokens, &row),
        Some(Err(_)) => scored.dropped = Some(TurnDrop::TeacherFailed),
        None => {}
    }
    scored
}

/// The snapshot's distributions of every hinted response in both contexts, one entry per fork.
fn cross_contexts(
    student: &dyn Policy,
    works: &[Work<'_>],
    walks: &[Walk],
) -> Result<Vec<Option<CrossContextTarget>>, EngineError> {
    let mut targets: Vec<Option<CrossContextTarget>> = works.iter().map(|_| None).collect();
    let mut places = Vec::new();
    let mut calls = Vec::new();
    for walk in walks.iter().filter(|walk| walk.side == Side::Guided) {
        let work = &works[walk.fork];
        let first = walk.turns.first().filter(|turn| !turn.response.is_empty());
        if let (ForkKind::Hint { .. }, Some(first)) = (work.request.kind, first) {
            places.push(walk.fork);
            calls.push(CrossContext {
                hinted_prompt: work.hinted_prompt.clone(),
                plain_prompt: work.plain_prompt.clone(),
                response: first.response.clone(),
            });
        }
    }
    if let Some(answers) = student.cross_context(&calls)? {
        for (fork, answer) in places.into_iter().zip(answers) {
            targets[fork] = Some(answer);
        }
    }
    Ok(targets)
}
