//! Judging both branches of every fork: the teacher's scores of their futures, and the student's own view of each hinted
//! response.

use lens_engine::{
    CallFailure, Codec, Compared, CrossContext, EngineError, Internalized, Models, ScoreCall,
    Target,
};
use lens_opd::episode::{Actor, ScoredTurn};
use lens_opd::validate::fork::{
    Branch, BranchEnd, FinishedFork, ForkDrop, ForkKind, ForkRequest, ForkResult, Pair, Repeat,
};

use super::branch::{BranchRun, PlayedTurn};
use super::{ForkConfig, ForkJob, ForkRun, PairLog};
use crate::action::located;
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
            for branch in open.pairs.iter().flatten() {
                calls.extend(score_calls(job, branch));
            }
        }
    }
    let mut answers = models.compare(&calls, config.deadline)?.into_iter();
    let targets = internalized(config, forks, models, &jobs)?;
    let codec = models.student().codec();
    let runs = jobs
        .into_iter()
        .zip(targets)
        .map(|(job, internalized)| put_together(codec, job, internalized, &mut answers));
    Ok(runs.collect())
}

/// A fork with its judged branches and its target.
fn put_together(
    codec: &dyn Codec,
    job: ForkJob<'_>,
    internalized: Option<Result<Internalized, CallFailure>>,
    answers: &mut impl Iterator<Item = Result<Compared, CallFailure>>,
) -> ForkRun {
    let request = job.request;
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
        repeats: Vec::new(),
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
    let mut bridge_target = None;
    let (mut drawn, mut logs) = (Vec::new(), Vec::new());
    for [base, guided] in &open.pairs {
        logs.push(PairLog { base: base.log(), guided: guided.log() });
        let (judged_base, _) = judged(codec, request, base, answers);
        let (judged_guided, target) = judged(codec, request, guided, answers);
        bridge_target = bridge_target.or(target);
        drawn.push(judged_base.zip(judged_guided));
    }
    let first = open.pairs.first().and_then(|[_, guided]| guided.turns.first());
    run.guided_response = first.map(|turn| turn.reply.tokens.clone()).unwrap_or_default();
    let mut logs = logs.into_iter();
    if let Some(PairLog { base, guided }) = logs.next() {
        (run.base, run.guided) = (base, guided);
    }
    run.repeats = logs.collect();
    let (target, internalization_gap) = match internalized {
        Some(Ok(Internalized { target, gap })) => (Some(target), gap),
        Some(Err(_)) => {
            run.finished.result = ForkResult::Dropped(ForkDrop::TargetFailed);
            return run;
        }
        None => (bridge_target, None),
    };
    run.target = target;
    let mut drawn = drawn.into_iter().flatten();
    if let Some((base, guided)) = drawn.next() {
        let repeats = drawn.map(|(base, guided)| Repeat { base, guided }).collect();
        let pair = Pair { base, guided, internalization_gap, repeats };
        run.finished.result = ForkResult::Pair(Box::new(pair));
    }
    run
}

/// The teacher judges continuations, not what is played on after them; of the fork turn only a bridge, which may become
/// a row.
fn is_judged(request: &ForkRequest, index: usize) -> bool {
    (1..=request.continuation_turns).contains(&index)
        || (index == 0 && request.kind == ForkKind::Bridge)
}

fn score_calls(job: &ForkJob<'_>, branch: &BranchRun) -> Vec<ScoreCall> {
    let turns = branch.turns.iter().enumerate();
    turns
        .filter(|(index, _)| is_judged(job.request, *index))
        .map(|(index, turn)| ScoreCall {
            prompt: turn.prompt.clone(),
            response: turn.reply.tokens.clone(),
            drawn: drawn(turn).map(<[f32]>::to_vec),
            compare: index == 0 || job.request.favorites,
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
    request: &ForkRequest,
    branch: &BranchRun,
    answers: &mut impl Iterator<Item = Result<Compared, CallFailure>>,
) -> (Option<Branch>, Option<Target>) {
    let mut target = None;
    let mut scored = Vec::with_capacity(branch.turns.len());
    for (index, turn) in branch.turns.iter().enumerate().take(request.continuation_turns + 1) {
        let reply = &turn.reply;
        let mut judged = ScoredTurn {
            turn: turn.number,
            actor: turn.actor,
            parsed: reply.action.is_some(),
            admissible: turn.admissible,
            tokens: tokens_of(codec, &reply.tokens, drawn(turn).unwrap_or_default()),
            action: located(codec, &reply.tokens, &reply.text, reply.action.as_deref()),
            dropped: None,
        };
        let answer = if is_judged(request, index) { answers.next() } else { None };
        target = annotate(&mut judged, answer).or(target);
        scored.push(judged);
    }
    let mut scored = scored.into_iter();
    let end = branch.end.unwrap_or(BranchEnd::Horizon);
    let score = Some(branch.player.view.score).filter(|_| !end.is_cut());
    let branch = scored.next().map(|response| Branch {
        response,
        continuation: scored.collect(),
        end,
        score,
    });
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
        let first = open.pairs.first().and_then(|[_, guided]| guided.turns.first());
        let first = first.filter(|turn| !turn.reply.tokens.is_empty());
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
