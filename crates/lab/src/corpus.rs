//! The samples that models are trained on: an expert's demonstrations, its critiques of plans, and turns in which such a
//! critique is followed.

use std::sync::Arc;

use lens_agent::prompts::{diagnostic_cue, hinted_message, turn_message};
use lens_env::{Benchmark, Decision, EnvError, PromptStyle, Task, Window};
use lens_opd::validate::fork::HintPrompt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::episodes::demonstrations;

/// What a sample trains a model to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SampleKind {
    /// Find an object in a short list of commands.
    Exercise,
    /// Find an object in a whole list of commands, or the place to search next.
    Drill,
    /// Act as the expert does.
    Act,
    /// Act as the expert would if the task asked for another object that is here.
    Counterfactual,
    /// Act as the expert would if it overlooked the right command: a corrupted demonstration.
    Corrupted,
    /// Act as a student with bad habits does: with lapses where the model's `[model.habits]` say so.
    Habit,
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
            Self::Drill => "drill",
            Self::Act => "act",
            Self::Counterfactual => "counterfactual",
            Self::Corrupted => "corrupted",
            Self::Habit => "habit",
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
    /// Share of turns at which a command that is not admissible is executed instead, such as one with a wrong number: a
    /// model whose corpus never shows that nothing happened repeats itself when it does.
    #[serde(default)]
    pub stumbles: f64,
    /// Share of demonstrations in which lapses are executed as well, so that the corpus shows what students run into.
    #[serde(default)]
    pub wandering: f64,
    /// Share of turns at which a lapse is executed in those demonstrations.
    #[serde(default)]
    pub lapses: f64,
    /// Share of phrases that an answer to act says in other words.
    #[serde(default)]
    pub rewording: f64,
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
    /// Past steps shown in every prompt; the benchmark's number if it is not set. A run sets `rollout.history` and
    /// `eval.history` to the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<usize>,
}

impl Corpus {
    /// Demonstrations alone, without random actions.
    pub const fn act_only(turn_limit: usize) -> Self {
        Self {
            random_actions: 0.0,
            stumbles: 0.0,
            wandering: 0.0,
            lapses: 0.0,
            rewording: 0.0,
            counterfactual: 0.0,
            corrupted: 0.0,
            critique: 0.0,
            instruction_following: 0.0,
            turn_limit,
            history: None,
        }
    }

    /// The share of turns that give samples of a kind; every turn gives one to act, and one of habits where there is an
    /// expert. Exercises are made from the samples.
    pub fn share(&self, kind: SampleKind) -> f64 {
        match kind {
            SampleKind::Exercise | SampleKind::Drill | SampleKind::Act | SampleKind::Habit => 1.0,
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

/// The samples of demonstrations of `tasks`.
pub fn corpus(
    benchmark: &Arc<dyn Benchmark>,
    tasks: &[Task],
    options: &CorpusOptions,
) -> Result<Vec<Sample>, EnvError> {
    Ok(demonstrations(benchmark, tasks, options)?.samples)
}

#[cfg(test)]
mod tests {
    use lens_env::Actions;
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
