//! Texts to learn from: an expert's play, its comments on plans, and plans changed by a comment.

use std::sync::Arc;

use lens_agent::prompts::{diagnostic_cue, hinted_message, turn_message};
use lens_env::{
    Actions, Benchmark, Decision, EnvError, Expert, PastStep, PromptStyle, Status, Task, Window,
};
use lens_opd::random::{Purpose, Stream, StreamKey};
use lens_opd::validate::fork::HintPrompt;
use rayon::prelude::*;

use crate::exercises::wanting_another;
use crate::slips::slip;

/// What a text teaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lesson {
    /// To find a thing in a list of commands.
    Find,
    /// To act.
    Act,
    /// To act as if something else had been wanted.
    Retold,
    /// To act carelessly.
    Slip,
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
    /// Share of turns that are also told as if something else that is there had been wanted.
    pub retold: f64,
    /// Share of turns that are also told as if the right command had been overlooked.
    pub slips: f64,
    /// Share of turns that also give a comment on a plan.
    pub comments: f64,
    /// Share of turns that also give an obeyed comment.
    pub obeyed: f64,
    /// Past steps shown in every prompt.
    pub history: usize,
    /// The longest episode.
    pub turn_limit: usize,
}

/// The answer of an agent that decided so.
pub fn act_answer(decision: &Decision) -> String {
    format!("{} <action>{}</action>", decision.thought, decision.action)
}

/// The teacher's sentence about a plan. What is right comes first, in the words in which the teacher would think it
/// itself; whether the plan is that can then be read off.
pub fn comment(plan: &str, decision: &Decision) -> String {
    let Decision { thought, action } = decision;
    let thought = thought.trim_end_matches('.');
    if plan == action {
        format!("{thought}: {action}{IS_RIGHT}{APPROVAL}")
    } else {
        format!("{thought}: {action}{IS_RIGHT}not {plan}.")
    }
}

const IS_RIGHT: &str = " is right, ";
const APPROVAL: &str = "you are on the right track.";

/// The action that such a sentence calls right.
pub fn named_action(comment: &str) -> Option<&str> {
    Some(comment.split_once(IS_RIGHT)?.0.rsplit_once(": ")?.1)
}

/// Whether such a sentence says that the plan is right.
pub fn is_approval(comment: &str) -> bool {
    comment.ends_with(APPROVAL)
}

/// A plan to comment on: a quarter of them are right, half careless, a quarter any command. If most were right, whoever
/// learns from the comments would learn to agree.
fn some_plan(
    expert: &dyn Expert,
    window: &Window,
    decision: &Decision,
    draws: &mut Stream,
) -> String {
    let kind = draws.uniform();
    let plan = if kind < 0.25 {
        None
    } else if kind < 0.75 {
        slip(expert, window, decision).map(|slip| slip.action)
    } else {
        random_command(&window.actions, draws)
    };
    plan.unwrap_or_else(|| decision.action.clone())
}

