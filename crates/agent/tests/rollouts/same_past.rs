//! Both branches of a fork see the same past; the hint is seen at the fork turn and nowhere else.

use lens_agent::prompts::hinted_message;
use lens_agent::{Context, Episode, ForkRun, RolloutConfig, run_forks};
use lens_engine::CallFailure;
use lens_engine::scripted::{CharCodec, Reply, Score, Scripted, ScriptedPolicy};
use lens_engine::{Codec, EngineError};
use lens_opd::episode::Actor;
use lens_opd::validate::fork::{ForkKind, ForkRequest, ForkResult, HintPrompt, Pair};

use crate::corridor::Fault;
use crate::forks::{FORKS, HINT, request};
use crate::support::{act, config, fail, plan, played, walker};

/// A hint whose words occur nowhere else.
const WORDS: &str = "Beware of\nthe dragon.";
/// The hint as the student sees it.
const SEEN: &str = "Beware of the dragon.";

fn text(tokens: &[u32]) -> String {
    CharCodec.text(tokens).expect("characters")
}

fn pair(run: &ForkRun) -> &Pair {
    match &run.finished.result {
        ForkResult::Pair(pair) => pair,
        ForkResult::Dropped(reason) => panic!("dropped: {reason:?}"),
    }
}

/// A walk of five turns in that context, forked at turn 2 by models that answer as told.
fn forked(
    context: Context,
    kind: ForkKind,
    student: ScriptedPolicy,
) -> (Vec<Episode>, ForkRun, Scripted) {
    let config = RolloutConfig { context, ..config(Fault::None) };
    let episodes = played(&config, &walker([act("left")]), vec![plan(0, 5)]);
    let answer = if kind == ForkKind::Bridge { "<action>jump</action>" } else { WORDS };
    let models = Scripted::new(student, ScriptedPolicy::saying(answer));
    let mut runs =
        run_forks(&config, &FORKS, &models, &episodes, &[request(0, 2, kind)]).expect("it runs");
    let run = runs.pop().expect("one fork");
    (episodes, run, models)
}

#[test]
fn the_fork_turns_of_both_branches_differ_by_the_hint_alone() {
    for context in [Context::Window, Context::Chat] {
        for style in [HintPrompt::FeedbackIncorporation, HintPrompt::Reconsideration] {
            let kind = ForkKind::Hint { prompt: style, tokens: 80 };
            let (episodes, run, models) = forked(context, kind, walker([]));
            let turn = &episodes[0].turns[2];
            let prompts = models.student.prompts();
            let (base, guided) = (&prompts[0], &prompts[1]);
            assert_eq!(*base, text(&turn.prompt), "the base branch sees what was seen before");
            let plain = base.strip_suffix('\n').expect("the message is the last one");
            let added = hinted_message("", "right", SEEN, style);
            assert_eq!(*guided, format!("{plain}{added}\n"));
            assert_eq!(*guided, text(&run.hinted_prompt));
            assert_eq!(run.hint.as_deref(), Some(SEEN));
        }
    }
}

#[test]
fn the_hint_is_shown_at_the_fork_turn_alone() {
    for context in [Context::Window, Context::Chat] {
        let (_, run, models) = forked(context, HINT, walker([]));
        let hinted: Vec<bool> =
            models.student.prompts().iter().map(|prompt| prompt.contains("dragon")).collect();
        assert_eq!(hinted, [false, true, false, false, false, false]);
        let judged = models.judged();
        assert_eq!(judged.len(), 4, "two continuation turns of two branches");
        for call in &judged {
            assert!(!text(&call.prompt).contains("dragon"), "the teacher judges without the hint");
        }
        for turn in run.base.turns.iter().chain(&run.guided.turns) {
            assert!(!text(&turn.prompt).contains("dragon"), "nor does the log keep it in prompts");
        }
    }
}

