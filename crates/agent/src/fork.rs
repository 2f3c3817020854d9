//! Forks: restore a state, ask for guidance, play both branches, let the teacher judge the futures.
//!
//! All forks of a batch run side by side: one call for the hints, one for the fork turns of both branches of every
//! fork, one per continuation turn, one for the judging. The two branches of a fork share all of their history, so
//! an engine that shares common prefixes computes it once.

mod judge;

use lens_engine::{
    CallFailure, CrossContextTarget, EngineError, GenerateCall, Message, Policy, Sampling, Teacher,
};
use lens_env::{Actions, PastStep, Status};
use lens_opd::episode::Actor;
use lens_opd::random::{Purpose, StreamKey};
use lens_opd::validate::fork::{BranchEnd, FinishedFork, ForkDrop, ForkKind, ForkRequest, Side};
use rayon::prelude::*;

use crate::episode::{Episode, Turn};
use crate::parse;
use crate::player::Player;
use crate::prompts::{diagnostic_cue, hinted_message};
use crate::setup::Setup;

/// How the forks of a batch are sampled.
#[derive(Debug, Clone, Copy)]
pub struct ForkSetting {
    /// The run's seed.
    pub seed: u64,
    /// The explorer batch.
    pub batch: u64,
    /// How the student's tokens are drawn.
    pub sampling: Sampling,
    /// The longest hint.
    pub hint_tokens: usize,
}

/// One turn of a branch, for the books.
#[derive(Debug, Clone, PartialEq)]
pub struct BranchTurn {
    /// What was seen before acting.
    pub observation: String,
    /// The response.
    pub text: String,
    /// The action.
    pub action: Option<String>,
}

/// A branch, for the books.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BranchLog {
    /// The fork turn first, then the continuation.
    pub turns: Vec<BranchTurn>,
}

/// A fork that was run, with what training and the books need of it.
#[derive(Debug, Clone)]
pub struct ForkRun {
    /// What the method sees.
    pub finished: FinishedFork,
    /// The teacher's hint.
    pub hint: Option<String>,
    /// The branch without guidance.
    pub base: BranchLog,
    /// The branch with it.
    pub guided: BranchLog,
    /// The hint-free prompt at the fork turn.
    pub plain_prompt: Vec<u32>,
    /// The guided response's tokens.
    pub guided_response: Vec<u32>,
    /// The snapshot's own view of the guided response, for internalisation.
    pub target: Option<CrossContextTarget>,
}

/// A branch on its way.
struct Walk {
    fork: usize,
    side: Side,
    player: Player,
    turns: Vec<WalkTurn>,
    end: Option<BranchEnd>,
}

struct WalkTurn {
    number: usize,
    /// The hint-free prompt, which the teacher judges in.
    prompt: Vec<u32>,
    response: Vec<u32>,
    logprobs: Vec<f32>,
    actor: Actor,
    log: BranchTurn,
}

/// A fork on its way.
struct Work<'a> {
    request: &'a ForkRequest,
    turn: Option<&'a Turn>,
    past: Vec<PastStep>,
    conversation: Vec<Message>,
    hint: Option<String>,
    bridge: Option<(Vec<u32>, Vec<f32>, String)>,
    plain_prompt: Vec<u32>,
    hinted_prompt: Vec<u32>,
    dropped: Option<ForkDrop>,
}

/// Runs all forks asked for, side by side. The answers are in the order of the requests.
pub fn run_forks(
    setup: &Setup,
    setting: &ForkSetting,
    student: &dyn Policy,
    teacher: &dyn Teacher,
    episodes: &[Episode],
    requests: &[ForkRequest],
) -> Result<Vec<ForkRun>, EngineError> {
    let mut works: Vec<Work<'_>> = requests.iter().map(|request| find(episodes, request)).collect();
    let mut walks = restore_all(setup, &mut works);
    guide(setup, setting, teacher, &mut works, &walks)?;
    walks.retain(|walk| works[walk.fork].dropped.is_none());
    fork_turn(setup, setting, student, &mut works, &mut walks)?;
    let longest = requests.iter().map(|request| request.continuation_turns).max().unwrap_or(0);
    for _ in 0..longest {
        continue_turn(setup, setting, student, &works, &mut walks)?;
    }
    for walk in &mut walks {
        walk.end.get_or_insert(BranchEnd::Horizon);
    }
    judge::finish(setup, student, teacher, works, &walks)
}

