//! The expert solves what can be solved, with nothing but the prompt's window.

use std::sync::Arc;

use lens_env::alfworld::{Alfworld, AlfworldExpert, Options};
use lens_env::{
    Actions, Benchmark, Environment, Expert, Lapse, PastStep, Situation, Status, View, Window,
    demonstrate,
};
use lens_opd::random::{Purpose, StreamKey};

fn built_in(split: &str) -> Arc<Alfworld> {
    let options = Options { splits: vec![split.into()], ..Options::default() };
    Arc::new(Alfworld::built_in(&options).expect("the built-in games need no file"))
}

#[test]
fn it_solves_every_game_and_most_within_thirty_turns() {
    for split in ["valid_seen", "valid_unseen"] {
        let alfworld = built_in(split);
        let mut environment = Arc::clone(&alfworld).environment().expect("an environment");
        let tasks = alfworld.tasks(split).expect("the split exists");
        let mut in_time = 0;
        for task in &tasks {
            let played =
                demonstrate(&mut *environment, &AlfworldExpert, task, 400, 2).expect("it plays");
            assert!(
                played.success(),
                "{}: {:?}",
                task.id,
                played.steps.last().map(|step| &step.decision)
            );
            in_time += usize::from(played.last.turn <= alfworld.profile().turn_limit);
        }
        assert!(in_time * 100 >= tasks.len() * 95, "{split}: {in_time} of {} in time", tasks.len());
    }
}

#[test]
fn it_only_types_admissible_commands_and_says_what_it_needs_holds_and_where_it_is() {
    let alfworld = built_in("valid_seen");
    let mut environment = Arc::clone(&alfworld).environment().expect("an environment");
    for task in alfworld.tasks("valid_seen").expect("the split exists") {
        let played =
            demonstrate(&mut *environment, &AlfworldExpert, &task, 400, 2).expect("it plays");
        for step in played.steps {
            let Actions::Commands(commands) = &step.window.actions else {
                panic!("whole commands")
            };
            assert!(
                commands.contains(&step.decision.action),
                "{}: {}",
                task.id,
                step.decision.action
            );
            let thought = &step.decision.thought;
            let words = thought.split_whitespace().count();
            assert!((15..=45).contains(&words), "{words} words: {thought}");
            let arrived =
                step.window.history.last().and_then(|last| last.action.strip_prefix("go to "));
            let place =
                arrived.map_or("; I am ".to_owned(), |place| format!("; I am at {place}; "));
            assert!(thought.starts_with("I need ") && thought.contains(&place), "{thought}");
            assert_eq!(
                AlfworldExpert.decide(&step.window).as_ref(),
                Some(&step.decision),
                "a function of the window"
            );
        }
    }
}

/// It must also be of use to a learner who has made a mess: from wherever random play leads, it finds the way.
#[test]
fn it_solves_games_that_someone_else_began() {
    let alfworld = built_in("valid_unseen");
    let mut environment = Arc::clone(&alfworld).environment().expect("an environment");
    for (number, task) in
        alfworld.tasks("valid_unseen").expect("the split exists").iter().enumerate()
    {
        let mut stream = StreamKey::new(1, 0, number as u64, Purpose::Rollout, 0).open();
        let mut view = environment.reset(task).expect("the game starts");
        let mut past: Vec<PastStep> = Vec::new();
        let mut act = |view: View,
                       action: String,
                       environment: &mut dyn Environment|
         -> (View, Vec<PastStep>) {
            let next = environment.step(&action).expect("a step");
            past.push(PastStep { step: view.turn, observation: view.observation, action });
            (next, past.clone())
        };
        let mut history = Vec::new();
        for _ in 0..20 {
            let Actions::Commands(commands) = &view.actions else { panic!("whole commands") };
            let action = commands
                [stream.below(commands.len() as u64).expect("never empty") as usize]
                .clone();
            (view, history) = act(view, action, &mut *environment);
        }
        while view.status == Status::Running {
            assert!(view.turn < 400, "{}: stuck at {:?}", task.id, history.last());
            let decision = AlfworldExpert.decide(&Window::new(&view, &history, 2));
            let action = decision.unwrap_or_else(|| panic!("{}: at a loss", task.id)).action;
            (view, history) = act(view, action, &mut *environment);
        }
        assert_eq!(view.status, Status::Ended { success: true }, "{}", task.id);
    }
}

