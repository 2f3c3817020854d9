//! Every end of an episode, and every reason for which a turn is not trained on.

use std::time::Duration;

use lens_agent::{Context, Episode, Judged, Plan, RolloutConfig, play, score_batch};
use lens_engine::scripted::{Reply, Score, Scripted, ScriptedPolicy};
use lens_engine::{CallFailure, Deadline, EngineError};
use lens_opd::episode::{Actor, EpisodeEnd, TurnDrop};
use lens_opd::methods::exposure::{Control, Exposure};

use crate::corridor::Fault;
use crate::support::{act, config, fail, past, plan, played, scenes, walker};

/// One episode, played and judged.
struct Scene {
    fault: Fault,
    config: fn(&mut RolloutConfig),
    plan: fn(&mut Plan),
    replies: Vec<Reply>,
    scores: Vec<Score>,
}

impl Default for Scene {
    fn default() -> Self {
        Self {
            fault: Fault::None,
            config: |_| {},
            plan: |_| {},
            replies: Vec::new(),
            scores: Vec::new(),
        }
    }
}

/// What came of a scene.
pub(crate) struct Outcome {
    pub(crate) end: EpisodeEnd,
    pub(crate) drops: Vec<Option<TurnDrop>>,
    success: bool,
}

impl Outcome {
    fn shown(&self) -> (EpisodeEnd, bool, &[Option<TurnDrop>]) {
        (self.end, self.success, &self.drops)
    }
}

impl Scene {
    fn run(self) -> Outcome {
        let mut config = config(self.fault);
        (self.config)(&mut config);
        let mut plan = plan(0, 3);
        (self.plan)(&mut plan);
        let models = Scripted::new(walker(self.replies), walker([])).scoring(self.scores);
        let episodes = played(&config, &models.student, vec![plan]);
        let Judged { batch, targets } =
            score_batch(&config, &models, 1, &episodes, true).expect("the engine works");
        batch.check().expect("a batch the method accepts");
        let [episode] = &batch.episodes[..] else { panic!("one episode was played") };
        let drops: Vec<Option<TurnDrop>> =
            episode.turns.iter().map(lens_opd::episode::ScoredTurn::drop_reason).collect();
        let trainable: Vec<bool> = drops.iter().map(Option::is_none).collect();
        let targeted: Vec<bool> = targets[0].iter().map(Option::is_some).collect();
        assert_eq!(trainable, targeted, "a turn has a target where it can be trained on");
        assert_eq!(
            episode.end == EpisodeEnd::Failed || episode.end == EpisodeEnd::PromptTooLong,
            episodes[0].failure.is_some(),
            "what went wrong is told where something did"
        );
        Outcome { end: episode.end, success: episode.success, drops }
    }
}

const KEPT: Option<TurnDrop> = None;

scenes! {
    a_walk_to_the_end_is_completed_with_success:
        Scene::default()
        => (EpisodeEnd::Completed, true, &[KEPT; 3][..]);
    a_fall_is_completed_without_success:
        Scene { replies: vec![act("right"), act("jump")], ..Scene::default() }
        => (EpisodeEnd::Completed, false, &[KEPT; 2][..]);
    a_response_without_an_action_is_a_turn_like_any_other:
        Scene { replies: vec!["I wonder.".into()], ..Scene::default() }
        => (EpisodeEnd::Completed, true, &[KEPT; 4][..]);
    a_horizon_below_the_limit_is_a_cutoff_of_the_curriculum:
        Scene { plan: |plan| plan.exposure = Exposure::student(2), ..Scene::default() }
        => (EpisodeEnd::CurriculumCutoff, false, &[KEPT; 2][..]);
    the_limit_of_turns_is_told_from_a_cutoff:
        Scene {
            config: |config| config.turn_limit = 2,
            plan: |plan| plan.exposure = Exposure::student(2),
            ..Scene::default()
        }
        => (EpisodeEnd::TurnLimit, false, &[KEPT; 2][..]);
    a_prompt_beyond_the_limit_ends_the_episode_and_is_never_cut:
        Scene { config: |config| config.max_prompt_tokens = 20, ..Scene::default() }
        => (EpisodeEnd::PromptTooLong, false, &[Some(TurnDrop::PromptTooLong)][..]);
    a_call_that_runs_out_of_time_ends_the_episode:
        Scene { replies: vec![act("right"), fail(CallFailure::Timeout)], ..Scene::default() }
        => (EpisodeEnd::Failed, false, &[KEPT, Some(TurnDrop::Timeout)][..]);
    an_engine_that_fails_at_one_call_ends_the_episode:
        Scene { replies: vec![act("right"), fail(CallFailure::Engine)], ..Scene::default() }
        => (EpisodeEnd::Failed, false, &[KEPT, Some(TurnDrop::EngineFailed)][..]);
    a_response_without_tokens_is_not_trained_on:
        Scene {
            config: |config| (config.max_response_tokens, config.turn_limit) = (0, 1),
            ..Scene::default()
        }
        => (EpisodeEnd::TurnLimit, false, &[Some(TurnDrop::EmptyResponse)][..]);
    a_turn_the_teacher_could_not_score_is_dropped_and_its_neighbors_are_not:
        Scene {
            scores: vec![Score::LogProb(-0.1), Score::Fail(CallFailure::Engine)],
            ..Scene::default()
        }
        => (EpisodeEnd::Completed, true, &[KEPT, Some(TurnDrop::TeacherFailed), KEPT][..]);
    an_environment_that_cannot_be_made_fails_the_episode:
        Scene { fault: Fault::Environment, ..Scene::default() }
        => (EpisodeEnd::Failed, false, &[][..]);
    a_task_that_cannot_be_started_fails_the_episode:
        Scene { fault: Fault::Reset, ..Scene::default() }
        => (EpisodeEnd::Failed, false, &[][..]);
    a_state_that_cannot_be_saved_fails_the_episode:
        Scene { fault: Fault::Snapshot, ..Scene::default() }
        => (EpisodeEnd::Failed, false, &[][..]);
    an_action_the_environment_does_not_answer_fails_the_episode_and_its_turn_stays:
        Scene { fault: Fault::Step(1), ..Scene::default() }
        => (EpisodeEnd::Failed, false, &[KEPT; 2][..]);
    a_replayed_action_that_fails_fails_the_episode_before_a_model_is_asked:
        Scene {
            fault: Fault::Step(1),
            plan: |plan| {
                plan.reference = Some(vec!["right".to_owned(); 3]);
                plan.exposure.prefix = 2;
            },
            ..Scene::default()
        }
        => (EpisodeEnd::Failed, false, &[][..]);
    a_deadline_in_the_past_fails_the_episode_before_a_model_is_asked:
        Scene { config: |config| config.deadline = past(), ..Scene::default() }
        => (EpisodeEnd::Failed, false, &[][..]);
}

