//! Judging both branches of every fork: the teacher's scores of their futures, and the student's own view of each hinted
//! response.

use lens_engine::{
    CallFailure, Codec, Compared, CrossContext, EngineError, Internalized, Models, ScoreCall,
    Target,
};
use lens_opd::episode::{Actor, ScoredTurn};
use lens_opd::validate::fork::{
    Branch, BranchEnd, FinishedFork, ForkDrop, ForkKind, ForkResult, Pair,
};

use super::branch::{BranchRun, PlayedTurn};
use super::{ForkConfig, ForkJob, ForkRun};
use crate::config::RolloutConfig;
use crate::score::{annotate, tokens_of};

/// Judges the continuations and puts the pairs together.
pub(super) fn finish(
    config: &RolloutConfig,
    forks: &ForkConfig,
    models: &dyn Models,
    jobs: Vec<ForkJob<'_>>,
) -> Result<Vec<ForkRun>, EngineError> {
    let mut calls = Vec::new();
    for job in &jobs {
        if let Ok(open) = &job.open {
            let turns = score_calls(job, &open.base).into_iter();
            calls.extend(turns.chain(score_calls(job, &open.guided)));
        }
    }
    let mut answers = models.compare(&calls, config.deadline)?.into_iter();
    let targets = internalized(config, forks, models, &jobs)?;
    let codec = models.student().codec();
    let runs = jobs.into_iter().zip(targets).map(|(job, internalized)| {
        let (kind, request) = (job.request.kind, job.request);
        let mut run = ForkRun {
            finished: FinishedFork {
                episode: request.episode,
                turn: request.turn,
                result: ForkResult::Dropped(ForkDrop::EngineFailure),
            },
            hint: job.hint,
            cue: job.cue,
            base: super::BranchLog::default(),
            guided: super::BranchLog::default(),
            hinted_prompt: job.hinted_prompt,
            guided_response: Vec::new(),
            target: None,
        };
        let open = match job.open {
            Ok(open) => open,
            Err(reason) => {
                run.finished.result = ForkResult::Dropped(reason);
                return run;
            }
        };
        (run.base, run.guided) = (open.base.log(), open.guided.log());
        let (base, _) = judged(codec, kind, &open.base, &mut answers);
        let response = open.guided.turns.first().map(|turn| turn.reply.tokens.clone());
        run.guided_response = response.unwrap_or_default();
        let (guided, bridge_target) = judged(codec, kind, &open.guided, &mut answers);
        let (target, internalization_gap) = match internalized {
            Some(Ok(Internalized { target, gap })) => (Some(target), gap),
            Some(Err(_)) => {
                run.finished.result = ForkResult::Dropped(ForkDrop::TargetFailed);
                return run;
            }
            None => (bridge_target, None),
        };
        run.target = target;
        if let (Some(base), Some(guided)) = (base, guided) {
            let pair = Pair { base, guided, internalization_gap };
            run.finished.result = ForkResult::Pair(Box::new(pair));
        }
        run
    });
    Ok(runs.collect())
}

/// The teacher judges continuations; of the fork turn only a bridge, which may become a row.
fn is_judged(kind: ForkKind, index: usize) -> bool {
    index > 0 || kind == ForkKind::Bridge
}

fn score_calls(job: &ForkJob<'_>, branch: &BranchRun) -> Vec<ScoreCall> {
    let turns = branch.turns.iter().enumerate();
    turns
        .filter(|(index, _)| is_judged(job.request.kind, *index))
        .map(|(index, turn)| ScoreCall {
            prompt: turn.prompt.clone(),
            response: turn.reply.tokens.clone(),
            drawn: drawn(turn).map(<[f32]>::to_vec),
            compare: index == 0,
            trainable: index == 0 && turn.actor == Actor::Teacher,
            temperature: job.request.temperature as f32,
        })
        .collect()
}

/// The log-probabilities of a turn the student drew itself.
fn drawn(turn: &PlayedTurn) -> Option<&[f32]> {
    (turn.actor == Actor::Student).then_some(turn.reply.logprobs.as_slice())
}

/// A branch as the method sees it, and the target of its fork turn if it has one.
fn judged(
    codec: &dyn Codec,
    kind: ForkKind,
    branch: &BranchRun,
    answers: &mut impl Iterator<Item = Result<Compared, CallFailure>>,
) -> (Option<Branch>, Option<Target>) {
    let mut target = None;
    let mut scored = Vec::with_capacity(branch.turns.len());
    for (index, turn) in branch.turns.iter().enumerate() {
        let mut judged = ScoredTurn {
            turn: turn.number,
            actor: turn.actor,
            parsed: turn.reply.action.is_some(),
            admissible: turn.admissible,
            tokens: tokens_of(codec, &turn.reply.tokens, drawn(turn).unwrap_or_default()),
            dropped: None,
        };
        let answer = if is_judged(kind, index) { answers.next() } else { None };
        target = annotate(&mut judged, answer).or(target);
        scored.push(judged);
    }
    let mut scored = scored.into_iter();
    let end = branch.end.unwrap_or(BranchEnd::Horizon);
    let branch =
        scored.next().map(|response| Branch { response, continuation: scored.collect(), end });
    (branch, target)
}

/// The student's distributions of every hinted response in both contexts, one entry per fork.
fn internalized(
    config: &RolloutConfig,
    forks: &ForkConfig,
    models: &dyn Models,
    jobs: &[ForkJob<'_>],
) -> Result<Vec<Option<Result<Internalized, CallFailure>>>, EngineError> {
    let mut targets: Vec<_> = jobs.iter().map(|_| None).collect();
    if !forks.snapshot_targets {
        return Ok(targets);
    }
    let (mut asked, mut calls) = (Vec::new(), Vec::new());
    for (index, job) in jobs.iter().enumerate() {
        let Ok(open) = &job.open else { continue };
        let first = open.guided.turns.first().filter(|turn| !turn.reply.tokens.is_empty());
        if let (ForkKind::Hint { .. }, Some(first)) = (job.request.kind, first) {
            asked.push(index);
            calls.push(CrossContext {
                hinted_prompt: job.hinted_prompt.clone(),
                plain_prompt: first.prompt.clone(),
                response: first.reply.tokens.clone(),
            });
        }
    }
    for (index, answer) in asked.into_iter().zip(models.internalize(&calls, config.deadline)?) {
        targets[index] = Some(answer);
    }
    Ok(targets)
}
