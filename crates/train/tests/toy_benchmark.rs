//! A benchmark that exists only in this file is registered, played, prompted and evaluated: nothing else in the
//! workspace has to know it.

use std::borrow::Cow;
use std::sync::Arc;

use lens_agent::prompts::{diagnostic_cue, turn_message};
use lens_config::Config;
use lens_engine::scripted::{Scripted, ScriptedEngine, ScriptedPolicy};
use lens_env::registry::Entry;
use lens_env::{
    Actions, Benchmark, BenchmarkOptions, CommandStyle, Decision, EnvError, Environment, Expert,
    Laboratory, Profile, PromptStyle, Registry, ScoreScale, Snapshot, SplitInfo, Status, Task,
    View, Window, demonstrate, names,
};
use lens_opd::buffer::Staleness;
use lens_opd::episode::EpisodeEnd;
use lens_opd::methods::MethodName;
use lens_records::RunFolder;
use lens_records::folder::collect;
use lens_records::metrics::{Record, SpentTokens};
use lens_train::evaluate::{TaskResult, measures};
use lens_train::{Finish, Opening, Progress, Run, RunInputs};

const PROFILE: Profile = Profile {
    name: Cow::Borrowed("counting"),
    summary: Cow::Borrowed("Count up to a number"),
    turn_limit: 6,
    train_split: Cow::Borrowed("small"),
    eval_splits: names!["large"],
    pooled_splits: names![],
    history: 1,
    prompt: PromptStyle {
        template: Cow::Borrowed(
            "{task_description}\nBefore: {action_history}\nNow: {current_observation}\nYou may: {admissible_actions}",
        ),
        commands: CommandStyle::Bare,
        hidden_commands: names!["give up"],
        fold_history: true,
    },
    score: ScoreScale::Points,
    laboratory: Laboratory {
        expert: true,
        train_split: Cow::Borrowed("small"),
        held_out_split: Cow::Borrowed("large"),
        kinds: names![],
        numbered_names: false,
        marked_pages: false,
        generated: false,
    },
};

struct Counting;

impl Benchmark for Counting {
    fn profile(&self) -> &Profile {
        &PROFILE
    }

    fn splits(&self) -> Vec<SplitInfo> {
        ["small", "large"].map(|name| SplitInfo { name: name.to_owned(), tasks: 2 }).into()
    }

    fn tasks(&self, split: &str) -> Result<Vec<Task>, EnvError> {
        let numbers = if split == "small" { [1, 2] } else { [5, 9] };
        Ok(numbers.map(|n| Task { id: n.to_string(), kind: "up".to_owned() }).into())
    }

    fn environment(self: Arc<Self>) -> Result<Box<dyn Environment>, EnvError> {
        Ok(Box::new(Count::default()))
    }

    fn reference_actions(&self, task: &Task) -> Result<Option<Vec<String>>, EnvError> {
        Ok(task.id.parse().ok().map(|n| vec!["more".to_owned(); n]))
    }

    fn expert(&self) -> Option<Box<dyn Expert>> {
        Some(Box::new(Counter))
    }
}

struct Counter;

impl Expert for Counter {
    fn decide(&self, _: &Window) -> Option<Decision> {
        Some(Decision { thought: "One more.".to_owned(), action: "more".to_owned() })
    }
}

#[derive(Clone, Copy, Default)]
struct Count {
    goal: usize,
    count: usize,
    turn: usize,
}

impl Environment for Count {
    fn reset(&mut self, task: &Task) -> Result<View, EnvError> {
        *self = Self { goal: task.id.parse().unwrap_or(0), ..Self::default() };
        self.view()
    }

    fn step(&mut self, action: &str) -> Result<View, EnvError> {
        self.turn += 1;
        self.count += usize::from(action == "more");
        self.view()
    }

    fn view(&self) -> Result<View, EnvError> {
        let ended = self.count == self.goal;
        Ok(View {
            task: format!("Count to {}.", self.goal),
            observation: format!("{}\nso far", self.count),
            actions: Actions::Commands(["more", "give up"].map(str::to_owned).into()),
            turn: self.turn,
            score: 100.0 * self.count as f64 / self.goal as f64,
            status: if ended { Status::Ended { success: true } } else { Status::Running },
        })
    }