fn texts(episode: &Episode) -> Vec<&str> {
    episode.turns.iter().map(|turn| turn.text.as_str()).collect()
}

#[test]
fn one_failing_call_of_a_batch_fails_alone() {
    let student = walker([act("right"), fail(CallFailure::Engine), act("right")]);
    let episodes = played(&config(Fault::None), &student, vec![plan(0, 2), plan(1, 2), plan(2, 2)]);
    let ends: Vec<EpisodeEnd> = episodes.iter().map(|episode| episode.end).collect();
    assert_eq!(ends, [EpisodeEnd::Completed, EpisodeEnd::Failed, EpisodeEnd::Completed]);
}

#[test]
fn episodes_come_back_in_the_order_of_their_plans_and_with_their_own_answers() {
    // Every answer names the corridor its prompt is about, and the corridors end at different turns.
    let student = ScriptedPolicy::new([], |prompt| {
        let length = prompt.split_whitespace().nth(2).unwrap_or_default();
        Reply::Text(format!("{length}: <action>right</action>"))
    });
    let lengths = [4, 1, 3, 2];
    let plans = lengths.iter().zip(0..).map(|(&length, key)| plan(key, length)).collect();
    let episodes = played(&config(Fault::None), &student, plans);
    for ((episode, length), key) in episodes.iter().zip(lengths).zip(0..) {
        assert_eq!(episode.plan.key, key);
        assert!(episode.success && episode.turns.len() == length, "{episode:?}");
        let own = format!("{length}: <action>right</action>");
        assert!(texts(episode).iter().all(|text| **text == own), "{episode:?}");
    }
}

#[test]
fn the_watcher_is_told_of_every_turn() {
    let mut told = Vec::new();
    let plans = vec![plan(0, 1), plan(1, 2)];
    let mut watch = |ended, all| told.push((ended, all));
    play(&config(Fault::None), &walker([]), None, plans, false, &mut watch).expect("it plays");
    assert_eq!(told, [(1, 2), (2, 2)]);
}

#[test]
fn states_are_kept_only_where_they_are_asked_for() {
    for keep in [true, false] {
        let plans = vec![plan(0, 2)];
        let episodes =
            play(&config(Fault::None), &walker([]), None, plans, keep, &mut |_, _| {}).expect("ok");
        assert!(episodes[0].turns.iter().all(|turn| turn.snapshot.is_some() == keep));
    }
}

#[test]
fn a_failure_of_the_whole_engine_is_an_error() {
    let student = walker([act("right"), Reply::Break]);
    let plans = vec![plan(0, 3)];
    let played = play(&config(Fault::None), &student, None, plans, true, &mut |_, _| {});
    let error = played.expect_err("the engine is broken");
    assert!(matches!(error, EngineError::Request(_)), "{error}");
}

