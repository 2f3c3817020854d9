//! Forks: restore a state, ask for guidance, play both branches, let the teacher judge the futures.
//!
//! All forks of a batch run side by side: one call for the hints, one for the fork turns of both branches of every
//! fork, one per continuation turn, one for the judging. Where the student takes many calls at once, every fork is played
//! on its own instead, and only the judging is common. The two branches of a fork share all of their history, so an
//! engine that shares common prefixes computes it once.

mod branch;
mod judge;
mod restore;

use lens_engine::{
    CallFailure, EngineError, GenerateCall, Message, Models, Policy, Sampling, Target, fan_out,
};
use lens_opd::random::{Purpose, StreamKey};
use lens_opd::validate::fork::{BranchEnd, FinishedFork, ForkDrop, ForkKind, ForkRequest, Side};
use rayon::prelude::*;

use crate::config::RolloutConfig;
use crate::episode::{Episode, Turn};
use crate::prompts::{diagnostic_cue, hinted_message};
use crate::reply::Reply;
use branch::BranchRun;
use restore::restore;

/// How the forks of a batch are sampled.
#[derive(Debug, Clone, Copy)]
pub struct ForkConfig {
    /// The run's seed.
    pub seed: u64,
    /// The explorer batch.
    pub batch: u64,
    /// How the student's tokens are drawn.
    pub sampling: Sampling,
    /// Whether hinted responses become targets; without it the internalization gap is not measured.
    pub snapshot_targets: bool,
}

/// One turn of a branch, for the log.
#[derive(Debug, Clone, PartialEq)]
pub struct BranchTurn {
    /// What was seen before acting.
    pub observation: String,
    /// The response.
    pub text: String,
    /// The action.
    pub action: Option<String>,
    /// The hint-free prompt the teacher judged the response in.
    pub prompt: Vec<u32>,
}

/// A branch, for the log.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BranchLog {
    /// The fork turn first, then the continuation.
    pub turns: Vec<BranchTurn>,
}

/// A pair of branches, for the log.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PairLog {
    /// The branch without guidance.
    pub base: BranchLog,
    /// The branch with it.
    pub guided: BranchLog,
}

/// A fork that was run, with what training and the log need of it.
#[derive(Debug, Clone)]
pub struct ForkRun {
    /// What the method sees.
    pub finished: FinishedFork,
    /// The teacher's hint.
    pub hint: Option<String>,
    /// What the teacher was asked: the prompt of its hint or bridge.
    pub cue: Vec<u32>,
    /// The branch without guidance.
    pub base: BranchLog,
    /// The branch with it.
    pub guided: BranchLog,
    /// The pairs after the first.
    pub repeats: Vec<PairLog>,
    /// The prompt of the fork turn with the hint in it; empty where there was no hint.
    pub hinted_prompt: Vec<u32>,
    /// The guided response's tokens.
    pub guided_response: Vec<u32>,
    /// What the guided response is pulled toward: the student's own view of it, or the teacher's.
    pub target: Option<Target>,
}

/// A fork on its way. Its two branches exist as long as nothing has gone wrong.
struct ForkJob<'a> {
    request: &'a ForkRequest,
    cue: Vec<u32>,
    hint: Option<String>,
    hinted_prompt: Vec<u32>,
    open: Result<OpenFork<'a>, ForkDrop>,
}

/// A fork whose state was restored, twice per pair.
struct OpenFork<'a> {
    /// The turn as it was played the first time.
    turn: &'a Turn,
    /// The hint-free prompt of the fork turn.
    plain_prompt: Vec<u32>,
    /// Base and guided branch of every pair.
    pairs: Vec<[BranchRun; 2]>,
}

/// One branch of one pair: the pair's number, and the side, which is the branch's place in the pair.
type Draw = (usize, Side);

/// The branches of so many pairs, in the order their calls are made.
fn draws(pairs: usize) -> impl Iterator<Item = Draw> {
    (0..pairs).flat_map(|pair| [(pair, Side::Base), (pair, Side::Guided)])
}

/// Runs all forks asked for, side by side. The answers are in the order of the requests.
pub fn run_forks(
    config: &RolloutConfig,
    forks: &ForkConfig,
    models: &dyn Models,
    episodes: &[Episode],
    requests: &[ForkRequest],
) -> Result<Vec<ForkRun>, EngineError> {
    let jobs = match models.student().concurrency() {
        None => side_by_side(config, forks, models, episodes, requests)?,
        Some(width) => {
            let alone = |index: usize| {
                let request = &requests[index..=index];
                side_by_side(config, forks, models, episodes, request)
            };
            fan_out(requests.len(), width, alone, &mut |_| {})?.into_iter().flatten().collect()
        }
    };
    judge::finish(config, forks, models, jobs)
}

