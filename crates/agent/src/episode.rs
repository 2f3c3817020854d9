//! Episodes: in lockstep, where all running ones take their next turn through one batched call, or each on its own where
//! the model takes many calls at once.

use lens_engine::{
    CallFailure, Completion, EngineError, GenerateCall, Message, Policy, Sampling, fan_out,
};
use lens_env::{Snapshot, Status, Task, View};
use lens_opd::episode::{Actor, EpisodeEnd, TurnDrop};
use lens_opd::methods::exposure::Exposure;
use lens_opd::random::{Purpose, StreamKey};
use rayon::prelude::*;

use crate::config::RolloutConfig;
use crate::parse::ParseFailure;
use crate::player::Player;
use crate::reply::{Reply, turn_drop};

/// An episode to play.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The episode's key inside its batch.
    pub key: u64,
    /// The task.
    pub task: Task,
    /// How far, after which prefix, and who acts.
    pub exposure: Exposure,
    /// Actions known to solve the task; the exposure's prefix is taken from them.
    pub reference: Option<Vec<String>>,
    /// The run's seed, the batch, and what the draws are for.
    pub seed: u64,
    /// The batch the draws belong to.
    pub batch: u64,
    /// What the student's draws are for: training or evaluation.
    pub purpose: Purpose,
    /// How tokens are drawn.
    pub sampling: Sampling,
}

/// One turn that was played.
#[derive(Debug, Clone)]
pub struct Turn {
    /// The turn's number, from 0 at reset.
    pub number: usize,
    /// Who acted.
    pub actor: Actor,
    /// What was seen before acting.
    pub view: View,
    /// The environment's state before acting.
    pub snapshot: Option<Snapshot>,
    /// The prompt's tokens.
    pub prompt: Vec<u32>,
    /// The response's tokens.
    pub response: Vec<u32>,
    /// Each token's log-probability as it was drawn.
    pub logprobs: Vec<f32>,
    /// The response's text.
    pub text: String,
    /// Whether the response was cut at the limit of tokens.
    pub truncated: bool,
    /// The action the parser found.
    pub action: Option<String>,
    /// Why it found none.
    pub unparsed: Option<ParseFailure>,
    /// Whether the environment offered that action.
    pub admissible: bool,
    /// Why the turn must not be trained on.
    pub dropped: Option<TurnDrop>,
}

/// An episode that was played.
#[derive(Debug, Clone)]
pub struct Episode {
    /// The plan it followed.
    pub plan: Plan,
    /// Version of the snapshot that played it.
    pub version: u64,
    /// Turns replayed from the reference actions.
    pub prefix: usize,
    /// The actions replayed and played, with what was seen before each.
    pub past: Vec<lens_env::PastStep>,
    /// The conversation that led to each turn, for chat contexts: entry `i` belongs to `turns[i]`.
    pub conversations: Vec<Vec<Message>>,
    /// The turns a model played.
    pub turns: Vec<Turn>,
    /// How it ended.
    pub end: EpisodeEnd,
    /// Whether the task was solved.
    pub success: bool,
    /// The benchmark's score at the end.
    pub score: f64,
    /// What went wrong, where something did.
    pub failure: Option<String>,
}

struct Live {
    player: Option<Player>,
    episode: Episode,
    over: bool,
}

impl Live {
    fn finish(&mut self, end: EpisodeEnd, failure: Option<String>) {
        self.over = true;
        self.episode.end = end;
        self.episode.failure = failure;
        if let Some(player) = &self.player {
            self.episode.success = player.view.status == Status::Ended { success: true };
            self.episode.score = player.view.score;
            self.episode.past = player.past().to_vec();
        }
    }

    /// Ends the episode if its last action, or its horizon, ended it.
    fn settle(&mut self, turn_limit: usize) {
        let Some(player) = &self.player else { return };
        let taken = player.past().len();
        let horizon = self.episode.plan.exposure.horizon.min(turn_limit);
        if !player.is_running() {
            self.finish(EpisodeEnd::Completed, None);
        } else if taken >= turn_limit {
            self.finish(EpisodeEnd::TurnLimit, None);
        } else if taken >= horizon {
            self.finish(EpisodeEnd::CurriculumCutoff, None);
        }
    }
}