#[test]
fn a_method_that_lets_an_absent_teacher_act_is_an_error() {
    let teacher_acts = |mut plan: Plan| {
        let (seed, batch, episode) = (7, 1, plan.key);
        plan.exposure.control = Control::Mixed { teacher_share: 1.0, seed, batch, episode };
        plan
    };
    let (config, student) = (config(Fault::None), walker([]));
    let missing =
        play(&config, &student, None, vec![teacher_acts(plan(0, 2))], false, &mut |_, _| {});
    assert!(matches!(missing, Err(EngineError::Request(_))));

    let teacher = ScriptedPolicy::saying("Watch me. <action>right</action>");
    let plans = vec![teacher_acts(plan(0, 2)), plan(1, 2)];
    let episodes = play(&config, &student, Some(&teacher), plans, false, &mut |_, _| {})
        .expect("the teacher is there");
    assert!(episodes[0].turns.iter().all(|turn| turn.actor == Actor::Teacher));
    assert_eq!(texts(&episodes[0]), ["Watch me. <action>right</action>"; 2]);
    assert_eq!(texts(&episodes[1]), ["<action>right</action>"; 2]);
    // Teacher turns are imitated as they are: nobody judges them.
    let models = Scripted::new(student, teacher);
    let judged = score_batch(&config, &models, 1, &episodes, false).expect("the engine works");
    assert_eq!(models.judged().len(), 2);
    assert!(judged.targets[0].iter().all(Option::is_none));
    assert!(judged.targets[1].iter().all(Option::is_some));
}

#[test]
fn replayed_actions_stand_in_the_history_and_are_no_turns() {
    let mut plan = plan(0, 4);
    plan.reference = Some(vec!["right".to_owned(); 4]);
    plan.exposure.prefix = 2;
    let student = walker([]);
    let episodes = played(&config(Fault::None), &student, vec![plan]);
    let [episode] = &episodes[..] else { panic!("one episode") };
    assert_eq!((episode.prefix, episode.turns.len(), episode.past.len()), (2, 2, 4));
    assert_eq!(episode.turns[0].number, 2);
    assert!(episode.success);
    assert_eq!(
        student.prompts()[0],
        "user: Walk 4 steps. Step 3. Before: [Observation 1: 'place 0.', Action 1: 'right']\n\
         [Observation 2: 'place 1.', Action 2: 'right'] Now: place 2. You may: left\nright\njump\n"
    );
}

#[test]
fn a_conversation_keeps_earlier_turns_and_grows_until_it_is_too_long() {
    let student = walker([Reply::from("One. <action>right</action>")]);
    let chat = RolloutConfig { context: Context::Chat, ..config(Fault::None) };
    let episodes = played(&chat, &student, vec![plan(0, 3)]);
    let prompts = student.prompts();
    assert_eq!(prompts.len(), 3);
    let turn = |at: usize| prompts[at].strip_prefix(prompts[at - 1].as_str());
    let rest = turn(1).expect("the second prompt begins with the first");
    assert!(rest.starts_with("assistant: One. <action>right</action>\nuser: Walk 3"), "{rest}");
    assert!(turn(2).is_some_and(|rest| rest.starts_with("assistant: <action>right</action>\n")));
    let kept: Vec<usize> = episodes[0].conversations.iter().map(Vec::len).collect();
    assert_eq!(kept, [0, 2, 4], "the conversation that led to each turn");

    let short = RolloutConfig { max_prompt_tokens: prompts[1].chars().count(), ..chat };
    let episodes =
        played(&short, &walker([Reply::from("One. <action>right</action>")]), vec![plan(0, 3)]);
    assert_eq!(episodes[0].end, EpisodeEnd::PromptTooLong);
    assert_eq!(episodes[0].turns.len(), 3);
    assert_eq!(episodes[0].turns[2].dropped, Some(TurnDrop::PromptTooLong));
}

#[test]
fn a_window_forgets_what_it_has_no_place_for() {
    let student = walker([]);
    let one = RolloutConfig { history: 1, ..config(Fault::None) };
    played(&one, &student, vec![plan(0, 3)]);
    let last = &student.prompts()[2];
    assert!(last.contains("'place 1.'") && !last.contains("'place 0.'"), "{last}");
}

#[test]
fn a_deadline_that_passes_during_a_turn_ends_the_episode_at_the_next() {
    let deadline = Deadline::after(Duration::from_millis(300));
    let student = ScriptedPolicy::new([act("right")], move |_| {
        while !deadline.has_passed() {
            std::thread::sleep(Duration::from_millis(5));
        }
        act("right")
    });
    let late = RolloutConfig { deadline, ..config(Fault::None) };
    let episodes = played(&late, &student, vec![plan(0, 9)]);
    assert_eq!(episodes[0].end, EpisodeEnd::Failed);
    assert_eq!(episodes[0].failure.as_deref(), Some("the deadline passed"));
    assert_eq!(episodes[0].turns.len(), 2, "what was played before is kept");
}

#[test]
fn the_time_of_a_batch_runs_from_its_start() {
    let slow = RolloutConfig { timeout: Some(Duration::ZERO), ..config(Fault::None) };
    assert!(!slow.deadline.has_passed() && slow.starting_now().deadline.has_passed());
    assert!(!config(Fault::None).starting_now().deadline.has_passed());
}