    fn snapshot(&mut self) -> Result<Snapshot, EnvError> {
        Ok(Snapshot::new(*self))
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<View, EnvError> {
        *self = *snapshot.get()?;
        self.view()
    }
}

fn counting() -> Arc<dyn Benchmark> {
    let registry =
        Registry::default().with(Entry { profile: &PROFILE, open: |_| Ok(Arc::new(Counting)) });
    assert!(registry.profiles().any(|profile| profile.name == "counting"));
    registry.open("counting", &BenchmarkOptions::default()).expect("it is registered")
}

#[test]
fn it_is_narrowed_to_kinds_like_any_other() {
    let registry =
        Registry::default().with(Entry { profile: &PROFILE, open: |_| Ok(Arc::new(Counting)) });
    let down = BenchmarkOptions { kinds: vec!["down".to_owned()], ..BenchmarkOptions::default() };
    let error = registry.open("counting", &down).err().expect("there is no such kind");
    let hint = error.hint().unwrap_or_default();
    assert!(error.to_string().contains("counting") && hint.contains("up"), "{error}; {hint}");
}

#[test]
fn its_prompt_is_its_own() {
    let benchmark = counting();
    let style = &benchmark.profile().prompt;
    let task = benchmark.tasks("small").expect("a split").remove(1);
    let mut environment = benchmark.clone().environment().expect("an environment");
    let expert = benchmark.expert().expect("an expert");
    let played = demonstrate(&mut *environment, &*expert, &task, 6, 1).expect("it plays");
    let window = &played.steps[1].window;
    assert_eq!(
        turn_message(style, window),
        "Count to 2.\nBefore: [Observation 1: '0 so far', Action 1: 'more']\nNow: 1\nso far\nYou may: more"
    );
    assert!(diagnostic_cue(style, window, "give up").contains("Count to 2."));
}

#[test]
fn it_is_played_and_measured_by_its_own_score() {
    let benchmark = counting();
    let profile = benchmark.profile();
    let mut environment = benchmark.clone().environment().expect("an environment");
    let expert = benchmark.expert().expect("an expert");
    let mut results = Vec::new();
    for task in benchmark.tasks(&profile.eval_splits[0]).expect("a split") {
        let played =
            demonstrate(&mut *environment, &*expert, &task, profile.turn_limit, profile.history)
                .expect("it plays");
        assert!(benchmark.admits(&played.last, "more") && !benchmark.admits(&played.last, "less"));
        results.push(TaskResult {
            task: task.id,
            kind: task.kind,
            success: played.success(),
            score: played.last.score,
            turns: played.last.turn,
            end: EpisodeEnd::Completed,
        });
    }
    let measured = measures(profile.score, profile.turn_limit, &results.iter().collect::<Vec<_>>())
        .expect("measures");
    assert!((measured.success_rate - 50.0).abs() < 1e-9);
    let score = measured.score.expect("points");
    assert!((score - 100.0 * (1.0 + 6.0 / 9.0) / 2.0).abs() < 1e-9, "{score}");
    assert!((measured.rounds - 5.5).abs() < 1e-9);
}

struct Quiet;

impl Progress for Quiet {}

/// A run of plain OPD on the small split whose student counts right away.
fn run(output: &std::path::Path, opening: Opening, change: impl FnOnce(&mut Config)) -> Run {
    let mut config = Config { output: output.to_owned(), ..Config::default() };
    (config.name, config.method) = ("counting".to_owned(), MethodName::Opd);
    config.task.train_split = "small".to_owned();
    config.task.eval_splits = vec!["large".to_owned()];
    config.task.turn_limit = 6;
    (config.rollout.batch_size, config.train.batch_size) = (2, 2);
    (config.train.steps, config.train.eval_interval) = (1000, 1000);
    config.train.staleness = Staleness::Consume;
    change(&mut config);
    let policy = || ScriptedPolicy::saying("<action>more</action>");
    let engine = Box::new(ScriptedEngine::new(Scripted::new(policy(), policy())));
    let inputs = RunInputs { config, seed: 1, benchmark: counting(), engine };
    let mut run = Run::open(inputs, opening, &mut Quiet).expect("it opens");
    let finish = run.run(&std::sync::atomic::AtomicBool::new(false), &mut Quiet).expect("it runs");
    assert_eq!(finish, Finish::Done);
    run
}

/// What the records of a run say it spent.
fn recorded(run: &Run) -> SpentTokens {
    let folder = RunFolder::open(run.path()).expect("a run");
    let mut spent = SpentTokens::default();
    for record in collect(folder.metrics().expect("metrics")).0 {
        match record {
            Record::Batch(batch) => spent += batch.spent.expect("counted"),
            Record::Step(step) => spent.student += step.tokens.expect("counted"),
            Record::Eval(_) => {}
        }
    }
    spent
}

#[test]
fn a_run_ends_when_its_budget_of_tokens_is_spent_and_goes_on_with_a_larger_one() {
    let output = tempfile::tempdir().expect("a temporary folder");
    let first = run(output.path(), Opening::New, |config| config.train.budget_tokens = 4_000);
    let spent = first.spent();
    assert!(spent.total() >= 4_000 && first.step() < 100, "{spent:?} at step {}", first.step());
    assert!(spent.student > 0 && spent.teacher > 0);
    assert_eq!(recorded(&first), spent);
    let step = first.step();
    drop(first);
    let more = run(output.path(), Opening::Resume, |config| config.train.budget_tokens = 9_000);
    assert!(more.step() > step && more.spent().total() >= 9_000);
    assert_eq!(recorded(&more), more.spent());
}

#[test]
fn rows_are_consumed_or_dropped_for_their_age_as_the_configuration_says() {
    // The scripted student stays at version 0, so under the paper's rule every row is too old from step 3 on.
    let output = tempfile::tempdir().expect("a temporary folder");
    let consumed = run(output.path(), Opening::New, |config| config.train.steps = 6);
    assert_eq!(consumed.step(), 6);
    let output = tempfile::tempdir().expect("a temporary folder");
    let paper = run(output.path(), Opening::New, |config| {
        config.train.staleness = Staleness::Paper;
        config.train.budget_tokens = 9_000;
    });
    assert_eq!(paper.step(), 2);
}
