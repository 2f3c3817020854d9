//! Properties of the engine that hold in every game and after every command.

use std::sync::Arc;

use lens_env::alfworld::{Alfworld, Episode, Goal, Options};
use lens_env::{Actions, Benchmark, EnvError, Environment, Status, Task, View};
use proptest::prelude::*;

fn built_in() -> Arc<Alfworld> {
    let options = Options { splits: vec!["valid_unseen".into()], ..Options::default() };
    Arc::new(Alfworld::built_in(&options).expect("the built-in games need no file"))
}

fn task(alfworld: &Alfworld, number: usize) -> Task {
    let tasks = alfworld.tasks("valid_unseen").expect("the split exists");
    tasks[number % tasks.len()].clone()
}

fn commands(view: &View) -> &[String] {
    match &view.actions {
        Actions::Commands(commands) => commands,
        Actions::Templates { .. } | Actions::Free => panic!("ALFWorld lists whole commands"),
    }
}

/// Admissible commands, by number, with some nonsense in between.
fn command(view: &View, choice: u16) -> String {
    let admissible = commands(view);
    match choice % 16 {
        0 => "open sesame".to_owned(),
        1 => admissible[choice as usize / 16 % admissible.len()].to_uppercase(),
        _ => admissible[choice as usize / 16 % admissible.len()].clone(),
    }
}