/// Plays all plans to their ends. `teacher` acts where an exposure says so; `keep_states` saves the state before
/// every turn, for forks. `watch` is told how many episodes have ended, and how many there are. Results do not depend on
/// how episodes are interleaved: draws are named by the plan, not by the order of calls.
pub fn play(
    config: &RolloutConfig,
    student: &dyn Policy,
    teacher: Option<&dyn Policy>,
    plans: Vec<Plan>,
    keep_states: bool,
    watch: &mut dyn FnMut(usize, usize),
) -> Result<Vec<Episode>, EngineError> {
    let Some(width) = student.concurrency() else {
        return in_lockstep(config, student, teacher, plans, keep_states, watch);
    };
    let count = plans.len();
    let alone = |index: usize| {
        let plan = vec![plans[index].clone()];
        in_lockstep(config, student, teacher, plan, keep_states, &mut |_, _| {})
    };
    let episodes = fan_out(count, width, alone, &mut |ended| watch(ended, count))?;
    Ok(episodes.into_iter().flatten().collect())
}

fn in_lockstep(
    config: &RolloutConfig,
    student: &dyn Policy,
    teacher: Option<&dyn Policy>,
    plans: Vec<Plan>,
    keep_states: bool,
    watch: &mut dyn FnMut(usize, usize),
) -> Result<Vec<Episode>, EngineError> {
    let version = student.version();
    let mut live: Vec<Live> =
        plans.into_par_iter().map(|plan| start(config, plan, version)).collect();
    while live.iter().any(|live| !live.over) {
        take_turns(config, student, teacher, &mut live, keep_states)?;
        watch(live.iter().filter(|live| live.over).count(), live.len());
    }
    Ok(live.into_iter().map(|live| live.episode).collect())
}

fn start(config: &RolloutConfig, plan: Plan, version: u64) -> Live {
    let episode = Episode {
        version,
        prefix: 0,
        past: Vec::new(),
        conversations: Vec::new(),
        turns: Vec::new(),
        end: EpisodeEnd::Failed,
        success: false,
        score: 0.0,
        failure: None,
        plan,
    };
    let mut live = Live { player: None, episode, over: false };
    let begun = config.benchmark.clone().environment().and_then(|mut environment| {
        let view = environment.reset(&live.episode.plan.task)?;
        Ok(Player::new(environment, view))
    });
    match begun {
        Ok(player) => live.player = Some(player),
        Err(error) => {
            live.finish(EpisodeEnd::Failed, Some(error.to_string()));
            return live;
        }
    }
    let prefix = live.episode.plan.exposure.prefix;
    let actions: Vec<String> =
        live.episode.plan.reference.iter().flatten().take(prefix).cloned().collect();
    for action in actions {
        let Some(player) = &mut live.player else { break };
        if let Err(error) = player.act(config, &action, None) {
            live.finish(EpisodeEnd::Failed, Some(error.to_string()));
            return live;
        }
        live.episode.prefix += 1;
    }
    live.settle(config.turn_limit);
    live
}

/// A turn about to be taken: which episode, who acts, with which prompt.
struct Pending {
    index: usize,
    actor: Actor,
    call: GenerateCall,
    snapshot: Option<Snapshot>,
}

fn take_turns(
    config: &RolloutConfig,
    student: &dyn Policy,
    teacher: Option<&dyn Policy>,
    live: &mut [Live],
    keep_states: bool,
) -> Result<(), EngineError> {
    let mut pending = Vec::new();
    for (index, episode) in live.iter_mut().enumerate().filter(|(_, episode)| !episode.over) {
        if config.deadline.has_passed() {
            episode.finish(EpisodeEnd::Failed, Some("the deadline passed".to_owned()));
            continue;
        }
        if let Some(turn) = prepare(config, student, teacher, index, episode, keep_states)? {
            pending.push(turn);
        }
    }
    let answers = answer(config, student, teacher, &pending)?;
    let mut work: Vec<Option<(Pending, Result<Completion, CallFailure>)>> =
        live.iter().map(|_| None).collect();
    for (turn, answer) in pending.into_iter().zip(answers) {
        let index = turn.index;
        work[index] = Some((turn, answer));
    }
    live.par_iter_mut().zip(work).for_each(|(episode, work)| {
        if let Some((turn, answer)) = work {
            let codec = match (turn.actor, teacher) {
                (Actor::Teacher, Some(teacher)) => teacher.codec(),
                _ => student.codec(),
            };
            let reply = Reply::from_completion(config.prompting.parser, codec, answer);
            apply(config, episode, turn, reply);
        }
    });
    Ok(())
}

