//! Texts to learn from: an expert's play, its comments on plans, and plans changed by a comment.

use std::sync::Arc;

use lens_agent::prompts::{Wording, diagnostic_cue, hinted_message, turn_message};
use lens_env::{Actions, Benchmark, Decision, EnvError, Expert, PastStep, Status, Task, Window};
use lens_opd::random::{Purpose, Stream, StreamKey};
use lens_opd::validate::fork::Feedback;
use rayon::prelude::*;

/// What a text teaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lesson {
    /// To act.
    Act,
    /// To comment on a plan in one sentence.
    Comment,
    /// To act on a comment.
    Obey,
}

/// One message and the answer to learn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// What it teaches.
    pub lesson: Lesson,
    /// The message.
    pub message: String,
    /// The answer.
    pub answer: String,
}

/// How texts are made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CorpusOptions {
    /// The seed of everything random.
    pub seed: u64,
    /// Share of turns at which a random action is carried out instead of the expert's, so that the expert also shows
    /// how to go on from states it would not have reached.
    pub stray: f64,
    /// Share of turns that also give a comment and an obeyed comment.
    pub comments: f64,
    /// Past steps shown in every prompt.
    pub history: usize,
    /// The longest episode.
    pub turn_limit: usize,
}

/// The answer of an agent that decided so.
pub fn act_answer(decision: &Decision) -> String {
    format!("{} <action>{}</action>", decision.thought, decision.action)
}

/// The teacher's sentence about a plan.
pub fn comment(plan: &str, decision: &Decision) -> String {
    if plan == decision.action {
        format!("This is on the right track: {} is the right step.", decision.action)
    } else {
        format!("This is not the right step: you should {} instead.", decision.action)
    }
}

/// The answer of a student that took such a comment to heart.
fn obeying_answer(plan: &str, decision: &Decision) -> String {
    let thought = if plan == decision.action {
        "The feedback agrees with my plan."
    } else {
        "The feedback says otherwise, so I follow it."
    };
    format!("{thought} <action>{}</action>", decision.action)
}

/// Texts from demonstrations of `tasks`, one stream of draws per task: the expert's play, or, from a benchmark without an
/// expert, the actions that are known to solve a task. A task that nobody can solve gives none.
pub fn corpus(
    benchmark: &Arc<dyn Benchmark>,
    tasks: &[Task],
    options: &CorpusOptions,
) -> Result<Vec<Text>, EnvError> {
    let wording = Wording::of(benchmark.name());
    let per_task: Result<Vec<Vec<Text>>, EnvError> = tasks
        .par_iter()
        .enumerate()
        .map(|(number, task)| {
            let key = StreamKey::new(options.seed, 0, number as u64, Purpose::Data, 0);
            let mut draws = key.open();
            match benchmark.expert() {
                Some(expert) => episode(benchmark, &*expert, wording, task, options, &mut draws),
                None => retold(benchmark, wording, task, options, &mut draws),
            }
        })
        .collect();
    Ok(per_task?.into_iter().flatten().collect())
}

/// What goes before a known action: the one who found it gave no reason.
const NEXT_STEP: &str = "The next step is clear.";

/// The texts of a known solution. Wrong plans are other actions of it.
fn retold(
    benchmark: &Arc<dyn Benchmark>,
    wording: Wording,
    task: &Task,
    options: &CorpusOptions,
    draws: &mut Stream,
) -> Result<Vec<Text>, EnvError> {
    let Some(actions) = benchmark.reference_actions(task)? else { return Ok(Vec::new()) };
    let mut environment = benchmark.clone().environment()?;
    let mut view = environment.reset(task)?;
    let mut past: Vec<PastStep> = Vec::new();
    let mut texts = Vec::new();
    for action in actions.iter().take(options.turn_limit) {
        if view.status != Status::Running {
            break;
        }
        let window = Window::of(&view, &past, options.history);
        let decision = Decision { thought: NEXT_STEP.to_owned(), action: action.clone() };
        let other = draws.below(2 * actions.len() as u64).unwrap_or_default() as usize;
        let plan = actions.get(other).unwrap_or(action);
        lessons(wording, &window, &decision, Some(plan), options, draws, &mut texts);
        let next = environment.step(action)?;
        let before = std::mem::replace(&mut view, next);
        past.push(PastStep {
            step: past.len(),
            observation: before.observation,
            action: action.clone(),
        });
    }
    Ok(texts)
}

fn episode(
    benchmark: &Arc<dyn Benchmark>,
    expert: &dyn Expert,
    wording: Wording,
    task: &Task,
    options: &CorpusOptions,
    draws: &mut Stream,
) -> Result<Vec<Text>, EnvError> {
    let mut environment = benchmark.clone().environment()?;
    let mut view = environment.reset(task)?;
    let mut past: Vec<PastStep> = Vec::new();
    let mut texts = Vec::new();
    while view.status == Status::Running && past.len() < options.turn_limit {
        let window = Window::of(&view, &past, options.history);
        let decided = expert.decide(&window);
        if let Some(decision) = &decided {
            lessons(wording, &window, decision, None, options, draws, &mut texts);
        }
        let stray = draws.uniform() < options.stray;
        let action = match (decided, stray) {
            (Some(decision), false) => decision.action,
            _ => match random_command(&window.actions, draws) {
                Some(command) => command,
                None => break,
            },
        };
        let next = environment.step(&action)?;
        let before = std::mem::replace(&mut view, next);
        past.push(PastStep { step: past.len(), observation: before.observation, action });
    }
    Ok(texts)
}

/// One turn's lessons. The comments are on `plan`; without one, half of the plans are right, half are any other command.
pub(crate) fn lessons(
    wording: Wording,
    window: &Window,
    decision: &Decision,
    plan: Option<&str>,
    options: &CorpusOptions,
    draws: &mut Stream,
    texts: &mut Vec<Text>,
) {
    let message = turn_message(wording, window);
    if draws.uniform() < options.comments {
        let plan = match plan {
            Some(plan) => Some(plan.to_owned()),
            None if draws.uniform() < 0.5 => None,
            None => random_command(&window.actions, draws),
        };
        let plan = plan.unwrap_or_else(|| decision.action.clone());
        let hint = comment(&plan, decision);
        texts.push(Text {
            lesson: Lesson::Comment,
            message: diagnostic_cue(wording, window, &plan),
            answer: hint.clone(),
        });
        texts.push(Text {
            lesson: Lesson::Obey,
            message: hinted_message(&message, &plan, &hint, Feedback::Incorporate),
            answer: obeying_answer(&plan, decision),
        });
    }
    texts.push(Text { lesson: Lesson::Act, message, answer: act_answer(decision) });
}

fn random_command(actions: &Actions, draws: &mut Stream) -> Option<String> {
    match actions {
        Actions::Commands(commands) => {
            let place = draws.below(commands.len() as u64)?;
            commands.get(place as usize).cloned()
        }
        Actions::Templates { .. } => None,
    }
}
