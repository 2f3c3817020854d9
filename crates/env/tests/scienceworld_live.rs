//! The real simulator: its rules as the benchmark tells them, its determinism, and states restored by replay.
//!
//! These tests need Java and the simulator (`LENS_SCIENCEWORLD`); without them they say so and pass, unless
//! `LENS_REQUIRE_SCIENCEWORLD=1`.

mod scienceworld;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use lens_env::scienceworld::catalog::{TASK_TYPES, TaskType};
use lens_env::scienceworld::{Replay, Rules, ScienceWorld, scoring};
use lens_env::{Actions, Benchmark, EnvError, Environment, Status, Task, View};

/// A benchmark that the tests of this file share, or nothing where Java or the simulator is missing.
fn shared_benchmark() -> Option<Arc<ScienceWorld>> {
    static SHARED: OnceLock<Option<Arc<ScienceWorld>>> = OnceLock::new();
    SHARED.get_or_init(|| scienceworld::available().then(|| scienceworld::open(|_| {}))).clone()
}

fn task(name: &str, variation: i32) -> Task {
    TaskType::find(name).expect("a task of that name").task(variation)
}

/// Plays a course and gives every view, the first included.
fn play(environment: &mut dyn Environment, task: &Task, actions: &[&str]) -> Vec<View> {
    let mut views = vec![environment.reset(task).expect("it loads")];
    views.extend(actions.iter().map(|action| environment.step(action).expect("it answers")));
    views
}

/// Three courses through tasks in which names clash and chance plays a part.
fn courses() -> Vec<(Task, Vec<&'static str>)> {
    let garden = vec![
        "teleport to greenhouse",
        "look around",
        "open bee hive",
        "wait1",
        "pick up water pot",
        "move water pot to sink",
        "activate sink",
        "wait1",
        "teleport to outside",
        "wait",
    ];
    let kitchen = vec![
        "teleport to kitchen",
        "open cupboard",
        "pick up thermometer",
        "focus on soap",
        "open freezer",
        "look in freezer",
        "take orange",
    ];
    let workshop = vec![
        "teleport to workshop",
        "look around",
        "connect battery anode to orange wire terminal 1",
        "connect orange wire terminal 2 to red light bulb cathode",
        "wait1",
    ];
    vec![
        (task("grow-fruit", 1), garden.clone()),
        (task("mendelian-genetics-known-plant", 2), garden),
        (task("chemistry-mix", 3), kitchen),
        (task("power-component", 4), workshop),
    ]
}

