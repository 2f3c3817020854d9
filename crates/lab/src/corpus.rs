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

/// Texts from the expert's play of `tasks`, one stream of draws per task. `None` from a benchmark without an expert.
pub fn corpus(
    benchmark: &Arc<dyn Benchmark>,
    tasks: &[Task],
    options: &CorpusOptions,
) -> Result<Option<Vec<Text>>, EnvError> {
    let wording = Wording::of(benchmark.name());
    if benchmark.expert().is_none() {
        return Ok(None);
    }
    let per_task: Result<Vec<Vec<Text>>, EnvError> = tasks
        .par_iter()
        .enumerate()
        .map(|(number, task)| {
            let key = StreamKey::new(options.seed, 0, number as u64, Purpose::Data, 0);
            match benchmark.expert() {
                Some(expert) => {
                    episode(benchmark, &*expert, wording, task, options, &mut key.open())
                }
                None => Ok(Vec::new()),
            }
        })
        .collect();
    Ok(Some(per_task?.into_iter().flatten().collect()))
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
        let window = Window {
            task: view.task.clone(),
            history: past[past.len().saturating_sub(options.history)..].to_vec(),
            steps_taken: past.len(),
            observation: view.observation.clone(),
            actions: view.actions.clone(),
        };
        let decided = expert.decide(&window);
        if let Some(decision) = &decided {
            lessons(wording, &window, decision, options, draws, &mut texts);
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

fn lessons(
    wording: Wording,
    window: &Window,
    decision: &Decision,
    options: &CorpusOptions,
    draws: &mut Stream,
    texts: &mut Vec<Text>,
) {
    let message = turn_message(wording, window);
    if draws.uniform() < options.comments {
        // Half of the plans are right, half are any other command.
        let plan = if draws.uniform() < 0.5 {
            Some(decision.action.clone())
        } else {
            random_command(&window.actions, draws)
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
