//! Every reason to drop a fork, every end of a branch, and every reason for which the gate stays closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lens_agent::{ForkConfig, ForkRun, RolloutConfig, run_forks};
use lens_engine::scripted::{Reply, Score, Scripted, ScriptedPolicy};
use lens_engine::{Call, CallFailure, Deadline, Observed, Observer, Sampling};
use lens_opd::validate::Validate;
use lens_opd::validate::fork::{
    BranchEnd, Coupling, ForkDrop, ForkKind, ForkRequest, ForkResult, HintPrompt,
};
use lens_opd::validate::gate::{Completeness, Reason, judge};

use crate::corridor::Fault;
use crate::support::{act, config, fail, past, plan, played, scenes, walker};

pub(crate) const HINT: ForkKind =
    ForkKind::Hint { prompt: HintPrompt::FeedbackIncorporation, tokens: 80 };

/// How forks are sampled here.
pub(crate) const FORKS: ForkConfig = ForkConfig {
    seed: 7,
    batch: 1,
    sampling: Sampling { temperature: 1.0, ..Sampling::GREEDY },
    snapshot_targets: true,
};

/// A fork of that kind at a turn, with two continuation turns.
pub(crate) fn request(episode: u64, turn: usize, kind: ForkKind) -> ForkRequest {
    ForkRequest {
        episode,
        turn,
        kind,
        continuation_turns: 2,
        temperature: 1.0,
        divergence: 0.5,
        pairs: 1,
        coupling: Coupling::Independent,
        play_on: false,
        favorites: false,
    }
}

/// One fork at turn 1 of a walk, with two continuation turns.
struct Scene {
    /// Where the environment fails while the fork is run; the walk before it is sound.
    fault: Fault,
    kind: ForkKind,
    turn: usize,
    length: usize,
    /// What the student does at every turn of the walk.
    walk: &'static str,
    config: fn(&mut RolloutConfig),
    /// Student replies: the fork turn of base and guided branch (of a bridge none), then by turns base and guided.
    student: Vec<Reply>,
    teacher: Vec<Reply>,
    /// Scores: the base branch's continuation, then the guided one's. A bridge's fork turns are scored too.
    scores: Vec<Score>,
    failing_targets: Vec<CallFailure>,
    completeness: Completeness,
}

impl Default for Scene {
    fn default() -> Self {
        Self {
            fault: Fault::None,
            kind: HINT,
            turn: 1,
            length: 9,
            walk: "right",
            config: |_| {},
            student: Vec::new(),
            teacher: vec!["Go on.".into()],
            scores: Vec::new(),
            failing_targets: Vec::new(),
            completeness: Completeness::Natural,
        }
    }
}

impl Scene {
    /// A bridge: the teacher walks.
    fn bridge() -> Self {
        Self { kind: ForkKind::Bridge, teacher: vec![act("right")], ..Self::default() }
    }

    fn run(self) -> Outcome {
        let student = walker((0..12).map(|_| act(self.walk)));
        let episodes = played(&config(Fault::None), &student, vec![plan(0, self.length)]);
        let mut config = config(self.fault);
        (self.config)(&mut config);
        let models = Scripted::new(walker(self.student), walker(self.teacher))
            .scoring(self.scores)
            .failing_targets(self.failing_targets);
        let validate = Validate {
            continuation_turns: 2,
            completeness: self.completeness,
            ..Validate::default()
        };
        let requests = [request(0, self.turn, self.kind)];
        let mut runs = run_forks(&config, &FORKS, &models, &episodes, &requests).expect("it runs");
        let run = runs.pop().expect("one fork was asked for");
        assert!(runs.is_empty());
        let verdict = judge(&run.finished, &validate).expect("values the method accepts");
        Outcome { reason: verdict.reason, run }
    }
}

/// What came of a scene.
pub(crate) struct Outcome {
    pub(crate) reason: Option<Reason>,
    pub(crate) run: ForkRun,
}

