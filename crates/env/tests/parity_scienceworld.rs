//! The simulator driven by us against recordings of the simulator driven by its own Python package.
//!
//! Needs the recordings, Java and the simulator. By default a sample of the episodes of every task is replayed;
//! `LENS_SCIENCEWORLD_FULL=1` replays all of them, as `lens env replay scienceworld` does.

mod scienceworld;

use std::path::PathBuf;
use std::sync::Arc;

use lens_env::scienceworld::catalog::{TASK_TYPES, TaskType};
use lens_env::scienceworld::golden::{self, Call, Episode, Recording};
use lens_env::scienceworld::{Replay, ScienceWorld};
use lens_env::{Actions, Environment, Status};

/// Tasks whose solver takes seconds to minutes.
const SLOW_SOLVERS: [&str; 6] = [
    "test-conductivity",
    "grow-plant",
    "grow-fruit",
    "inclined-plane",
    "mendelian",
    "measure-melting",
];

/// The recordings, or nothing where they or the simulator are missing and not required.
fn recordings() -> Option<Vec<Recording>> {
    let folder = std::env::var_os("LENS_SHARED")
        .map_or_else(
            || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
            PathBuf::from,
        )
        .join("golden/scienceworld");
    if !folder.is_dir() {
        let required = std::env::var_os("LENS_REQUIRE_SHARED").is_some_and(|value| value == "1");
        assert!(!required, "LENS_REQUIRE_SHARED=1, but {} is not there", folder.display());
        scienceworld::say("skipped: ../shared is not beside the project");
        return None;
    }
    if !scienceworld::available() {
        return None;
    }
    let read = |kind: &TaskType| {
        let path = folder.join(format!("{}.jsonl.zst", kind.name));
        Recording::read(&path).unwrap_or_else(|error| panic!("{error}"))
    };
    Some(TASK_TYPES.iter().map(read).collect())
}

fn is_full() -> bool {
    std::env::var_os("LENS_SCIENCEWORLD_FULL").is_some_and(|value| value == "1")
}

/// Some episodes of each task, others for each, so that every mode and both simplifications are among them.
fn sample(recordings: &[Recording], each: usize) -> Vec<&Episode> {
    let of_task = |(number, recording): (usize, &'_ Recording)| -> Vec<usize> {
        let count = recording.episodes.len();
        let each = if is_full() { count } else { each.min(count) };
        (0..each).map(|place| (number * 3 + place * 5) % count).collect()
    };
    recordings
        .iter()
        .enumerate()
        .flat_map(|pair| of_task(pair).into_iter().map(|place| &pair.1.episodes[place]))
        .collect()
}

#[test]
fn recorded_episodes_come_out_the_same() {
    let Some(recordings) = recordings() else { return };
    for (recording, kind) in recordings.iter().zip(&TASK_TYPES) {
        let meta = &recording.meta;
        assert_eq!((meta.task.as_str(), meta.task_id.as_str()), (kind.name, kind.id));
        assert_eq!(meta.max_variations, kind.variations);
        let folds = ["train", "dev", "test"].map(|name| meta.folds[name]);
        let ours = kind.folds().map(|fold| [fold.len() as i32, fold.start, fold.end - 1]);
        assert_eq!(folds, ours, "{}", kind.name);
    }
    let benchmark = scienceworld::open(|_| {});
    let episodes = sample(&recordings, 2);
    let steps: usize = episodes.iter().map(|episode| episode.steps.len()).sum();
    // Three workers to a machine: worlds take turns all the time.
    let mismatches =
        golden::replay_all(benchmark.pool(), &episodes, benchmark.rules().move_limit, 6).unwrap();
    for mismatch in mismatches.iter().take(20) {
        scienceworld::say(&mismatch.to_string());
    }
    assert_eq!(mismatches.len(), 0, "in {} episodes, {steps} steps", episodes.len());
    assert_eq!(benchmark.incidents().failures(), 0);
    scienceworld::say(&format!("{} episodes, {steps} steps, no mismatch", episodes.len()));
}