#[test]
fn branches_that_act_alike_are_asked_alike() {
    for context in [Context::Window, Context::Chat] {
        let (episodes, run, models) = forked(context, HINT, walker([]));
        let prompts = models.student.prompts();
        for turn in [2, 4] {
            assert_eq!(prompts[turn], prompts[turn + 1]);
            // The student of the walk did the same, so its later prompts are these.
            assert_eq!(prompts[turn], text(&episodes[0].turns[2 + turn / 2].prompt));
        }
        let pair = pair(&run);
        let numbers: Vec<usize> = pair.base.continuation.iter().map(|turn| turn.turn).collect();
        assert_eq!((pair.base.response.turn, numbers), (2, vec![3, 4]));
        assert_eq!(pair.base.continuation.len(), pair.guided.continuation.len());
    }
}

#[test]
fn each_branch_lives_in_its_own_world() {
    // The base branch goes back at the fork turn, the guided one goes on.
    let (_, run, models) = forked(Context::Window, HINT, walker([act("left"), act("right")]));
    let seen: Vec<&str> = run.base.turns.iter().map(|turn| turn.observation.as_str()).collect();
    assert_eq!(seen, ["place 1.", "place 0.", "place 1."]);
    let seen: Vec<&str> = run.guided.turns.iter().map(|turn| turn.observation.as_str()).collect();
    assert_eq!(seen, ["place 1.", "place 2.", "place 3."]);
    let prompts = models.student.prompts();
    assert!(prompts[2].contains("'place 1.', Action 3: 'left'] Now: place 0."), "{}", prompts[2]);
    assert!(prompts[3].contains("'place 1.', Action 3: 'right'] Now: place 2."), "{}", prompts[3]);
}

#[test]
fn the_teacher_is_asked_about_the_proposed_action_and_nothing_that_came_after() {
    let (_, _, models) = forked(Context::Window, HINT, walker([]));
    let [cue] = &models.teacher.prompts()[..] else { panic!("one hint was asked for") };
    assert!(cue.contains("place 1.") && cue.contains("right"), "{cue}");
    assert!(!cue.contains("place 2."), "{cue}");
}

#[test]
fn a_hint_is_asked_for_within_its_limit() {
    let kind = ForkKind::Hint { prompt: HintPrompt::default(), tokens: 6 };
    let (_, run, _) = forked(Context::Window, kind, walker([]));
    assert_eq!(run.hint.as_deref(), Some("Beware"));
}

#[test]
fn a_bridge_replays_the_original_and_plays_the_teachers_own_turn() {
    let (episodes, run, models) = forked(Context::Window, ForkKind::Bridge, walker([]));
    let turn = &episodes[0].turns[2];
    let pair = pair(&run);
    let ids = |tokens: &[lens_opd::episode::ScoredToken]| -> Vec<u32> {
        tokens.iter().map(|token| token.id).collect()
    };
    assert_eq!(ids(&pair.base.response.tokens), turn.response, "the original, token by token");
    assert_eq!(
        (pair.base.response.actor, pair.guided.response.actor),
        (Actor::Student, Actor::Teacher)
    );
    assert_eq!(text(&run.guided_response), "<action>jump</action>");
    assert_eq!(models.teacher.prompts(), [text(&turn.prompt)], "the teacher sees the same past");
    // Of the fork turn the teacher's own is compared by both models and may be trained on; the original may not.
    let judged = models.judged();
    let asked: Vec<(bool, bool, bool)> =
        judged.iter().map(|call| (call.compare, call.trainable, call.drawn.is_some())).collect();
    assert_eq!(
        asked,
        [(true, false, true), (false, false, true), (false, false, true), (true, true, false),]
    );
    assert!(run.target.is_some() && run.hint.is_none() && run.hinted_prompt.is_empty());
}

#[test]
fn a_hinted_response_gets_a_target_where_targets_are_asked_for() {
    let (episodes, run, models) = forked(Context::Window, HINT, walker([]));
    assert!(run.target.is_some());
    assert_eq!(pair(&run).internalization_gap, Some(0.25));
    let off = lens_agent::ForkConfig { snapshot_targets: false, ..FORKS };
    let runs = run_forks(&config(Fault::None), &off, &models, &episodes, &[request(0, 2, HINT)])
        .expect("it runs");
    assert!(runs[0].target.is_none());
    assert_eq!(pair(&runs[0]).internalization_gap, None);
}