/// Texts from demonstrations of `tasks`, one stream of draws per task: the expert's play, or, from a benchmark without an
/// expert, the actions that are known to solve a task. A task that nobody can solve gives none.
pub fn corpus(
    benchmark: &Arc<dyn Benchmark>,
    tasks: &[Task],
    options: &CorpusOptions,
) -> Result<Vec<Text>, EnvError> {
    let style = &benchmark.profile().prompt;
    let per_task: Result<Vec<Vec<Text>>, EnvError> = tasks
        .par_iter()
        .enumerate()
        .map(|(number, task)| {
            let key = StreamKey::new(options.seed, 0, number as u64, Purpose::Data, 0);
            let mut draws = key.open();
            match benchmark.expert() {
                Some(expert) => {
                    let key = StreamKey::new(options.seed, 0, number as u64, Purpose::Data, 4);
                    let mut slips = key.open();
                    let benchmark = (benchmark, &*expert);
                    episode(benchmark, style, task, options, &mut draws, &mut slips)
                }
                None => retold(benchmark, style, task, options, &mut draws),
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
    style: &PromptStyle,
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
        let window = Window::new(&view, &past, options.history);
        let decision = Decision { thought: NEXT_STEP.to_owned(), action: action.clone() };
        let other = draws.below(2 * actions.len() as u64).unwrap_or_default() as usize;
        let plan = actions.get(other).unwrap_or(action);
        lessons(style, &window, &decision, plan, options, draws, &mut texts);
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

/// Slips have draws of their own, so that the other texts do not depend on how many there are.
fn episode(
    (benchmark, expert): (&Arc<dyn Benchmark>, &dyn Expert),
    style: &PromptStyle,
    task: &Task,
    options: &CorpusOptions,
    draws: &mut Stream,
    slips: &mut Stream,
) -> Result<Vec<Text>, EnvError> {
    let mut environment = benchmark.clone().environment()?;
    let mut view = environment.reset(task)?;
    let mut past: Vec<PastStep> = Vec::new();
    let mut texts = Vec::new();
    while view.status == Status::Running && past.len() < options.turn_limit {
        let window = Window::new(&view, &past, options.history);
        let decided = expert.decide(&window);
        if let Some(decision) = &decided {
            let plan = some_plan(expert, &window, decision, draws);
            lessons(style, &window, decision, &plan, options, draws, &mut texts);
            if slips.uniform() < options.slips
                && let Some(slip) = slip(expert, &window, decision)
            {
                let message = turn_message(style, &window);
                texts.push(Text { lesson: Lesson::Slip, message, answer: act_answer(&slip) });
            }
        }
        if draws.uniform() < options.retold
            && let Some(other) = wanting_another(&window, draws)
            && let Some(decision) = expert.decide(&other)
        {
            let first = texts.len();
            let plan = some_plan(expert, &other, &decision, draws);
            lessons(style, &other, &decision, &plan, options, draws, &mut texts);
            for text in texts[first..].iter_mut().filter(|text| text.lesson == Lesson::Act) {
                text.lesson = Lesson::Retold;
            }
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

/// One turn's lessons; the comments are on `plan`.
pub(crate) fn lessons(
    style: &PromptStyle,
    window: &Window,
    decision: &Decision,
    plan: &str,
    options: &CorpusOptions,
    draws: &mut Stream,
    texts: &mut Vec<Text>,
) {
    let message = turn_message(style, window);
    let share = draws.uniform();
    let hint = comment(plan, decision);
    if share < options.comments {
        texts.push(Text {
            lesson: Lesson::Comment,
            message: diagnostic_cue(style, window, plan),
            answer: hint.clone(),
        });
    }
    if share < options.obeyed {
        texts.push(Text {
            lesson: Lesson::Obey,
            message: hinted_message(&message, plan, &hint, HintPrompt::FeedbackIncorporation),
            // The right answer without a word on the comment: whoever learns to say it without having been told must
            // not speak of what nobody said.
            answer: act_answer(decision),
        });
    }
    texts.push(Text { lesson: Lesson::Act, message, answer: act_answer(decision) });
}

fn random_command(actions: &Actions, draws: &mut Stream) -> Option<String> {
    match actions {
        Actions::Commands(commands) => {
            let index = draws.below(commands.len() as u64)?;
            commands.get(index as usize).cloned()
        }
        Actions::Templates { .. } | Actions::Free => None,
    }
}

#[cfg(test)]
mod tests {
    use lens_env::alfworld::{Alfworld, Options};

    use super::*;
    use crate::recipe::corpus_options;

    #[test]
    fn comments_and_obeyed_comments_have_shares_of_their_own() {
        let benchmark: Arc<dyn Benchmark> =
            Arc::new(Alfworld::built_in(&Options::default()).expect("they are built in"));
        let tasks: Vec<Task> =
            benchmark.tasks("train").expect("a split").into_iter().take(40).collect();
        let options = CorpusOptions { retold: 0.0, ..corpus_options(1, &*benchmark) };
        let texts = corpus(&benchmark, &tasks, &options).expect("texts");
        let share = |lesson| {
            let of = |lesson| texts.iter().filter(|text| text.lesson == lesson).count() as f64;
            of(lesson) / of(Lesson::Act)
        };
        assert!((share(Lesson::Comment) - options.comments).abs() < 0.1);
        assert!((share(Lesson::Obey) - options.obeyed).abs() < 0.1);
        for pair in texts.windows(2).filter(|pair| pair[1].lesson == Lesson::Obey) {
            assert_eq!(pair[0].lesson, Lesson::Comment, "an obeyed comment follows its comment");
            assert!(pair[1].message.contains(&pair[0].answer));
        }
    }

    #[test]
    fn a_comment_tells_what_is_right_and_whether_the_plan_is_that() {
        let decision = Decision {
            thought: "I need cup 1, which is here, so I take it.".to_owned(),
            action: "take cup 1 from desk 1".to_owned(),
        };
        let wrong = comment("go to shelf 2", &decision);
        assert_eq!(
            wrong,
            "I need cup 1, which is here, so I take it: take cup 1 from desk 1 is right, not go to shelf 2."
        );
        let right = comment(&decision.action, &decision);
        for sentence in [&wrong, &right] {
            assert_eq!(named_action(sentence), Some("take cup 1 from desk 1"));
        }
        assert!(is_approval(&right) && !is_approval(&wrong));
        assert_eq!(named_action("I do not know."), None);
    }
}