fn play(environment: &mut dyn Environment, view: View, choices: &[u16]) -> Vec<View> {
    let mut views = vec![view];
    for &choice in choices {
        let next = environment.step(&command(&views[views.len() - 1], choice));
        views.push(next.expect("every string is answered"));
    }
    views
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_restored_snapshot_continues_like_the_original(
        number in 0_usize..134,
        before in prop::collection::vec(any::<u16>(), 0..20),
        after in prop::collection::vec(any::<u16>(), 0..20),
        detour in prop::collection::vec(any::<u16>(), 0..10),
    ) {
        let alfworld = built_in();
        let mut original = Arc::clone(&alfworld).environment().expect("an environment");
        let start = original.reset(&task(&alfworld, number)).expect("the game starts");
        let middle = play(&mut *original, start, &before).pop().expect("there is a view");
        let snapshot = original.snapshot().expect("a running episode");

        play(&mut *original, middle.clone(), &detour);
        prop_assert_eq!(&original.restore(&snapshot).expect("its own snapshot"), &middle);
        let expected = play(&mut *original, middle.clone(), &after);

        let mut other = Arc::clone(&alfworld).environment().expect("an environment");
        prop_assert_eq!(&other.restore(&snapshot).expect("a snapshot of the same benchmark"), &middle);
        prop_assert_eq!(other.view().expect("restored").fingerprint(), middle.fingerprint());
        prop_assert_eq!(play(&mut *other, middle, &after), expected);
    }

    #[test]
    fn an_inadmissible_command_changes_nothing(
        number in 0_usize..134,
        choices in prop::collection::vec(any::<u16>(), 0..25),
        nonsense in "[ -~]{0,30}",
    ) {
        let alfworld = built_in();
        let game = alfworld.game(&task(&alfworld, number).id).expect("the game exists");
        let mut episode = Episode::new(game);
        for choice in choices {
            let admissible = episode.commands();
            episode.step(&admissible[choice as usize % admissible.len()]);
        }
        let admissible = episode.commands();
        prop_assume!(!admissible.iter().any(|command| command == nonsense.trim()));
        let (state, won) = (episode.state().clone(), episode.won());
        episode.step(&nonsense);
        prop_assert_eq!(episode.observation(), "Nothing happens.");
        prop_assert_eq!(episode.state(), &state);
        prop_assert_eq!(episode.commands(), admissible);
        prop_assert_eq!(episode.won(), won);
    }

    #[test]
    fn the_command_list_is_sorted_unique_and_answered(
        number in 0_usize..134,
        choices in prop::collection::vec(any::<u16>(), 0..25),
    ) {
        let alfworld = built_in();
        let mut episode = Episode::new(alfworld.game(&task(&alfworld, number).id).expect("the game exists"));
        for choice in choices {
            let admissible = episode.commands();
            prop_assert!(admissible.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", admissible);
            for command in &admissible {
                let mut copy = episode.clone();
                copy.step(command);
                prop_assert_ne!(copy.observation(), "Nothing happens.", "after {}", command);
            }
            episode.step(&admissible[choice as usize % admissible.len()]);
        }
    }
}

#[test]
fn the_goal_in_words_is_the_goal_in_facts() {
    let alfworld =
        Alfworld::built_in(&Options::default()).expect("the built-in games need no file");
    for split in ["valid_seen", "valid_unseen"] {
        for task in alfworld.tasks(split).expect("the split exists") {
            let game = alfworld.game(&task.id).expect("the game exists");
            assert_eq!(
                Goal::from_sentence(game.sentence()).as_ref(),
                Some(game.goal()),
                "{}",
                task.id
            );
            assert_eq!(game.goal().kind.name(), task.kind, "{}", task.id);
        }
    }
}

#[test]
fn commands_are_stripped_like_python_strips_and_nothing_else_is_forgiven() {
    let alfworld = built_in();
    let mut episode = Episode::new(alfworld.game(&task(&alfworld, 0).id).expect("the game exists"));
    for accepted in ["look", "  look\t\n", "\u{1c}look\u{a0}\u{3000}"] {
        episode.step(accepted);
        assert!(
            episode.observation().starts_with("You are in the middle of a room."),
            "{accepted:?}"
        );
    }
    for refused in ["Look", "look.", "loo k", "look look", "", "\u{200b}look"] {
        episode.step(refused);
        assert_eq!(episode.observation(), "Nothing happens.", "{refused:?}");
    }
}

#[test]
fn an_episode_ends_when_the_task_is_done_and_nothing_changes_after() {
    let alfworld = built_in();
    let task = task(&alfworld, 1);
    let plan =
        alfworld.reference_actions(&task).expect("the game exists").expect("it has a solution");
    let mut environment = Arc::clone(&alfworld).environment().expect("an environment");
    let mut view = environment.reset(&task).expect("the game starts");
    for action in &plan {
        assert_eq!((view.status, view.score), (Status::Running, 0.0));
        view = environment.step(action).expect("a step");
    }
    assert_eq!(
        (view.status, view.score, view.turn),
        (Status::Ended { success: true }, 1.0, plan.len())
    );
    assert_eq!(environment.step("look").expect("a step after the end"), view);
}

#[test]
fn the_turn_limit_comes_from_the_options() {
    let options = Options { splits: vec!["valid_unseen".into()], turn_limit: Some(3), lists: None };
    let alfworld = Arc::new(Alfworld::built_in(&options).expect("the built-in games need no file"));
    assert_eq!(alfworld.profile().turn_limit, 30);
    let mut environment = Arc::clone(&alfworld).environment().expect("an environment");
    environment.reset(&task(&alfworld, 0)).expect("the game starts");
    let turns: Vec<View> = (0..4).map(|_| environment.step("nonsense").expect("a step")).collect();
    assert_eq!(turns[1].status, Status::Running);
    assert_eq!((turns[2].status, turns[2].turn), (Status::Ended { success: false }, 3));
    assert_eq!(turns[3], turns[2]);
}

#[test]
fn acting_before_reset_and_unknown_names_are_errors() {
    let alfworld = built_in();
    let mut environment = Arc::clone(&alfworld).environment().expect("an environment");
    assert!(matches!(environment.step("look"), Err(EnvError::NotReset)));
    assert!(matches!(environment.snapshot(), Err(EnvError::NotReset)));
    let unknown = Task { id: "valid_unseen/none/none".into(), kind: String::new() };
    let error = environment.reset(&unknown).expect_err("there is no such task").to_string();
    assert!(error.contains("valid_unseen/none/none"), "{error}");
    let error = alfworld.tasks("test").expect_err("there is no such split").to_string();
    assert!(error.contains("there are valid_unseen"), "{error}");
    let options = Options { splits: vec!["hard".into()], ..Options::default() };
    let error = Alfworld::built_in(&options).expect_err("there is no such split").to_string();
    assert!(error.contains("train, valid_seen, valid_unseen"), "{error}");
}
