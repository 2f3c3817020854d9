//! The expert solves what can be solved, with nothing but the prompt's window.

use std::sync::Arc;

use lens_env::alfworld::{Alfworld, AlfworldExpert, Options};
use lens_env::{
    Actions, Benchmark, Environment, Expert, PastStep, Status, View, Window, demonstrate,
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
fn it_only_types_admissible_commands_and_keeps_its_thoughts_short() {
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
            let words = step.decision.thought.split_whitespace().count();
            assert!((3..=20).contains(&words), "{words} words: {}", step.decision.thought);
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