/// Plays forks up to the judging, in the order of the requests.
fn side_by_side<'a>(
    config: &RolloutConfig,
    forks: &ForkConfig,
    models: &dyn Models,
    episodes: &'a [Episode],
    requests: &'a [ForkRequest],
) -> Result<Vec<ForkJob<'a>>, EngineError> {
    let mut jobs: Vec<ForkJob<'_>> = requests
        .par_iter()
        .map(|request| ForkJob {
            request,
            cue: Vec::new(),
            hint: None,
            hinted_prompt: Vec::new(),
            open: restore(config, episodes, request),
        })
        .collect();
    let bridges = guide(config, forks, models.teacher(), &mut jobs)?;
    fork_turn(config, forks, models.student(), &mut jobs, bridges)?;
    let turns = |request: &ForkRequest| last_turn(request).unwrap_or(config.turn_limit);
    let longest = requests.iter().map(turns).max().unwrap_or(0);
    for _ in 0..longest {
        continue_turn(config, forks, models.student(), &mut jobs)?;
    }
    Ok(jobs)
}

/// Turns after the fork turn; `None`: to the end of the episode.
fn last_turn(request: &ForkRequest) -> Option<usize> {
    (!request.play_on).then_some(request.continuation_turns)
}

/// Asks the teacher for every fork's hint or bridge. Bridges come back by the fork's index.
fn guide(
    config: &RolloutConfig,
    forks: &ForkConfig,
    teacher: &dyn Policy,
    jobs: &mut [ForkJob<'_>],
) -> Result<Vec<Option<Reply>>, EngineError> {
    let mut bridges: Vec<Option<Reply>> = jobs.iter().map(|_| None).collect();
    let (mut asked, mut calls) = (Vec::new(), Vec::new());
    for (index, job) in jobs.iter_mut().enumerate() {
        let Ok(open) = &job.open else { continue };
        let Some([BranchRun { player, .. }, _]) = open.pairs.first() else { continue };
        let (prompt, sampling, max_new_tokens) = match job.request.kind {
            ForkKind::Hint { tokens, .. } => {
                let proposed = open.turn.action.clone().unwrap_or_default();
                let cue = diagnostic_cue(config.prompt_style(), &player.window(config), &proposed);
                (teacher.codec().prompt(&[Message::user(cue)])?, Sampling::GREEDY, tokens)
            }
            ForkKind::Bridge => {
                let Ok(message) = player.message(config) else {
                    job.open = Err(ForkDrop::EngineFailure);
                    continue;
                };
                let prompt = player.prompt(config, teacher.codec(), &message)?;
                (prompt, Sampling::at(1.0), config.max_response_tokens)
            }
        };
        let ForkRequest { episode, turn, .. } = *job.request;
        asked.push(index);
        calls.push(GenerateCall {
            prompt,
            max_prompt_tokens: config.max_prompt_tokens,
            max_new_tokens,
            sampling,
            stream: StreamKey::new(forks.seed, forks.batch, episode, Purpose::Teacher, turn as u32),
        });
    }
    let answers = teacher.generate(&calls, config.deadline)?;
    for ((index, call), answer) in asked.into_iter().zip(calls).zip(answers) {
        let job = &mut jobs[index];
        job.cue = call.prompt;
        let parser = config.prompting.parser;
        let reply = match Reply::from_completion(parser, teacher.codec(), answer) {
            Ok(reply) => reply,
            Err(failure) => {
                job.open = Err(match failure {
                    CallFailure::Timeout => ForkDrop::Timeout,
                    CallFailure::PromptTooLong => ForkDrop::PromptTooLong,
                    CallFailure::Engine => ForkDrop::HintFailed,
                });
                continue;
            }
        };
        match job.request.kind {
            ForkKind::Bridge => bridges[index] = Some(reply),
            ForkKind::Hint { .. } => {
                let hint = one_line(&reply.text);
                if hint.is_empty() {
                    job.open = Err(ForkDrop::HintEmpty);
                } else {
                    job.hint = Some(hint);
                }
            }
        }
    }
    Ok(bridges)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The fork turn of both branches of every fork. A fork whose branches do not both have one is dropped.
fn fork_turn(
    config: &RolloutConfig,
    forks: &ForkConfig,
    student: &dyn Policy,
    jobs: &mut [ForkJob<'_>],
    mut bridges: Vec<Option<Reply>>,
) -> Result<(), EngineError> {
    let mut calls = Vec::new();
    for job in jobs.iter_mut() {
        let Ok(open) = &mut job.open else { continue };
        let Some([BranchRun { player, .. }, _]) = open.pairs.first() else { continue };
        let Ok(message) = player.message(config) else {
            job.open = Err(ForkDrop::EngineFailure);
            continue;
        };
        open.plain_prompt = player.prompt(config, student.codec(), &message)?;
        let ForkKind::Hint { prompt: style, .. } = job.request.kind else { continue };
        let proposed = open.turn.action.clone().unwrap_or_default();
        let hint = job.hint.as_deref().unwrap_or_default();
        let hinted = hinted_message(&message, &proposed, hint, style);
        job.hinted_prompt = player.prompt(config, student.codec(), &hinted)?;
        let turn = player.past().len();
        for draw in draws(open.pairs.len()) {
            let prompt = match draw.1 {
                Side::Base => open.plain_prompt.clone(),
                Side::Guided => job.hinted_prompt.clone(),
            };
            calls.push(student_call(config, forks, job.request, draw, turn, prompt));
        }
    }
    let mut answers = student.generate(&calls, config.deadline)?.into_iter();
    for (index, job) in jobs.iter_mut().enumerate() {
        let Ok(open) = &mut job.open else { continue };
        let bridge = bridges[index].take().ok_or(CallFailure::Engine);
        let mut reply = |side: Side| match (job.request.kind, side) {
            (ForkKind::Hint { .. }, _) => {
                let answer = answers.next().unwrap_or(Err(CallFailure::Engine));
                Reply::from_completion(config.prompting.parser, student.codec(), answer)
            }
            (ForkKind::Bridge, Side::Base) => Ok(original(open.turn)),
            (ForkKind::Bridge, Side::Guided) => bridge.clone(),
        };
        let replies: Vec<_> = draws(open.pairs.len()).map(|draw| (draw, reply(draw.1))).collect();
        if let Err(reason) = take_fork_turns(config, job.request.kind, open, replies) {
            job.open = Err(reason);
        }
    }
    Ok(())
}

/// Carries out the fork turns of both branches, or says why the fork is none.
fn take_fork_turns(
    config: &RolloutConfig,
    kind: ForkKind,
    open: &mut OpenFork<'_>,
    replies: Vec<(Draw, Result<Reply, CallFailure>)>,
) -> Result<(), ForkDrop> {
    for ((pair, side), reply) in replies {
        let reply = reply.map_err(|failure| match failure {
            CallFailure::PromptTooLong => ForkDrop::PromptTooLong,
            CallFailure::Timeout => ForkDrop::Timeout,
            CallFailure::Engine => ForkDrop::EngineFailure,
        })?;
        // A bridge that cannot be executed as it stands is no bridge.
        if kind == ForkKind::Bridge {
            if reply.action.is_none() {
                return Err(ForkDrop::UnparsedAction);
            }
            if !reply.is_admissible(config, &open.turn.view) {
                return Err(ForkDrop::InadmissibleAction);
            }
        }
        let by_teacher = side == Side::Guided && kind == ForkKind::Bridge;
        let prompt = open.plain_prompt.clone();
        open.pairs[pair][side as usize].play_turn(config, prompt, reply, by_teacher);
    }
    Ok(())
}

/// The turn as it was played the first time, to be executed again.
fn original(turn: &Turn) -> Reply {
    Reply {
        tokens: turn.response.clone(),
        logprobs: turn.logprobs.clone(),
        text: turn.text.clone(),
        action: turn.action.clone(),
        unparsed: turn.unparsed,
        truncated: turn.truncated,
    }
}

fn student_call(
    config: &RolloutConfig,
    forks: &ForkConfig,
    request: &ForkRequest,
    (pair, side): Draw,
    turn: usize,
    prompt: Vec<u32>,
) -> GenerateCall {
    GenerateCall {
        prompt,
        max_prompt_tokens: config.max_prompt_tokens,
        max_new_tokens: config.max_response_tokens,
        sampling: forks.sampling,
        stream: request.stream(forks.seed, forks.batch, pair, side, turn),
    }
}

/// One more turn of every branch that goes on.
fn continue_turn(
    config: &RolloutConfig,
    forks: &ForkConfig,
    student: &dyn Policy,
    jobs: &mut [ForkJob<'_>],
) -> Result<(), EngineError> {
    let (mut asked, mut calls) = (Vec::new(), Vec::new());
    for (index, job) in jobs.iter_mut().enumerate() {
        let request = job.request;
        let Ok(open) = &mut job.open else { continue };
        for draw in draws(open.pairs.len()) {
            let branch = &mut open.pairs[draw.0][draw.1 as usize];
            if !branch.goes_on(config, last_turn(request)) {
                continue;
            }
            let Ok(message) = branch.player.message(config) else {
                branch.end = Some(BranchEnd::EngineFailure);
                continue;
            };
            let prompt = branch.player.prompt(config, student.codec(), &message)?;
            let turn = branch.player.past().len();
            asked.push((index, draw));
            calls.push(student_call(config, forks, request, draw, turn, prompt));
        }
    }
    let answers = student.generate(&calls, config.deadline)?;
    for (((index, (pair, side)), call), answer) in asked.into_iter().zip(calls).zip(answers) {
        if let Ok(open) = &mut jobs[index].open {
            let reply = Reply::from_completion(config.prompting.parser, student.codec(), answer);
            open.pairs[pair][side as usize].continue_with(config, call.prompt, reply);
        }
    }
    Ok(())
}