impl Outcome {
    /// Why the fork was dropped, if it was.
    pub(crate) fn dropped(&self) -> Option<ForkDrop> {
        match &self.run.finished.result {
            ForkResult::Dropped(reason) => Some(*reason),
            ForkResult::Pair(_) => None,
        }
    }

    /// How the two branches ended, if they were started.
    pub(crate) fn ends(&self) -> Option<[BranchEnd; 2]> {
        match &self.run.finished.result {
            ForkResult::Dropped(_) => None,
            ForkResult::Pair(pair) => Some([pair.base.end, pair.guided.end]),
        }
    }

    fn shown(&self) -> (String, Option<[BranchEnd; 2]>) {
        let word = self.reason.map_or("accepted".to_owned(), |reason| reason.to_string());
        (word, self.ends())
    }
}

fn dropped(reason: &str) -> (String, Option<[BranchEnd; 2]>) {
    (format!("dropped.{reason}"), None)
}

fn ended(word: &str, base: BranchEnd, guided: BranchEnd) -> (String, Option<[BranchEnd; 2]>) {
    (word.to_owned(), Some([base, guided]))
}

use BranchEnd::{EngineFailure, Horizon, PromptTooLong, Timeout, TurnLimit};
const SOLVED: BranchEnd = BranchEnd::Ended { success: true };
const FELL: BranchEnd = BranchEnd::Ended { success: false };

