//! Parity with the real engine, on the real games and its recordings.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use lens_env::alfworld::{Alfworld, Episode, Options, TaskKind, planner, replay};
use lens_env::{Benchmark, Task};

/// The folder with the real data, or `None` with a note where it is not beside the project.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn shared() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let folder = std::env::var_os("LENS_SHARED").map_or(beside, PathBuf::from);
    if folder.join("data/alfworld").is_dir() && folder.join("golden/alfworld").is_dir() {
        return Some(folder);
    }
    assert!(
        std::env::var_os("LENS_REQUIRE_SHARED").is_none_or(|value| value != "1"),
        "LENS_REQUIRE_SHARED=1, but {} has no data/alfworld and golden/alfworld",
        folder.display()
    );
    eprintln!("skipped: ../shared is not beside the project");
    None
}

/// The 4,027 real games, loaded once for all tests.
fn games(shared: &Path) -> Arc<Alfworld> {
    static GAMES: OnceLock<Arc<Alfworld>> = OnceLock::new();
    let path = shared.join("data/alfworld/games_tw-pddl.tar.zst");
    Arc::clone(GAMES.get_or_init(|| {
        Arc::new(Alfworld::open(&path, &Options::default()).expect("the games load"))
    }))
}

fn replays_without_a_difference(alfworld: &Alfworld, path: &Path, plays: usize) {
    let tally = replay::replay_file(alfworld, path).expect("the recording can be read");
    assert_eq!(tally.plays, plays, "{}", path.display());
    assert!(tally.mismatches.is_empty(), "{}: {:#?}", path.display(), tally.mismatches.first());
}

#[test]
fn recordings_of_the_real_engine_replay_without_a_difference() {
    let Some(shared) = shared() else { return };
    let alfworld = games(&shared);
    let golden = shared.join("golden/alfworld");
    for (file, plays) in
        [("valid_seen", 140), ("valid_unseen", 134), ("scripted", 68), ("handcoded", 24)]
    {
        replays_without_a_difference(&alfworld, &golden.join(format!("{file}.jsonl.zst")), plays);
    }
}

#[test]
fn recordings_in_the_older_wording_replay_without_a_difference() {
    let Some(shared) = shared() else { return };
    let path = shared.join("data/alfworld/games_2.1.1_sample.tar.zst");
    // The task lists beside the archive name far more games than the sample has.
    let lists = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(lists.path().join("test.jsonl"), "").expect("an empty list");
    let options = Options { lists: Some(lists.path().to_owned()), ..Options::default() };
    let alfworld = Alfworld::open(&path, &options).expect("the games load");
    let golden = shared.join("golden/alfworld/variant_2.1.1.jsonl.zst");
    replays_without_a_difference(&alfworld, &golden, 6);
}

#[test]
fn every_stored_walkthrough_wins_and_the_planner_is_as_short() {
    let Some(shared) = shared() else { return };
    let alfworld = games(&shared);
    let mut walked = 0;
    for split in ["train", "valid_seen", "valid_unseen", "valid_train"] {
        for task in alfworld.tasks(split).expect("the split exists") {
            let game = alfworld.game(&task.id).expect("the game exists");
            let stored = game.walkthrough();
            assert!(
                wins(&alfworld, &task, stored),
                "{}: the stored walkthrough does not win",
                task.id
            );
            let plan = planner::shortest_plan(&game, game.initial()).expect("the game is solvable");
            assert_eq!(plan.len(), stored.len(), "{}: {plan:?} against {stored:?}", task.id);
            assert!(wins(&alfworld, &task, &plan), "{}: the plan {plan:?} does not win", task.id);
            walked += 1;
        }
    }
    assert_eq!(walked, 4027);
}

fn wins(alfworld: &Alfworld, task: &Task, commands: &[String]) -> bool {
    let mut episode = Episode::new(alfworld.game(&task.id).expect("the game exists"));
    for command in commands {
        assert!(!episode.won(), "{}: won before {command}", task.id);
        episode.step(command);
    }
    episode.won()
}

#[test]
fn splits_and_lists_have_the_published_sizes() {
    let Some(shared) = shared() else { return };
    let alfworld = games(&shared);
    let sizes: Vec<(String, usize)> =
        alfworld.splits().into_iter().map(|split| (split.name, split.tasks)).collect();
    let expected = [
        ("train", 3553),
        ("valid_seen", 140),
        ("valid_unseen", 134),
        ("hard", 121),
        ("valid_train", 200),
    ];
    assert_eq!(sizes, expected.map(|(name, tasks)| (name.to_owned(), tasks)));
    let count = |split: &str, kind: TaskKind| {
        let tasks = alfworld.tasks(split).expect("the split exists");
        tasks.iter().filter(|task| task.kind == kind.name()).count()
    };
    assert_eq!(TaskKind::ALL.map(|kind| count("train", kind)), [790, 308, 650, 459, 533, 813]);
    assert_eq!(TaskKind::ALL.map(|kind| count("valid_seen", kind)), [35, 13, 27, 16, 25, 24]);
    assert_eq!(TaskKind::ALL.map(|kind| count("valid_unseen", kind)), [24, 18, 31, 23, 21, 17]);
}

#[test]
fn tcod_reference_actions_win_and_hard_games_have_none() {
    let Some(shared) = shared() else { return };
    let alfworld = games(&shared);
    let mut without = 0;
    for task in alfworld.tasks("train").expect("the split exists") {
        match alfworld.reference_actions(&task).expect("the game exists") {
            Some(actions) => assert!(wins(&alfworld, &task, &actions), "{}: {actions:?}", task.id),
            None => without += 1,
        }
    }
    assert_eq!(without, 121);
    for task in alfworld.tasks("hard").expect("the split exists") {
        assert_eq!(
            alfworld.reference_actions(&task).expect("the game exists"),
            None,
            "{}",
            task.id
        );
    }
}