/// A student that says which corridor it is in.
fn echo() -> ScriptedPolicy {
    ScriptedPolicy::new([], |prompt| {
        let length = prompt.split_whitespace().nth(2).unwrap_or_default();
        Reply::Text(format!("{length}: <action>right</action>"))
    })
}

fn mixed(models: &Scripted) -> Result<Vec<ForkRun>, EngineError> {
    let config = config(Fault::None);
    let plans = [9, 8, 7].iter().zip(0..).map(|(&length, key)| plan(key, length)).collect();
    let episodes = played(&config, &echo(), plans);
    let requests: [ForkRequest; 5] = [
        request(2, 1, HINT),
        request(5, 1, HINT),
        request(0, 3, ForkKind::Bridge),
        ForkRequest { continuation_turns: 1, ..request(1, 2, HINT) },
        request(0, 0, HINT),
    ];
    run_forks(&config, &FORKS, models, &episodes, &requests)
}

#[test]
fn forks_come_back_in_the_order_they_were_asked_for_and_with_their_own_answers() {
    let teacher = ScriptedPolicy::saying("Go on. <action>right</action>");
    let models = Scripted::new(echo(), teacher);
    let runs = mixed(&models).expect("it runs");
    let places: Vec<(u64, usize)> =
        runs.iter().map(|run| (run.finished.episode, run.finished.turn)).collect();
    assert_eq!(places, [(2, 1), (5, 1), (0, 3), (1, 2), (0, 0)]);
    for (run, (length, turns)) in runs.iter().zip([(7, 3), (0, 0), (9, 3), (8, 2), (9, 3)]) {
        let own = format!("{length}: <action>right</action>");
        for branch in [&run.base, &run.guided] {
            assert_eq!(branch.turns.len(), turns, "the fork turn and its own continuation");
            let spoken = branch.turns.iter().map(|turn| turn.text.as_str());
            assert!(
                spoken
                    .filter(|text| *text != "Go on. <action>right</action>")
                    .all(|text| *text == own)
            );
        }
    }
}

#[test]
fn one_failing_fork_of_a_batch_fails_alone() {
    // The second of the four teacher calls, which is the bridge's, fails; so does one target and one score.
    let answers = ["Go on.".into(), fail(CallFailure::Engine), "Go on.".into(), "Go on.".into()];
    let models = Scripted::new(echo(), walker(answers))
        .failing_targets([CallFailure::Engine])
        .scoring([Score::Fail(CallFailure::Engine)]);
    let runs = mixed(&models).expect("it runs");
    let dropped: Vec<bool> =
        runs.iter().map(|run| matches!(run.finished.result, ForkResult::Dropped(_))).collect();
    assert_eq!(dropped, [true, true, true, false, false]);
    for run in &runs[3..] {
        let pair = pair(run);
        let turns = pair.base.continuation.iter().chain(&pair.guided.continuation);
        assert!(turns.clone().all(|turn| turn.dropped.is_none()));
        assert!(turns.flat_map(|turn| &turn.tokens).all(|token| token.teacher_logprob.is_some()));
    }
}

#[test]
fn scores_reach_the_turns_they_were_given_for() {
    let scores = [-0.1, -0.2, -0.3, -0.4].map(Score::LogProb);
    let episodes = played(&config(Fault::None), &walker([]), vec![plan(0, 9)]);
    let models = Scripted::new(walker([]), ScriptedPolicy::saying(WORDS)).scoring(scores);
    let runs = run_forks(&config(Fault::None), &FORKS, &models, &episodes, &[request(0, 1, HINT)])
        .expect("it runs");
    let pair = pair(&runs[0]);
    let given = |turns: &[lens_opd::episode::ScoredTurn]| -> Vec<Option<f32>> {
        turns.iter().map(|turn| turn.tokens[0].teacher_logprob).collect()
    };
    assert_eq!(given(&pair.base.continuation), [Some(-0.1), Some(-0.2)]);
    assert_eq!(given(&pair.guided.continuation), [Some(-0.3), Some(-0.4)]);
    assert_eq!(pair.base.response.tokens[0].teacher_logprob, None, "the fork turn is not judged");
}