fn prepare(
    config: &RolloutConfig,
    student: &dyn Policy,
    teacher: Option<&dyn Policy>,
    index: usize,
    live: &mut Live,
    keep_states: bool,
) -> Result<Option<Pending>, EngineError> {
    let Some(player) = &mut live.player else { return Ok(None) };
    let number = player.past().len();
    let plan = &live.episode.plan;
    let actor = plan.exposure.actor(number);
    let (policy, purpose) = match actor {
        Actor::Student => (student, plan.purpose),
        Actor::Teacher => {
            let missing = || {
                EngineError::Request(
                    "the method lets the teacher act, but none was given".to_owned(),
                )
            };
            (teacher.ok_or_else(missing)?, Purpose::Teacher)
        }
    };
    let snapshot = if keep_states {
        match player.environment.snapshot() {
            Ok(snapshot) => Some(snapshot),
            Err(error) => {
                live.finish(EpisodeEnd::Failed, Some(error.to_string()));
                return Ok(None);
            }
        }
    } else {
        None
    };
    let message = match player.message(config) {
        Ok(message) => message,
        Err(error) => {
            live.finish(EpisodeEnd::Failed, Some(error.to_string()));
            return Ok(None);
        }
    };
    let prompt = player.prompt(config, policy.codec(), &message)?;
    let call = GenerateCall {
        prompt,
        max_prompt_tokens: config.max_prompt_tokens,
        max_new_tokens: config.max_response_tokens,
        sampling: plan.sampling,
        stream: StreamKey::new(plan.seed, plan.batch, plan.key, purpose, number as u32),
    };
    Ok(Some(Pending { index, actor, call, snapshot }))
}

/// One batched call per model, answers in the order of `pending`.
fn answer(
    config: &RolloutConfig,
    student: &dyn Policy,
    teacher: Option<&dyn Policy>,
    pending: &[Pending],
) -> Result<Vec<Result<Completion, CallFailure>>, EngineError> {
    let mut answers: Vec<Result<Completion, CallFailure>> =
        pending.iter().map(|_| Err(CallFailure::Engine)).collect();
    for (actor, policy) in [(Actor::Student, Some(student)), (Actor::Teacher, teacher)] {
        let asked: Vec<usize> =
            (0..pending.len()).filter(|&index| pending[index].actor == actor).collect();
        let (Some(policy), false) = (policy, asked.is_empty()) else { continue };
        let calls: Vec<GenerateCall> =
            asked.iter().map(|&index| pending[index].call.clone()).collect();
        for (index, answer) in asked.into_iter().zip(policy.generate(&calls, config.deadline)?) {
            answers[index] = answer;
        }
    }
    Ok(answers)
}

fn apply(
    config: &RolloutConfig,
    live: &mut Live,
    turn: Pending,
    reply: Result<Reply, CallFailure>,
) {
    let Some(player) = &mut live.player else { return };
    let mut record = Turn {
        number: player.past().len(),
        actor: turn.actor,
        view: player.view.clone(),
        snapshot: turn.snapshot,
        prompt: turn.call.prompt,
        response: Vec::new(),
        logprobs: Vec::new(),
        text: String::new(),
        truncated: false,
        action: None,
        unparsed: None,
        admissible: false,
        dropped: None,
    };
    let conversation = player.conversation().to_vec();
    let reply = match reply {
        Ok(reply) => reply,
        Err(failure) => {
            record.dropped = Some(turn_drop(failure));
            live.episode.turns.push(record);
            live.episode.conversations.push(conversation);
            let end = match failure {
                CallFailure::PromptTooLong => EpisodeEnd::PromptTooLong,
                CallFailure::Timeout | CallFailure::Engine => EpisodeEnd::Failed,
            };
            live.finish(end, Some(failure.to_string()));
            return;
        }
    };
    record.admissible = reply.is_admissible(config, &player.view);
    record.response = reply.tokens;
    record.logprobs = reply.logprobs;
    record.truncated = reply.truncated;
    record.action = reply.action;
    record.unparsed = reply.unparsed;
    record.text = reply.text;
    let action = record.action.clone().unwrap_or_default();
    let acted = player.act(config, &action, Some(&record.text));
    live.episode.turns.push(record);
    live.episode.conversations.push(conversation);
    match acted {
        Ok(()) => live.settle(config.turn_limit),
        Err(error) => live.finish(EpisodeEnd::Failed, Some(error.to_string())),
    }
}