fn find<'a>(episodes: &'a [Episode], request: &'a ForkRequest) -> Work<'a> {
    let mut work = Work {
        request,
        turn: None,
        past: Vec::new(),
        conversation: Vec::new(),
        hint: None,
        bridge: None,
        plain_prompt: Vec::new(),
        hinted_prompt: Vec::new(),
        dropped: Some(ForkDrop::RestoreFailed),
    };
    let Some(episode) = episodes.iter().find(|episode| episode.plan.key == request.episode) else {
        return work;
    };
    let place = episode.turns.iter().position(|turn| turn.number == request.turn);
    if let Some(place) = place {
        work.turn = Some(&episode.turns[place]);
        work.past = episode.past[..request.turn.min(episode.past.len())].to_vec();
        work.conversation.clone_from(&episode.conversations[place]);
        work.dropped = None;
    }
    work
}

/// Two restored players per fork; a fork whose state cannot be restored exactly is dropped with the reason.
fn restore_all(setup: &Setup, works: &mut [Work<'_>]) -> Vec<Walk> {
    let restored: Vec<(Vec<Walk>, Option<ForkDrop>)> = works
        .par_iter()
        .enumerate()
        .map(|(fork, work)| {
            if let Some(reason) = work.dropped {
                return (Vec::new(), Some(reason));
            }
            let mut walks = Vec::with_capacity(2);
            for side in [Side::Base, Side::Guided] {
                match restore(setup, work) {
                    Ok(player) => {
                        walks.push(Walk { fork, side, player, turns: Vec::new(), end: None });
                    }
                    Err(reason) => return (Vec::new(), Some(reason)),
                }
            }
            (walks, None)
        })
        .collect();
    let mut walks = Vec::with_capacity(2 * works.len());
    for (work, (pair, dropped)) in works.iter_mut().zip(restored) {
        work.dropped = dropped;
        walks.extend(pair);
    }
    walks
}

fn restore(setup: &Setup, work: &Work<'_>) -> Result<Player, ForkDrop> {
    let turn = work.turn.ok_or(ForkDrop::RestoreFailed)?;
    let snapshot = turn.snapshot.as_ref().ok_or(ForkDrop::RestoreFailed)?;
    let mut environment =
        setup.benchmark.clone().environment().map_err(|_| ForkDrop::RestoreFailed)?;
    let view = environment.restore(snapshot).map_err(|_| ForkDrop::RestoreFailed)?;
    if view.fingerprint() != turn.view.fingerprint() {
        return Err(ForkDrop::RestoreMismatch);
    }
    Ok(Player::restored(environment, view, work.past.clone(), work.conversation.clone()))
}

/// Asks the teacher for every fork's hint or bridge, and prepares the prompts of the fork turn.
fn guide(
    setup: &Setup,
    setting: &ForkSetting,
    teacher: &dyn Teacher,
    works: &mut [Work<'_>],
    walks: &[Walk],
) -> Result<(), EngineError> {
    let mut places = Vec::new();
    let mut calls = Vec::new();
    for walk in walks.iter().filter(|walk| walk.side == Side::Base) {
        let work = &works[walk.fork];
        let Some(turn) = work.turn else { continue };
        let (messages, sampling, longest) = match work.request.kind {
            ForkKind::Hint { .. } => {
                let proposed = turn.action.clone().unwrap_or_default();
                let cue =
                    diagnostic_cue(setup.prompt_style(), &walk.player.window(setup), &proposed);
                (
                    teacher.codec().prompt(&[Message::user(cue)])?,
                    Sampling::GREEDY,
                    setting.hint_tokens,
                )
            }
            ForkKind::Bridge => {
                let message = walk.player.message(setup);
                (
                    walk.player.prompt(setup, teacher.codec(), &message)?,
                    Sampling::at(1.0),
                    setup.max_response_tokens,
                )
            }
        };
        places.push(walk.fork);
        calls.push(GenerateCall {
            prompt: messages,
            max_prompt_tokens: setup.max_prompt_tokens,
            max_new_tokens: longest,
            sampling,
            stream: StreamKey::new(
                setting.seed,
                setting.batch,
                work.request.episode,
                Purpose::Teacher,
                work.request.turn as u32,
            ),
        });
    }
    for (fork, answer) in places.into_iter().zip(teacher.generate(&calls, setup.deadline)?) {
        let work = &mut works[fork];
        match answer {
            Err(CallFailure::Timeout) => work.dropped = Some(ForkDrop::Timeout),
            Err(_) => work.dropped = Some(ForkDrop::HintFailed),
            Ok(completion) => {
                let text = teacher.codec().text(&completion.tokens)?;
                match work.request.kind {
                    ForkKind::Hint { .. } => {
                        let hint = one_sentence(&text);
                        if hint.is_empty() {
                            work.dropped = Some(ForkDrop::HintEmpty);
                        } else {
                            work.hint = Some(hint);
                        }
                    }
                    ForkKind::Bridge => {
                        work.bridge = Some((completion.tokens, completion.logprobs, text));
                    }
                }
            }
        }
    }
    Ok(())
}

/// The hint as one line of text.
fn one_sentence(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The fork turn of both branches of every fork.
fn fork_turn(
    setup: &Setup,
    setting: &ForkSetting,
    student: &dyn Policy,
    works: &mut [Work<'_>],
    walks: &mut Vec<Walk>,
) -> Result<(), EngineError> {
    let mut places = Vec::new();
    let mut calls = Vec::new();
    for (place, walk) in walks.iter().enumerate() {
        let message = walk.player.message(setup);
        let work = &mut works[walk.fork];
        let plain = walk.player.prompt(setup, student.codec(), &message)?;
        work.plain_prompt.clone_from(&plain);
        let ForkKind::Hint { feedback } = work.request.kind else { continue };
        let prompt = match walk.side {
            Side::Base => plain,
            Side::Guided => {
                let proposed = work.turn.and_then(|turn| turn.action.clone()).unwrap_or_default();
                let hint = work.hint.as_deref().unwrap_or_default();
                let hinted = hinted_message(&message, &proposed, hint, feedback);
                work.hinted_prompt = walk.player.prompt(setup, student.codec(), &hinted)?;
                work.hinted_prompt.clone()
            }
        };
        places.push(place);
        calls.push(student_call(setup, setting, work.request, walk, prompt));
    }
    let mut answers: Vec<Option<Written>> = walks.iter().map(|_| None).collect();
    for (place, answer) in places.into_iter().zip(student.generate(&calls, setup.deadline)?) {
        answers[place] = Some(match answer {
            Ok(completion) => {
                let text = student.codec().text(&completion.tokens)?;
                let action = parse::action(&text).map(str::to_owned);
                Written::Turn {
                    response: completion.tokens,
                    logprobs: completion.logprobs,
                    text,
                    action,
                    actor: Actor::Student,
                }
            }
            Err(failure) => Written::Failed(branch_end(failure)),
        });
    }
    for (walk, answer) in walks.iter_mut().zip(answers) {
        let work = &mut works[walk.fork];
        let written = answer.unwrap_or_else(|| bridge_turn(work, walk));
        walk.take(setup, work.plain_prompt.clone(), written);
    }
    // A bridge that cannot be executed as it stands is no bridge.
    for walk in walks.iter() {
        let work = &mut works[walk.fork];
        if work.request.kind == ForkKind::Bridge && work.dropped.is_none() {
            work.dropped = bridge_fault(work, walk);
        }
    }
    walks.retain(|walk| works[walk.fork].dropped.is_none());
    Ok(())
}

/// What a model wrote, or why it did not.
enum Written {
    Turn {
        response: Vec<u32>,
        logprobs: Vec<f32>,
        text: String,
        action: Option<String>,
        actor: Actor,
    },
    Failed(BranchEnd),
}

/// The fork turn of a bridge fork: the original action again, or the teacher's own turn.
fn bridge_turn(work: &Work<'_>, walk: &Walk) -> Written {
    match (walk.side, work.turn, &work.bridge) {
        (Side::Base, Some(turn), _) => Written::Turn {
            response: turn.response.clone(),
            logprobs: turn.logprobs.clone(),
            text: turn.text.clone(),
            action: turn.action.clone(),
            actor: Actor::Student,
        },
        (Side::Guided, _, Some((response, logprobs, text))) => Written::Turn {
            response: response.clone(),
            logprobs: logprobs.clone(),
            text: text.clone(),
            action: parse::action(text).map(str::to_owned),
            actor: Actor::Teacher,
        },
        _ => Written::Failed(BranchEnd::EngineFailure),
    }
}

fn bridge_fault(work: &Work<'_>, walk: &Walk) -> Option<ForkDrop> {
    let first = walk.turns.first()?;
    let Some(action) = &first.log.action else { return Some(ForkDrop::UnparsedAction) };
    let admissible = match &work.turn?.view.actions {
        Actions::Commands(commands) => commands.contains(action),
        // Templates cannot be checked without the environment; it answers nonsense with its own text.
        Actions::Templates { .. } | Actions::Free => true,
    };
    (!admissible).then_some(ForkDrop::InadmissibleAction)
}

fn student_call(
    setup: &Setup,
    setting: &ForkSetting,
    request: &ForkRequest,
    walk: &Walk,
    prompt: Vec<u32>,
) -> GenerateCall {
    GenerateCall {
        prompt,
        max_prompt_tokens: setup.max_prompt_tokens,
        max_new_tokens: setup.max_response_tokens,
        sampling: setting.sampling,
        stream: request.stream(setting.seed, setting.batch, walk.side, walk.player.past().len()),
    }
}

fn branch_end(failure: CallFailure) -> BranchEnd {
    match failure {
        CallFailure::PromptTooLong => BranchEnd::PromptTooLong,
        CallFailure::Timeout => BranchEnd::Timeout,
        CallFailure::Engine => BranchEnd::EngineFailure,
    }
}

/// One more turn of every branch that goes on.
fn continue_turn(
    setup: &Setup,
    setting: &ForkSetting,
    student: &dyn Policy,
    works: &[Work<'_>],
    walks: &mut [Walk],
) -> Result<(), EngineError> {
    let mut places = Vec::new();
    let mut calls = Vec::new();
    for (place, walk) in walks.iter_mut().enumerate() {
        let request = works[walk.fork].request;
        if walk.end.is_some() {
            continue;
        }
        if setup.deadline.has_passed() {
            walk.end = Some(BranchEnd::Timeout);
        } else if let Status::Ended { success } = walk.player.view.status {
            walk.end = Some(BranchEnd::Ended { success });
        } else if walk.player.past().len() >= setup.turn_limit {
            walk.end = Some(BranchEnd::TurnLimit);
        } else if walk.turns.len() > request.continuation_turns {
            walk.end = Some(BranchEnd::Horizon);
        } else {
            let message = walk.player.message(setup);
            let prompt = walk.player.prompt(setup, student.codec(), &message)?;
            places.push(place);
            calls.push(student_call(setup, setting, request, walk, prompt));
        }
    }
    let answers = student.generate(&calls, setup.deadline)?;
    for ((place, call), answer) in places.into_iter().zip(calls).zip(answers) {
        let written = match answer {
            Ok(completion) => {
                let text = student.codec().text(&completion.tokens)?;
                let action = parse::action(&text).map(str::to_owned);
                Written::Turn {
                    response: completion.tokens,
                    logprobs: completion.logprobs,
                    text,
                    action,
                    actor: Actor::Student,
                }
            }
            Err(failure) => Written::Failed(branch_end(failure)),
        };
        walks[place].take(setup, call.prompt, written);
    }
    Ok(())
}

impl Walk {
    /// Books a turn and carries out its action.
    fn take(&mut self, setup: &Setup, prompt: Vec<u32>, written: Written) {
        let (response, logprobs, text, action, actor) = match written {
            Written::Failed(end) => {
                self.end = Some(end);
                return;
            }
            Written::Turn { response, logprobs, text, action, actor } => {
                (response, logprobs, text, action, actor)
            }
        };
        let number = self.player.past().len();
        let observation = self.player.view.observation.clone();
        let acted = self.player.act(setup, action.as_deref().unwrap_or_default(), Some(&text));
        let log = BranchTurn { observation, text, action };
        self.turns.push(WalkTurn { number, prompt, response, logprobs, actor, log });
        if acted.is_err() {
            self.end = Some(BranchEnd::EngineFailure);
        } else if let Status::Ended { success } = self.player.view.status {
            self.end = Some(BranchEnd::Ended { success });
        }
    }

    fn log(&self) -> BranchLog {
        BranchLog { turns: self.turns.iter().map(|turn| turn.log.clone()).collect() }
    }
}