scenes! {
    guidance_that_leads_to_a_likelier_future_is_accepted:
        Scene { scores: vec![Score::LogProb(-0.9), Score::LogProb(-0.9)], ..Scene::default() }
        => ended("accepted", Horizon, Horizon);
    a_tie_stays_closed:
        Scene::default()
        => ended("not_better", Horizon, Horizon);
    guidance_that_leads_to_a_less_likely_future_stays_closed:
        Scene { scores: vec![Score::LogProb(-0.1), Score::LogProb(-0.1)], ..Scene::default() }
        => ended("not_better", Horizon, Horizon);
    a_bridge_to_a_likelier_future_is_accepted:
        Scene { scores: vec![Score::LogProb(-0.9); 3], ..Scene::bridge() }
        => ended("accepted", Horizon, Horizon);

    a_state_that_comes_back_different_drops_the_fork:
        Scene { fault: Fault::Elsewhere, ..Scene::default() } => dropped("restore_mismatch");
    a_state_that_cannot_be_put_back_drops_the_fork:
        Scene { fault: Fault::Restore, ..Scene::default() } => dropped("restore_failed");
    an_environment_that_answers_differently_when_replayed_drops_the_fork:
        Scene { fault: Fault::Fickle, ..Scene::default() } => dropped("not_repeatable");
    an_environment_that_cannot_be_made_again_drops_the_fork:
        Scene { fault: Fault::Environment, ..Scene::default() } => dropped("restore_failed");
    a_turn_that_was_not_played_cannot_be_forked:
        Scene { turn: 11, ..Scene::default() } => dropped("restore_failed");
    a_hint_of_blanks_drops_the_fork:
        Scene { teacher: vec![" \n\t ".into()], ..Scene::default() } => dropped("hint_empty");
    a_teacher_that_fails_to_hint_drops_the_fork:
        Scene { teacher: vec![fail(CallFailure::Engine)], ..Scene::default() }
        => dropped("hint_failed");
    a_teacher_that_fails_to_bridge_drops_the_fork:
        Scene { teacher: vec![fail(CallFailure::Engine)], ..Scene::bridge() }
        => dropped("hint_failed");
    a_hint_whose_prompt_is_too_long_drops_the_fork_for_that_reason:
        Scene { config: |config| config.max_prompt_tokens = 20, ..Scene::default() }
        => dropped("prompt_too_long");
    a_hinted_prompt_that_is_too_long_drops_the_fork_for_that_reason:
        Scene {
            student: vec![act("right"), fail(CallFailure::PromptTooLong)],
            ..Scene::default()
        }
        => dropped("prompt_too_long");
    a_deadline_in_the_past_drops_the_fork_for_that_reason:
        Scene { config: |config| config.deadline = past(), ..Scene::default() }
        => dropped("timeout");
    a_deadline_in_the_past_drops_a_bridge_for_that_reason:
        Scene { config: |config| config.deadline = past(), ..Scene::bridge() }
        => dropped("timeout");
    a_fork_turn_that_runs_out_of_time_drops_the_fork_for_that_reason:
        Scene { student: vec![fail(CallFailure::Timeout)], ..Scene::default() }
        => dropped("timeout");
    an_engine_that_fails_at_the_fork_turn_drops_the_fork:
        Scene { student: vec![act("right"), fail(CallFailure::Engine)], ..Scene::default() }
        => dropped("engine_failure");
    a_hinted_response_without_a_target_drops_the_fork:
        Scene { failing_targets: vec![CallFailure::Engine], ..Scene::default() }
        => dropped("target_failed");
    a_bridge_the_environment_does_not_offer_is_none:
        Scene { teacher: vec![act("fly")], ..Scene::bridge() } => dropped("inadmissible_action");
    an_original_action_the_environment_does_not_offer_cannot_be_bridged:
        Scene { walk: "fly", ..Scene::bridge() } => dropped("inadmissible_action");
    a_bridge_without_an_action_is_none:
        Scene { teacher: vec!["I wonder.".into()], ..Scene::bridge() }
        => dropped("unparsed_action");

    a_branch_that_solves_the_task_later_is_valued_on_what_it_has:
        Scene {
            length: 3,
            student: vec![act("left"), act("right")],
            scores: vec![Score::LogProb(-0.9), Score::LogProb(-0.9)],
            ..Scene::default()
        }
        => ended("accepted", Horizon, SOLVED);
    a_branch_that_loses_the_task_later_is_valued_on_what_it_has:
        Scene {
            student: vec![act("right"), act("right"), act("jump")],
            scores: vec![Score::LogProb(-0.1)],
            ..Scene::default()
        }
        => ended("not_better", FELL, Horizon);
    the_limit_of_turns_ends_both_branches:
        Scene { config: |config| config.turn_limit = 3, ..Scene::default() }
        => ended("not_better", TurnLimit, TurnLimit);

    time_that_runs_out_in_the_base_branch_spoils_the_pair:
        Scene {
            student: vec![act("right"), act("right"), fail(CallFailure::Timeout)],
            ..Scene::default()
        }
        => ended("base.timeout", Timeout, Horizon);
    an_engine_that_fails_in_the_guided_branch_spoils_the_pair:
        Scene {
            student: vec![act("right"), act("right"), act("right"), fail(CallFailure::Engine)],
            ..Scene::default()
        }
        => ended("guided.engine_failure", Horizon, EngineFailure);
    an_environment_that_fails_in_the_continuation_spoils_the_pair:
        Scene { fault: Fault::Step(2), ..Scene::default() }
        => ended("base.engine_failure", EngineFailure, EngineFailure);
    an_environment_that_fails_at_the_fork_turn_spoils_the_pair:
        Scene { fault: Fault::Step(1), ..Scene::default() }
        => ended("base.engine_failure", EngineFailure, EngineFailure);
    a_prompt_that_grows_too_long_in_the_guided_branch_spoils_the_pair:
        Scene {
            student: vec![
                act("right"), act("right"), act("right"), fail(CallFailure::PromptTooLong),
            ],
            ..Scene::default()
        }
        => ended("guided.prompt_too_long", Horizon, PromptTooLong);
    a_fork_turn_that_solves_the_task_leaves_nothing_to_value:
        Scene { length: 2, student: vec![act("left"), act("right"), act("left")], ..Scene::default() }
        => ended("guided.no_continuation", Horizon, SOLVED);
    a_guided_response_without_tokens_is_no_response:
        Scene { config: |config| config.max_response_tokens = 0, ..Scene::default() }
        => ended("guided.no_response", Horizon, Horizon);
    a_continuation_without_content_has_no_value:
        Scene {
            student: ["<action>right</action>", "<action>right</action>", "", "", "", ""]
                .map(Reply::from)
                .into(),
            ..Scene::default()
        }
        => ended("base.no_content", Horizon, Horizon);
    a_continuation_turn_the_teacher_could_not_score_spoils_the_pair:
        Scene {
            scores: vec![Score::LogProb(-0.9); 3]
                .into_iter()
                .chain([Score::Fail(CallFailure::Timeout)])
                .collect(),
            ..Scene::default()
        }
        => ended("guided.unscored", Horizon, Horizon);
    a_continuation_that_ends_early_spoils_a_pair_that_must_be_full:
        Scene { length: 3, completeness: Completeness::Full, ..Scene::bridge() }
        => ended("base.ended_early", SOLVED, SOLVED);
    a_continuation_without_an_action_spoils_a_pair_that_must_be_full:
        Scene {
            student: vec![act("right"), "I wonder.".into()],
            completeness: Completeness::Full,
            ..Scene::bridge()
        }
        => ended("guided.unparsed_action", Horizon, Horizon);
    a_continuation_with_an_action_that_is_not_offered_spoils_a_pair_that_must_be_full:
        Scene {
            student: vec![act("fly")],
            completeness: Completeness::Full,
            ..Scene::bridge()
        }
        => ended("base.inadmissible_action", Horizon, Horizon);
    a_continuation_with_an_action_that_is_not_offered_spoils_no_other_pair:
        Scene { student: vec![act("right"), act("right"), act("fly")], ..Scene::default() }
        => ended("not_better", Horizon, Horizon);
}