/// Plays an episode through the environment, which asks only what a prompt shows and what draws random numbers, and
/// restores a state in the middle in both ways.
fn check_environment(benchmark: &Arc<ScienceWorld>, episode: &Episode) {
    let kind = TaskType::find(&episode.task).expect("a recorded task is in the catalog");
    let mut environment = benchmark.scienceworld_environment();
    let mut view = environment.reset(&kind.task(episode.variation)).unwrap();
    assert_eq!(view.task, episode.task_description, "{}", episode.id);
    let mut snapshots = Vec::new();
    for step in &episode.steps {
        let here = format!("{} step {}", episode.id, step.t);
        if step.t > 0 {
            view = environment.step(&step.action).unwrap();
        }
        let Actions::Templates { templates, objects } = &view.actions else { panic!("templates") };
        assert_eq!(view.observation, step.obs, "{here}");
        assert_eq!(view.score, step.score, "{here}");
        assert_eq!(view.status != Status::Running, step.done, "{here}");
        assert_eq!(Some(templates), step.templates.as_ref(), "{here}");
        assert_eq!(Some(objects), step.objects.as_ref(), "{here}");
        assert_eq!(Some(environment.valid_actions().unwrap()), step.valid, "{here}");
        assert_eq!(view.turn, step.t, "{here}");
        snapshots.push((environment.snapshot().unwrap(), view.clone()));
        if step.done {
            break;
        }
    }
    let (snapshot, before) = &snapshots[snapshots.len() * 2 / 3];
    for replay in [Replay::Fast, Replay::Exact] {
        let mut other = benchmark.scienceworld_environment();
        assert_eq!(
            &other.restore_by(snapshot, replay).unwrap(),
            before,
            "{} {replay:?}",
            episode.id
        );
    }
}

#[test]
fn environments_show_what_was_recorded_and_restore_it() {
    let Some(recordings) = recordings() else { return };
    let benchmark = scienceworld::open(|_| {});
    let asked_everything = |episode: &&&Episode| {
        episode.simplification == "easy" && episode.calls.contains(&Call::GetPossibleObjects)
    };
    let everything: Vec<&Episode> =
        recordings.iter().flat_map(|recording| &recording.episodes).collect();
    let chosen: Vec<&Episode> = if is_full() {
        everything.iter().filter(asked_everything).copied().collect()
    } else {
        // One walk or solution of each task, in turn.
        let of_task = |(number, kind): (usize, &TaskType)| {
            let fitting: Vec<&Episode> = everything
                .iter()
                .filter(|episode| episode.task == kind.name)
                .filter(asked_everything)
                .copied()
                .collect();
            fitting[number % fitting.len()]
        };
        TASK_TYPES.iter().enumerate().map(of_task).collect()
    };
    let (one_half, other_half) = chosen.split_at(chosen.len() / 2);
    std::thread::scope(|scope| {
        for half in [one_half, other_half] {
            scope.spawn(|| half.iter().for_each(|episode| check_environment(&benchmark, episode)));
        }
    });
    assert_eq!(benchmark.replay_report().fast_replays_refused, 0);
    assert_eq!(benchmark.incidents().failures(), 0);
}

/// Tasks whose recorded solution is not the one a fresh machine finds, every time: here it opens one drawer less. The solver
/// draws random numbers where it remembers no route, so what the recording machine did before may be the cause; nobody has
/// shown that it is.
const DRAWN_SOLUTIONS: [&str; 1] = ["chemistry-mix-paint-tertiary-color"];

#[test]
fn the_solver_finds_the_recorded_solutions() {
    let Some(recordings) = recordings() else { return };
    let benchmark = scienceworld::open(|options| {
        options.cache = Some(
            PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("gold-{}", std::process::id())),
        );
    });
    let (mut solved, mut other) = (0, Vec::new());
    for recording in &recordings {
        let slow = SLOW_SOLVERS.iter().any(|name| recording.meta.task.contains(name));
        if slow && !is_full() {
            continue;
        }
        let recorded = recording
            .episodes
            .iter()
            .find(|episode| episode.simplification == "easy" && episode.gold.is_some());
        let recorded = recorded.expect("every task has a recorded solution");
        let kind = TaskType::find(&recorded.task).expect("a recorded task is in the catalog");
        let path = benchmark.gold_path(&kind.task(recorded.variation)).unwrap();
        if Some(&path.actions) != recorded.gold.as_ref() {
            other.push(recorded.task.as_str());
        }
        if let Some(solution) = &path.solution {
            assert_eq!(solution[..], path.actions[..solution.len()], "{}", recorded.id);
            solved += 1;
        }
    }
    assert_eq!(other, DRAWN_SOLUTIONS, "solutions other than the recorded ones");
    assert!(solved >= 15, "only {solved} solutions complete their task by the rules");
}