#[test]
fn it_is_at_a_loss_with_a_sentence_it_cannot_read() {
    let window = Window {
        task: "Bring me the thing from over there.".into(),
        history: Vec::new(),
        steps_taken: 0,
        observation: String::new(),
        actions: Actions::Commands(vec!["look".into()]),
    };
    assert_eq!(AlfworldExpert.decide(&window), None);
}

fn at_shelf(history: &[(&str, &str)], observation: &str, commands: &[&str]) -> Window {
    Window {
        task: "put a clean cup in cabinet.".into(),
        history: history
            .iter()
            .enumerate()
            .map(|(step, (seen, done))| PastStep {
                step,
                observation: (*seen).into(),
                action: (*done).into(),
            })
            .collect(),
        steps_taken: history.len(),
        observation: observation.into(),
        actions: Actions::Commands(commands.iter().map(|&text| text.into()).collect()),
    }
}

const EVERYWHERE: [&str; 5] =
    ["examine shelf 1", "go to cabinet 1", "go to desk 1", "go to sinkbasin 1", "look"];

#[test]
fn it_goes_back_to_what_was_left_behind() {
    let seen = "You arrive at desk 1. On the desk 1, you see a cup 2, and a pen 1.";
    let nothing = "You arrive at shelf 1. On the shelf 1, you see nothing.";
    let window = at_shelf(&[(seen, "go to shelf 1")], nothing, &EVERYWHERE);
    assert_eq!(AlfworldExpert.decide(&window).expect("it knows").action, "go to desk 1");
    assert_eq!(AlfworldExpert.situation(&window), Some(Situation::Lost));
    let careless = AlfworldExpert.lapse(&window, Lapse::Overlook).expect("it searches on");
    assert_ne!(careless.action, "go to desk 1");
    assert!(careless.thought.contains("cup is not here"), "{}", careless.thought);
    let closed = "You arrive at cabinet 1. The cabinet 1 is closed.";
    let window = at_shelf(&[(closed, "go to shelf 1")], nothing, &EVERYWHERE);
    assert_eq!(AlfworldExpert.decide(&window).expect("it knows").action, "go to cabinet 1");
    // What was taken away since is not there any more.
    let taken = [(seen, "take cup 2 from desk 1"), ("You pick up the cup 2.", "go to shelf 1")];
    let window = at_shelf(&taken, nothing, &EVERYWHERE);
    assert_ne!(AlfworldExpert.decide(&window).expect("it knows").action, "go to desk 1");
}

#[test]
fn who_holds_a_thing_that_is_not_clean_yet_forgets_that_in_a_lapse() {
    let commands = [&EVERYWHERE[..], &["examine cup 2"]].concat();
    let took = "You pick up the cup 2 from the shelf 1.";
    let window = at_shelf(&[("A shelf.", "take cup 2 from shelf 1")], took, &commands);
    assert_eq!(AlfworldExpert.decide(&window).expect("it knows").action, "go to sinkbasin 1");
    assert_eq!(AlfworldExpert.situation(&window), Some(Situation::Carry));
    let careless = AlfworldExpert.lapse(&window, Lapse::Overlook).expect("it forgets");
    assert_eq!(careless.action, "go to cabinet 1");
    let confused = AlfworldExpert.lapse(&window, Lapse::Dither).expect("it looks around");
    assert_eq!(confused.action, "look");
    assert!(confused.thought.contains("my hand is empty"), "{}", confused.thought);
}

#[test]
fn a_lapse_is_an_admissible_command_and_never_the_right_one() {
    let alfworld = built_in("valid_seen");
    let mut environment = Arc::clone(&alfworld).environment().expect("an environment");
    let mut lapses = 0;
    for task in alfworld.tasks("valid_seen").expect("the split exists").iter().take(60) {
        let played =
            demonstrate(&mut *environment, &AlfworldExpert, task, 30, 2).expect("it plays");
        for step in played.steps {
            let Actions::Commands(commands) = &step.window.actions else {
                panic!("whole commands")
            };
            for lapse in [Lapse::Overlook, Lapse::Dither] {
                let Some(wrong) = AlfworldExpert.lapse(&step.window, lapse) else { continue };
                assert!(commands.contains(&wrong.action), "{}", wrong.action);
                assert_ne!(wrong.action, step.decision.action);
                lapses += 1;
            }
        }
    }
    assert!(lapses > 500, "{lapses}");
}