/// Counts what the student is asked for.
#[derive(Default)]
struct Asked(AtomicUsize);

impl Observer for Asked {
    fn answered(&self, call: &Call<'_>, _: Duration) {
        if let Call::Student(calls, _) = call {
            self.0.fetch_add(calls.len(), Ordering::Relaxed);
        }
    }
}

#[test]
fn a_deadline_that_passes_during_the_continuation_ends_both_branches() {
    let deadline = Deadline::after(Duration::from_millis(300));
    let episodes = played(&config(Fault::None), &walker([]), vec![plan(0, 9)]);
    let student = ScriptedPolicy::new([act("right"), act("right"), act("right")], move |_| {
        while !deadline.has_passed() {
            std::thread::sleep(Duration::from_millis(5));
        }
        act("right")
    });
    let asked = Arc::new(Asked::default());
    let models = Arc::new(Scripted::new(student, walker(["Go on.".into()])));
    let models = Observed::new(models, asked.clone());
    let late = RolloutConfig { deadline, ..config(Fault::None) };
    let off = ForkConfig { snapshot_targets: false, ..FORKS };
    let runs = run_forks(&late, &off, &models, &episodes, &[request(0, 1, HINT)]).expect("it runs");
    let ForkResult::Pair(pair) = &runs[0].finished.result else {
        panic!("both branches have a fork turn")
    };
    assert_eq!([pair.base.end, pair.guided.end], [Timeout, Timeout]);
    assert_eq!(asked.0.load(Ordering::Relaxed), 4, "nobody is asked after the deadline");
    let verdict = judge(&runs[0].finished, &Validate::default()).expect("it judges");
    assert_eq!(verdict.reason.map(|reason| reason.to_string()).as_deref(), Some("base.timeout"));
}

#[test]
fn a_failure_of_the_whole_engine_is_an_error_wherever_it_happens() {
    let episodes = played(&config(Fault::None), &walker([]), vec![plan(0, 9)]);
    let hint = || Reply::from("Go on.");
    for (student, teacher) in [
        (vec![], vec![Reply::Break]),
        (vec![Reply::Break], vec![hint()]),
        (vec![act("right"), act("right"), Reply::Break], vec![hint()]),
    ] {
        let models = Scripted::new(walker(student), walker(teacher));
        let requests = [request(0, 1, HINT)];
        let run = run_forks(&config(Fault::None), &FORKS, &models, &episodes, &requests);
        assert!(run.is_err());
    }
}
