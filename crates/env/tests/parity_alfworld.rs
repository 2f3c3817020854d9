//! Parity with the real engine, on the real games and its recordings.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a skipped test says so")]

use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use lens_env::alfworld::archive::{self, RawGame};
use lens_env::alfworld::file::Template;
use lens_env::alfworld::generator::{Recipe, Split};
use lens_env::alfworld::{
    Alfworld, AlfworldExpert, Episode, Game, Goal, Options, TaskKind, file, planner, replay,
};
use lens_env::{Benchmark, Task, demonstrate};

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
    let alfworld = Alfworld::open(&path, &Options::default()).expect("the games load");
    let golden = shared.join("golden/alfworld/variant_2.1.1.jsonl.zst");
    replays_without_a_difference(&alfworld, &golden, 6);
    // The task lists beside the archive name far more games than the sample has; asked for, they do not fit.
    let lists = Some(shared.join("data/alfworld/tcod"));
    let error =
        Alfworld::open(&path, &Options { lists, ..Options::default() }).expect_err("no fit");
    assert!(error.to_string().contains("6 of its 134 games are there"), "{error}");
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
fn only_the_splits_asked_for_are_loaded() {
    let Some(shared) = shared() else { return };
    let path = shared.join("data/alfworld/games_tw-pddl.tar.zst");
    let options = Options {
        splits: vec!["hard".into()],
        lists: Some(shared.join("data/alfworld/tcod")),
        turn_limit: None,
    };
    let alfworld = Alfworld::open(&path, &options).expect("the games load");
    let sizes: Vec<(String, usize)> =
        alfworld.splits().into_iter().map(|split| (split.name, split.tasks)).collect();
    assert_eq!(sizes, [("hard".to_owned(), 121)]);
    assert!(alfworld.tasks("train").is_err());
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

#[test]
fn the_expert_solves_every_game() {
    let Some(shared) = shared() else { return };
    let alfworld = games(&shared);
    let mut environment = Arc::clone(&alfworld).environment().expect("an environment");
    for split in ["train", "valid_seen", "valid_unseen", "valid_train"] {
        let tasks = alfworld.tasks(split).expect("the split exists");
        let mut in_time = 0;
        for task in &tasks {
            let played =
                demonstrate(&mut *environment, &AlfworldExpert, task, 400, 2).expect("it plays");
            assert!(played.success(), "{}: {:?}", task.id, played.steps.last());
            in_time += usize::from(played.last.turn <= 30);
        }
        assert!(in_time * 100 >= tasks.len() * 98, "{split}: {in_time} of {} in time", tasks.len());
    }
}

#[test]
fn the_task_in_words_is_the_goal_in_facts() {
    let Some(shared) = shared() else { return };
    let alfworld = games(&shared);
    for split in ["train", "valid_seen", "valid_unseen", "valid_train"] {
        for task in alfworld.tasks(split).expect("the split exists") {
            let game = alfworld.game(&task.id).expect("the game exists");
            assert_eq!(
                Goal::from_sentence(game.sentence()).as_ref(),
                Some(game.goal()),
                "{}",
                task.id
            );
            assert!(task.id.split('/').any(|folder| folder.starts_with(&task.kind)), "{}", task.id);
        }
    }
}

/// Some real game files.
fn raw_games(shared: &Path, count: usize) -> Vec<RawGame> {
    let mut found = Vec::new();
    let path = shared.join("data/alfworld/games_tw-pddl.tar.zst");
    archive::for_each(&path, &|id| id.starts_with("valid_"), &mut |raw| {
        found.push(raw);
        Ok(if found.len() == count { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })
    .expect("the archive can be read");
    found
}

#[test]
fn a_folder_and_a_zip_load_like_the_tar() {
    let Some(shared) = shared() else { return };
    let alfworld = games(&shared);
    let raw = raw_games(&shared, 8);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let zip_path = folder.path().join("games.zip");
    let mut zip = zip::ZipWriter::new(std::fs::File::create(&zip_path).expect("a file"));
    let root = folder.path().join("json_2.1.1");
    for game in &raw {
        let name = format!("json_2.1.1/{}/game.tw-pddl", game.id);
        zip.start_file(name.as_str(), zip::write::SimpleFileOptions::default()).expect("a member");
        zip.write_all(&game.bytes).expect("written");
        std::fs::create_dir_all(root.join(&game.id)).expect("a folder");
        std::fs::write(root.join(&game.id).join("game.tw-pddl"), &game.bytes).expect("written");
    }
    zip.finish().expect("a zip");
    let one_file = root.join(&raw[0].id).join("game.tw-pddl");
    for (path, count) in [(&root, raw.len()), (&zip_path, raw.len()), (&one_file, 1)] {
        let loaded = Alfworld::open(path, &Options::default()).expect("the games load");
        assert_eq!(loaded.splits().iter().map(|split| split.tasks).sum::<usize>(), count);
        for game in raw.iter().take(count) {
            let expected = alfworld.game(&game.id).expect("the game exists");
            assert_eq!(loaded.game(&game.id).expect("the game exists"), expected);
        }
    }
    let twice = root.join("again");
    std::fs::create_dir_all(twice.join(&raw[0].id)).expect("a folder");
    std::fs::copy(&one_file, twice.join(&raw[0].id).join("game.tw-pddl")).expect("copied");
    let error = Alfworld::open(&root, &Options::default()).expect_err("a game twice").to_string();
    assert!(error.contains("the same game is also at"), "{error}");
}

#[test]
fn a_damaged_real_file_is_refused_with_its_path() {
    let Some(shared) = shared() else { return };
    let raw = raw_games(&shared, 1).remove(0);
    let text = String::from_utf8(raw.bytes).expect("text");
    let error = |text: &str| {
        let error = file::load(&raw.path, text.as_bytes()).expect_err("damaged").to_string();
        assert!(error.starts_with(&raw.path), "{error}");
        error
    };
    let rules = error(&text.replacen("agent goes to receptacle", "agent runs to receptacle", 1));
    assert!(rules.contains("unknown rules: domain "), "{rules}");
    let words = error(&text.replacen("You arrive at", "You come to", 1));
    assert!(words.contains("grammar "), "{words}");
    let told = |sentence: &str| {
        let start = text.find("Your task is to: ").expect("a task") + "Your task is to: ".len();
        let end = start + text[start..].find("\\\"").expect("the sentence ends");
        format!("{}{sentence}{}", &text[..start], &text[end..])
    };
    let sentence = error(&told("put a pan in sofa."));
    assert!(
        sentence.contains("the task reads \"put a pan in sofa.\" but the goal is"),
        "{sentence}"
    );
    // Two levels of JSON: the sentence is a string in the grammar, which is a string in the file.
    let human = r#"Look at the clock, then say \\\"done\\\".."#;
    let game = file::load("human", told(human).as_bytes()).expect("sound").expect("solvable");
    assert_eq!(game.sentence(), "Look at the clock, then say \"done\"..");
    let (before, init) = text.split_once("(:init").expect("a problem");
    let fact =
        error(&format!("{before}(:init{}", init.replacen("(objectType ", "(objectKind ", 1)));
    assert!(fact.contains("(pddl_problem):") && fact.contains("objectkind"), "{fact}");
    error(&text[..text.len() / 2]);
}

#[test]
fn an_exported_game_reads_back_as_the_game_it_was() {
    let Some(shared) = shared() else { return };
    let real = raw_games(&shared, 1).remove(0);
    let template = Template::from_game_file(&real.path, &real.bytes).expect("a real game");
    let generated = Recipe::new(9, Split::ValidSeen, 4).generate();
    let (problem, sentence) = (generated.problem.clone().canonical(), generated.sentence);
    let game = Game::new(&problem, template.wording(), sentence.clone(), Vec::new());
    let plan = planner::shortest_plan(&game, game.initial()).expect("it is solvable");
    let written = template.game_file(&generated.problem, &sentence, &plan);
    let read = file::load("exported", written.as_bytes()).expect("our own file").expect("solvable");
    assert_eq!(read, Game::new(&problem, template.wording(), sentence, plan));
}
