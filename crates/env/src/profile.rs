//! What is fixed about a benchmark: splits, limits, prompt, score.
//!
//! A benchmark owns its profile, so nothing outside `crates/env` has to know a benchmark by name. Benchmarks that
//! are known when the program is compiled have theirs as a constant; the texts are `Cow`s so that one that is only
//! known when it is opened (a server, a script) can have one too.

use std::borrow::Cow;

/// A list of names, constant or made at run time.
pub type Names = Cow<'static, [Cow<'static, str>]>;

/// What is fixed about a benchmark.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// The name, as used on the command line and in configurations.
    pub name: Cow<'static, str>,
    /// One line for help texts.
    pub summary: Cow<'static, str>,
    /// The longest episode in turns: 30 for ALFWorld and ScienceWorld, 15 for WebShop in the paper.
    pub turn_limit: usize,
    /// The split to train on.
    pub train_split: Cow<'static, str>,
    /// The splits to evaluate on.
    pub eval_splits: Names,
    /// Splits that the paper reports together as one column; empty where it reports each alone.
    pub pooled_splits: Names,
    /// Past steps that every prompt shows; two in the paper.
    pub history: usize,
    /// How a turn becomes a message.
    pub prompt: PromptStyle,
    /// What the score means.
    pub score: ScoreScale,
    /// What small models are built from.
    pub laboratory: Laboratory,
}

/// How a turn becomes a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptStyle {
    /// The message, with `{slots}`: `task_description`, `step_count`, `history_length`, `action_history`,
    /// `current_step`, `current_observation`, `admissible_actions` (or `available_actions`), `action_templates`,
    /// `objects`.
    pub template: Cow<'static, str>,
    /// How listed commands are written.
    pub commands: CommandStyle,
    /// Commands that the environment understands and the prompt does not list.
    pub hidden_commands: Names,
    /// Whether past observations are folded into one line each.
    pub fold_history: bool,
}

/// How listed commands are written, one per line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandStyle {
    /// `'go to desk 1'`
    Quoted,
    /// `click[buy now]`
    Bare,
}

/// What a benchmark's score means, and with it how an evaluation is summarized.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum ScoreScale {
    /// There is no score beside success.
    #[default]
    None,
    /// Between 0 and 1, and a task is solved at exactly 1.
    ZeroToOne,
    /// Points up to 100; negative ones count as 0.
    Points,
}

/// What the laboratory needs to know to build small models for a benchmark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Laboratory {
    /// Whether the benchmark has an expert that plays from what a prompt shows.
    pub expert: bool,
    /// The split that is demonstrated.
    pub train_split: Cow<'static, str>,
    /// The split that is not.
    pub held_out_split: Cow<'static, str>,
    /// Kinds of task short enough for small models; empty means all.
    pub kinds: Names,
    /// Whether all things have numbered names ("desk 1"), so that a tokenizer can learn the names.
    pub numbered_names: bool,
    /// Whether observations are pages with marked buttons, so that a tokenizer can keep their texts apart.
    pub marked_pages: bool,
    /// Whether further sets of tasks can be generated from a seed.
    pub generated: bool,
}

/// A constant list of constant names.
#[macro_export]
macro_rules! names {
    ($($name:expr),* $(,)?) => {
        ::std::borrow::Cow::Borrowed(&[$(::std::borrow::Cow::Borrowed($name)),*] as &[_])
    };
}
