//! The samples that models are trained on: an expert's demonstrations, its critiques of plans, and turns in which such a
//! critique is followed.

use std::sync::Arc;

use lens_agent::prompts::{diagnostic_cue, hinted_message, turn_message};
use lens_env::{
    Actions, Benchmark, Decision, EnvError, Expert, PastStep, PromptStyle, Status, Task, Window,
};
use lens_opd::random::{Purpose, Stream, StreamKey};
use lens_opd::validate::fork::HintPrompt;
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::corrupted::corrupted;
use crate::exercises::counterfactual;

/// What a sample trains a model to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SampleKind {
    /// Find an object in a short list of commands.
    Exercise,
    /// Act as the expert does.
    Act,
    /// Act as the expert would if the task asked for another object that is here.
    Counterfactual,
    /// Act as the expert would if it overlooked the right command: a corrupted demonstration.
    Corrupted,
    /// Critique a planned action in one sentence.
    Critique,
    /// Act on a critique in the prompt.
    InstructionFollowing,
}

impl SampleKind {
    /// The name, as recipes spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exercise => "exercise",
            Self::Act => "act",
            Self::Counterfactual => "counterfactual",
            Self::Corrupted => "corrupted",
            Self::Critique => "critique",
            Self::InstructionFollowing => "instruction-following",
        }
    }
}

/// One message and the answer to train on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// What it trains.
    pub kind: SampleKind,
    /// The user's message.
    pub message: String,
    /// The assistant's answer.
    pub answer: String,
}

/// The recipe's `[corpus]` section: which samples the turns of a demonstration give. Shares are between 0 and 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Corpus {
    /// Share of turns at which a random command is executed instead of the expert's, so that the corpus also shows how
    /// to continue from states the expert would not have reached.
    pub random_actions: f64,
    /// Share of turns that also give a counterfactual sample.
    pub counterfactual: f64,
    /// Share of turns that also give a corrupted demonstration.
    pub corrupted: f64,
    /// Share of turns that also give a critique of a plan.
    pub critique: f64,
    /// Share of turns that also give an instruction-following sample. It is drawn together with `critique`: the turns
    /// with the smaller share are among those with the larger one.
    pub instruction_following: f64,
    /// The longest demonstration, in turns.
    pub turn_limit: usize,
}

impl Corpus {
    /// Demonstrations alone, without random actions.
    pub const fn act_only(turn_limit: usize) -> Self {
        Self {
            random_actions: 0.0,
            counterfactual: 0.0,
            corrupted: 0.0,
            critique: 0.0,
            instruction_following: 0.0,
            turn_limit,
        }
    }

    /// The share of turns that give samples of a kind; every turn gives one to act. Exercises are made from the samples.
    pub fn share(&self, kind: SampleKind) -> f64 {
        match kind {
            SampleKind::Exercise | SampleKind::Act => 1.0,
            SampleKind::Counterfactual => self.counterfactual,
            SampleKind::Corrupted => self.corrupted,
            SampleKind::Critique => self.critique,
            SampleKind::InstructionFollowing => self.instruction_following,
        }
    }
}

/// How samples are made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CorpusOptions {
    /// The seed of every draw.
    pub seed: u64,
    /// Past steps shown in every prompt.
    pub history: usize,
    /// The shares.
    pub corpus: Corpus,
}

/// A question about a planned action, and the same turn with the answer as an instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Critique {
    /// The diagnostic cue; the answer is the critique.
    pub question: Sample,
    /// The turn's prompt with that critique; the answer is the right action.
    pub followed: Sample,
}

impl Critique {
    /// The critique of `plan` by an expert that decided `decision`.
    pub(crate) fn new(
        style: &PromptStyle,
        window: &Window,
        decision: &Decision,
        plan: &str,
    ) -> Self {
        let sentence = critique_sentence(plan, decision);
        let message = turn_message(style, window);
        Self {
            followed: Sample {
                kind: SampleKind::InstructionFollowing,
                message: hinted_message(
                    &message,
                    plan,
                    &sentence,
                    HintPrompt::FeedbackIncorporation,
                ),
                // The answer must not mention the critique: internalization later trains the model to give this answer
                // without having seen one.
                answer: act_answer(decision),
            },
            question: Sample {
                kind: SampleKind::Critique,
                message: diagnostic_cue(style, window, plan),
                answer: sentence,
            },
        }
    }

    /// Whether it says that the plan is right.
    pub fn approves(&self) -> bool {
        is_approval(&self.question.answer)
    }
}

/// The answer of an agent that made this decision.
pub fn act_answer(decision: &Decision) -> String {
    format!("{} <action>{}</action>", decision.thought, decision.action)
}