#[test]
fn the_catalog_is_the_simulators() {
    let Some(benchmark) = shared_benchmark() else { return };
    let mut seat = benchmark.pool().seat().unwrap();
    let mut names: Vec<&str> = TASK_TYPES.iter().map(|kind| kind.name).collect();
    names.sort_unstable();
    seat.world()
        .turn(|simulator| {
            simulator.load("boil", 0, "easy")?;
            assert_eq!(simulator.task_names()?, names);
            for kind in &TASK_TYPES {
                assert_eq!(simulator.variations(kind.name)?, kind.variations, "{}", kind.name);
                assert_eq!(simulator.load(kind.name, 0, "easy")?, None, "{}", kind.name);
                let folds = kind.folds().map(Iterator::collect::<Vec<i32>>);
                assert_eq!(simulator.folds()?, folds, "{}", kind.name);
            }
            assert_eq!(simulator.variations("bake")?, -1);
            assert!(simulator.load("bake", 0, "easy")?.is_some());
            assert!(simulator.load("boil", 30, "easy")?.is_some());
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_prompt_gets_templates_and_objects_apart() {
    let Some(benchmark) = shared_benchmark() else { return };
    let mut environment = benchmark.scienceworld_environment();
    assert!(matches!(environment.view(), Err(EnvError::NotReset)));
    assert!(matches!(environment.step("wait"), Err(EnvError::NotReset)));
    let view = environment.reset(&task("boil", 0)).unwrap();
    assert!(view.task.starts_with("Your task is to boil water."), "{}", view.task);
    assert!(
        view.observation.starts_with("This room is called the hallway."),
        "{}",
        view.observation
    );
    let Actions::Templates { templates, objects } = &view.actions else { panic!("templates") };
    assert_eq!(templates.len(), 25);
    assert!(templates.contains(&"teleport OBJ".to_owned()));
    assert!(objects.contains(&"picture".to_owned()), "{objects:?}");
    assert_eq!((view.turn, view.score, view.status), (0, 0.0, Status::Running));
    assert!(environment.valid_actions().unwrap().len() > 100);
    // Electrical tasks keep their electrical actions.
    let view = environment.reset(&task("power-component", 0)).unwrap();
    let Actions::Templates { templates, .. } = &view.actions else { panic!("templates") };
    assert_eq!(templates.len(), 27);
}

#[test]
fn the_simulators_own_solution_succeeds() {
    let Some(benchmark) = shared_benchmark() else { return };
    let found = task("find-plant", 1);
    let solution = benchmark.reference_actions(&found).unwrap().expect("a short task is solved");
    let mut environment = Arc::clone(&benchmark).environment().unwrap();
    environment.reset(&found).unwrap();
    let mut view = environment.view().unwrap();
    for (turn, action) in solution.iter().enumerate() {
        assert_eq!(view.status, Status::Running, "turn {turn}");
        view = environment.step(action).unwrap();
    }
    assert_eq!((view.score, view.status), (100.0, Status::Ended { success: true }));
    // After the end nothing changes.
    assert_eq!(environment.step("wait").unwrap(), view);
    // The same from the cache, and the same from a solver that has solved other tasks before.
    assert_eq!(benchmark.reference_actions(&found).unwrap(), Some(solution));
    let other = scienceworld::open(|options| {
        options.cache =
            Some(std::env::temp_dir().join(format!("lens-gold-{}", std::process::id())));
    });
    let cold = other.gold_path(&task("find-plant", 2)).unwrap();
    assert_eq!(benchmark.gold_path(&task("find-plant", 2)).unwrap(), cold);
    let _ = std::fs::remove_dir_all(
        std::env::temp_dir().join(format!("lens-gold-{}", std::process::id())),
    );
}

#[test]
fn a_fatal_mistake_ends_the_episode_and_counts_nothing() {
    let Some(benchmark) = shared_benchmark() else { return };
    let mut environment = benchmark.scienceworld_environment();
    let views = play(&mut environment, &task("find-plant", 0), &["focus on agent", "reset task"]);
    assert_eq!((views[1].score, views[1].status), (-100.0, Status::Ended { success: false }));
    assert_eq!(scoring::final_score(&views[1]), 0.0);
    assert_eq!(views[2], views[1], "nothing is reset after the end");
}

#[test]
fn too_many_moves_end_the_episode() {
    let Some(benchmark) = shared_benchmark() else { return };
    let mut environment = benchmark.scienceworld_environment();
    let views = play(&mut environment, &task("boil", 0), &["wait"; 10]);
    assert_eq!(views[9].status, Status::Running);
    assert_eq!(views[10].status, Status::Ended { success: false });
    assert_eq!(views[10].turn, 10);
}

#[test]
fn an_ambiguous_action_is_asked_about() {
    let Some(benchmark) = shared_benchmark() else { return };
    let mut environment = benchmark.scienceworld_environment();
    let views = play(&mut environment, &task("boil", 0), &["open door"]);
    assert!(views[1].observation.starts_with("Ambiguous request: Please enter the number"));
    assert_eq!(environment.valid_actions().unwrap().first().map(String::as_str), Some("0"));
    assert_eq!(views[1].actions, views[0].actions, "templates and objects stay as they are");
    let answered = environment.step("0").unwrap();
    assert_eq!(answered.observation, "The door is already open.");
    assert!(environment.valid_actions().unwrap().len() > 100);
    // Anything but a number cancels the question.
    environment.step("open door").unwrap();
    let canceled = environment.step("look around").unwrap();
    assert!(canceled.observation.starts_with("Unknown action."), "{}", canceled.observation);
}

#[test]
fn any_text_is_answered_and_costs_a_turn() {
    let Some(benchmark) = shared_benchmark() else { return };
    let mut environment = benchmark.scienceworld_environment();
    environment.reset(&task("boil", 0)).unwrap();
    let long = "open ".repeat(20_000);
    let odd = [
        "",
        " ",
        "0",
        "-1",
        "e",
        "s",
        "!yv",
        "\n",
        "a\nb\r\nc",
        "\\n",
        "\\",
        "\u{1}",
        "öffne Tür",
        "🚪",
        "%s%n$1",
        "look at \"door\"",
        "focus on OBJ",
        "(((",
        "[",
        "OBJ",
        "help",
        "objects",
        "task",
        "\t",
        "\0",
        long.as_str(),
    ];
    for (place, action) in odd.iter().enumerate() {
        let view = environment.step(action).unwrap_or_else(|error| panic!("{action:?}: {error}"));
        assert_eq!(view.turn, place + 1, "{action:?}");
        assert!(!view.observation.is_empty(), "{action:?}");
    }
    assert_eq!(
        environment.step("bake a cake").unwrap().observation,
        "No known action matches that input."
    );
    assert_eq!(benchmark.incidents().failures(), 0);
}

#[test]
fn worlds_in_one_machine_do_not_disturb_each_other() {
    let Some(_) = shared_benchmark() else { return };
    let one = scienceworld::open(|options| options.limits.hosts = 1);
    let courses = courses();
    let solo: Vec<Vec<View>> = courses
        .iter()
        .map(|(task, actions)| play(&mut one.scienceworld_environment(), task, actions))
        .collect();
    // The same courses again, one action of each in turn; and without simplifications in the same machine.
    let mut environments: Vec<_> = courses.iter().map(|_| one.scienceworld_environment()).collect();
    let mut interleaved: Vec<Vec<View>> = Vec::new();
    for (environment, (task, _)) in environments.iter_mut().zip(&courses) {
        interleaved.push(vec![environment.reset(task).unwrap()]);
    }
    let mut stranger = one.pool().seat().unwrap();
    stranger.world().turn(|simulator| simulator.load("grow-plant", 5, "")).unwrap();
    for turn in 0..courses.iter().map(|(_, actions)| actions.len()).max().unwrap() {
        for (place, (_, actions)) in courses.iter().enumerate() {
            if let Some(action) = actions.get(turn) {
                interleaved[place].push(environments[place].step(action).unwrap());
            }
            stranger
                .world()
                .turn(|simulator| {
                    simulator.step("open door to kitchen")?;
                    simulator.valid_actions()
                })
                .unwrap();
        }
    }
    assert_eq!(interleaved, solo);
    assert_eq!(one.pool().hosts().len(), 1);
}

#[test]
fn machines_agree() {
    let Some(_) = shared_benchmark() else { return };
    let played = || -> Vec<(Vec<View>, Vec<String>)> {
        let benchmark = scienceworld::open(|options| options.limits.hosts = 1);
        courses()
            .iter()
            .map(|(task, actions)| {
                let mut environment = benchmark.scienceworld_environment();
                let views = play(&mut environment, task, actions);
                (views, environment.valid_actions().unwrap())
            })
            .collect()
    };
    assert_eq!(played(), played());
}

fn restored_states_are_the_same(benchmark: &Arc<ScienceWorld>, replay: Replay) {
    for (task, actions) in courses() {
        let mut original = benchmark.scienceworld_environment();
        let mut views = vec![original.reset(&task).unwrap()];
        let mut snapshots = vec![original.snapshot().unwrap()];
        for action in &actions {
            views.push(original.step(action).unwrap());
            snapshots.push(original.snapshot().unwrap());
        }
        for fork in [0, actions.len() / 2, actions.len()] {
            let mut other = benchmark.scienceworld_environment();
            let view = other.restore_by(&snapshots[fork], replay).unwrap();
            assert_eq!(view, views[fork], "{} turn {fork}", task.id);
            assert_eq!(view.fingerprint(), views[fork].fingerprint());
            for turn in fork..actions.len() {
                assert_eq!(
                    other.step(actions[turn]).unwrap(),
                    views[turn + 1],
                    "{} turn {turn}",
                    task.id
                );
            }
            assert_eq!(other.valid_actions().unwrap(), original.valid_actions().unwrap());
        }
        // A state further on is reached from where the environment is, without starting over.
        let mut other = benchmark.scienceworld_environment();
        other.restore_by(&snapshots[1], replay).unwrap();
        let before = benchmark.replay_report().replayed_steps;
        assert_eq!(other.restore_by(&snapshots[3], replay).unwrap(), views[3]);
        assert!(benchmark.replay_report().replayed_steps >= before + 2);
    }
}

#[test]
fn states_are_restored_fast() {
    let Some(benchmark) = shared_benchmark() else { return };
    restored_states_are_the_same(&benchmark, Replay::Fast);
    assert_eq!(benchmark.replay_report().fast_replays_refused, 0);
}

#[test]
fn states_are_restored_exactly() {
    let Some(benchmark) = shared_benchmark() else { return };
    restored_states_are_the_same(&benchmark, Replay::Exact);
}

#[test]
fn a_restored_state_that_differs_is_refused() {
    let Some(benchmark) = shared_benchmark() else { return };
    let easy = {
        let mut environment = benchmark.scienceworld_environment();
        play(&mut environment, &task("boil", 0), &["go to kitchen", "look around"]);
        environment.snapshot().unwrap()
    };
    // The same actions by other rules: the doors are shut.
    let plain = scienceworld::open(|options| {
        options.limits.hosts = 1;
        options.rules = Rules { simplifications: String::new(), ..Rules::default() };
    });
    let mut environment = plain.scienceworld_environment();
    let error = environment.restore(&easy).unwrap_err();
    assert!(matches!(&error, EnvError::Restore(why) if why.contains("boil/0")), "{error}");
    assert_eq!(plain.replay_report().fast_replays_refused, 1);
    assert!(matches!(environment.view(), Err(EnvError::NotReset)));
    // It is not spoilt.
    environment.reset(&task("boil", 0)).unwrap();
}

#[test]
fn ten_thousand_steps_leave_nothing_behind() {
    let Some(_) = shared_benchmark() else { return };
    let benchmark = scienceworld::open(|options| options.limits.hosts = 1);
    let mut seat = benchmark.pool().seat().unwrap();
    let host = Arc::clone(seat.host());
    let world = seat.world();
    world.turn(|simulator| simulator.load("boil", 0, "easy")).unwrap();
    // The world that warms the machine up in the background must have come and gone before anything is counted.
    let patience = Instant::now();
    while host.loads() < 2 || host.worlds() > 1 {
        assert!(patience.elapsed() < Duration::from_mins(2), "the machine never got warm");
        std::thread::sleep(Duration::from_millis(20));
    }
    let steps = |world: &mut lens_env::scienceworld::world::World, count: usize| {
        for step in 0..count {
            world
                .turn(|simulator| {
                    simulator.step(if step % 2 == 0 { "inventory" } else { "open door" })?;
                    simulator.standing()?;
                    simulator.templates()?;
                    if step % 100 == 0 {
                        simulator.valid_actions()?;
                        simulator.objects()?;
                        // Answered with an error by the gateway or the simulator.
                        assert!(simulator.folds().is_ok());
                    }
                    Ok(())
                })
                .unwrap();
        }
    };
    steps(world, 10);
    let before = host.held_objects().unwrap();
    steps(world, 10_000);
    assert_eq!(host.held_objects().unwrap(), before);
    // Worlds that are gone leave what the next ones need, and no more.
    let come_and_go = |count: usize| {
        let mut environments: Vec<_> =
            (0..count).map(|_| benchmark.scienceworld_environment()).collect();
        for environment in &mut environments {
            play(environment, &task("find-plant", 0), &["look around"]);
        }
    };
    come_and_go(4);
    let before = host.held_objects().unwrap();
    come_and_go(4);
    come_and_go(4);
    assert_eq!(host.held_objects().unwrap(), before);
}