/// The teacher's sentence about a plan. The right action comes first, in the words of the teacher's own thought; whether
/// the plan is that action can then be read off.
pub fn critique_sentence(plan: &str, decision: &Decision) -> String {
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
pub fn named_action(critique: &str) -> Option<&str> {
    Some(critique.split_once(IS_RIGHT)?.0.rsplit_once(": ")?.1)
}

/// Whether such a sentence says that the plan is right.
pub fn is_approval(critique: &str) -> bool {
    critique.ends_with(APPROVAL)
}

/// A plan to critique: a quarter of them are right, half are corrupted, a quarter are any command. If most were right, a
/// model trained on the critiques would learn to agree.
fn draw_plan(
    expert: &dyn Expert,
    window: &Window,
    decision: &Decision,
    draws: &mut Stream,
) -> String {
    let kind = draws.uniform();
    let plan = if kind < 0.25 {
        None
    } else if kind < 0.75 {
        corrupted(expert, window, decision).map(|wrong| wrong.action)
    } else {
        random_command(&window.actions, draws)
    };
    plan.unwrap_or_else(|| decision.action.clone())
}

/// Samples from demonstrations of `tasks`, one stream of draws per task. The expert demonstrates; a benchmark without an
/// expert gives its reference solutions. A task that has neither gives no sample.
pub fn corpus(
    benchmark: &Arc<dyn Benchmark>,
    tasks: &[Task],
    options: &CorpusOptions,
) -> Result<Vec<Sample>, EnvError> {
    let per_task: Result<Vec<Vec<Sample>>, EnvError> = tasks
        .par_iter()
        .enumerate()
        .map(|(number, task)| {
            let stream =
                |branch| StreamKey::new(options.seed, 0, number as u64, Purpose::Data, branch);
            let mut draws = stream(0).open();
            match benchmark.expert() {
                Some(expert) => {
                    // Draws of their own, so that the other samples do not depend on the share of corrupted ones.
                    let mut corrupted = stream(4).open();
                    let benchmark = (benchmark, &*expert);
                    expert_episode(benchmark, task, options, &mut draws, &mut corrupted)
                }
                None => reference_episode(benchmark, task, options, &mut draws),
            }
        })
        .collect();
    Ok(per_task?.into_iter().flatten().collect())
}

/// The thought before an action of a reference solution, which comes without reasons.
const REFERENCE_THOUGHT: &str = "The next step is clear.";

/// The samples of a reference solution. Wrong plans are other actions of it.
fn reference_episode(
    benchmark: &Arc<dyn Benchmark>,
    task: &Task,
    options: &CorpusOptions,
    draws: &mut Stream,
) -> Result<Vec<Sample>, EnvError> {
    let Some(actions) = benchmark.reference_actions(task)? else { return Ok(Vec::new()) };
    let style = &benchmark.profile().prompt;
    let mut environment = benchmark.clone().environment()?;
    let mut view = environment.reset(task)?;
    let mut past: Vec<PastStep> = Vec::new();
    let mut samples = Vec::new();
    for action in actions.iter().take(options.corpus.turn_limit) {
        if view.status != Status::Running {
            break;
        }
        let window = Window::new(&view, &past, options.history);
        let decision = Decision { thought: REFERENCE_THOUGHT.to_owned(), action: action.clone() };
        let other = draws.below(2 * actions.len() as u64).unwrap_or_default() as usize;
        let plan = actions.get(other).unwrap_or(action);
        turn_samples(style, &window, &decision, plan, &options.corpus, draws, &mut samples);
        let next = environment.step(action)?;
        let before = std::mem::replace(&mut view, next);
        past.push(PastStep {
            step: past.len(),
            observation: before.observation,
            action: action.clone(),
        });
    }
    Ok(samples)
}

/// The samples of an episode that the expert plays.
fn expert_episode(
    (benchmark, expert): (&Arc<dyn Benchmark>, &dyn Expert),
    task: &Task,
    options: &CorpusOptions,
    draws: &mut Stream,
    corrupted_draws: &mut Stream,
) -> Result<Vec<Sample>, EnvError> {
    let style = &benchmark.profile().prompt;
    let shares = &options.corpus;
    let mut environment = benchmark.clone().environment()?;
    let mut view = environment.reset(task)?;
    let mut past: Vec<PastStep> = Vec::new();
    let mut samples = Vec::new();
    while view.status == Status::Running && past.len() < shares.turn_limit {
        let window = Window::new(&view, &past, options.history);
        let decided = expert.decide(&window);
        if let Some(decision) = &decided {
            let plan = draw_plan(expert, &window, decision, draws);
            turn_samples(style, &window, decision, &plan, shares, draws, &mut samples);
            if corrupted_draws.uniform() < shares.corrupted
                && let Some(wrong) = corrupted(expert, &window, decision)
            {
                let message = turn_message(style, &window);
                let answer = act_answer(&wrong);
                samples.push(Sample { kind: SampleKind::Corrupted, message, answer });
            }
        }
        if draws.uniform() < shares.counterfactual
            && let Some(other) = counterfactual(&window, draws)
            && let Some(decision) = expert.decide(&other)
        {
            let first = samples.len();
            let plan = draw_plan(expert, &other, &decision, draws);
            turn_samples(style, &other, &decision, &plan, shares, draws, &mut samples);
            for sample in samples.iter_mut().skip(first).filter(|one| one.kind == SampleKind::Act) {
                sample.kind = SampleKind::Counterfactual;
            }
        }
        let random = draws.uniform() < shares.random_actions;
        let action = match (decided, random) {
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
    Ok(samples)
}

/// Adds the samples of one turn; the critique is of `plan`.
pub(crate) fn turn_samples(
    style: &PromptStyle,
    window: &Window,
    decision: &Decision,
    plan: &str,
    shares: &Corpus,
    draws: &mut Stream,
    samples: &mut Vec<Sample>,
) {
    let share = draws.uniform();
    let Critique { question, followed } = Critique::new(style, window, decision, plan);
    if share < shares.critique {
        samples.push(question);
    }
    if share < shares.instruction_following {
        samples.push(followed);
    }
    let message = turn_message(style, window);
    samples.push(Sample { kind: SampleKind::Act, message, answer: act_answer(decision) });
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
    use crate::recipe::Recipe;

    #[test]
    fn critiques_and_instructions_have_shares_of_their_own() {
        let benchmark: Arc<dyn Benchmark> =
            Arc::new(Alfworld::built_in(&Options::default()).expect("they are built in"));
        let tasks: Vec<Task> =
            benchmark.tasks("train").expect("a split").into_iter().take(40).collect();
        let recipe = Recipe::shipped("alfworld").expect("it is shipped");
        let mut options = recipe.corpus_options(1, &*benchmark);
        options.corpus.counterfactual = 0.0;
        let samples = corpus(&benchmark, &tasks, &options).expect("samples");
        let share = |kind| {
            let of = |kind| samples.iter().filter(|one| one.kind == kind).count() as f64;
            of(kind) / of(SampleKind::Act)
        };
        for kind in [SampleKind::Critique, SampleKind::InstructionFollowing] {
            assert!((share(kind) - options.corpus.share(kind)).abs() < 0.1, "{}", kind.name());
        }
    }

    #[test]
    fn a_followed_critique_contains_the_answer_to_its_question() {
        let benchmark = Alfworld::built_in(&Options::default()).expect("they are built in");
        let window = Window {
            task: "put a cup in shelf.".to_owned(),
            history: Vec::new(),
            steps_taken: 0,
            observation: "On the desk 1, you see a cup 1.".to_owned(),
            actions: Actions::Commands(vec!["take cup 1 from desk 1".to_owned()]),
        };
        let decision = Decision {
            thought: "I need cup 1, which is here, so I take it.".to_owned(),
            action: "take cup 1 from desk 1".to_owned(),
        };
        let style = &benchmark.profile().prompt;
        for (plan, approved) in [("go to shelf 2", false), (&*decision.action, true)] {
            let critique = Critique::new(style, &window, &decision, plan);
            assert!(critique.followed.message.contains(&critique.question.answer));
            assert_eq!(critique.followed.answer, act_answer(&decision));
            assert_eq!(critique.approves(), approved);
        }
    }

    #[test]
    fn a_critique_names_the_right_action_and_whether_the_plan_is_that() {
        let decision = Decision {
            thought: "I need cup 1, which is here, so I take it.".to_owned(),
            action: "take cup 1 from desk 1".to_owned(),
        };
        let wrong = critique_sentence("go to shelf 2", &decision);
        assert_eq!(
            wrong,
            "I need cup 1, which is here, so I take it: take cup 1 from desk 1 is right, not go to shelf 2."
        );
        let right = critique_sentence(&decision.action, &decision);
        for sentence in [&wrong, &right] {
            assert_eq!(named_action(sentence), Some("take cup 1 from desk 1"));
        }
        assert!(is_approval(&right) && !is_approval(&wrong));
        assert_eq!(named_action("I do not know."), None);
    }
}
