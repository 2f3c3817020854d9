//! Game files that are damaged, foreign, or packed in one way or another.

use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use lens_env::alfworld::generator::{Recipe, Split};
use lens_env::alfworld::{Alfworld, Episode, Game, Options, Wording, archive, file, parser};
use lens_opd::random::{Purpose, StreamKey};
use tempfile::TempDir;

fn problem_text() -> String {
    Recipe::new(0, Split::Train, 11).generate().problem.text()
}

fn line_of(text: &str, needle: &str) -> usize {
    1 + text.lines().position(|line| line.contains(needle)).expect("the text has such a line")
}

#[test]
fn a_damaged_problem_is_refused_with_its_line() {
    let good = problem_text();
    let first_fact = line_of(&good, "(receptacleType");
    let cases: [(&str, &str, usize, &str); 6] = [
        ("(receptacleType", "(receptacleTyp", first_fact, "\"receptacletyp\" does not occur"),
        ("(receptacleType ", "receptacleType ", first_fact, "expected a fact in parentheses"),
        ("(receptacleType ", "(receptacleType X", first_fact, "is not declared"),
        (":domain alfred", ":domain blocks", 3, "expected \"alfred\""),
        ("(:init", "(:start", line_of(&good, "(:init"), "expected \":init\""),
        ("agent1 - agent", "agent1 - robot", 5, "\"robot\" is not a type"),
    ];
    for (from, to, line, message) in cases {
        let complaint = parser::parse(&good.replacen(from, to, 1)).expect_err(to);
        assert_eq!(complaint.line, Some(line), "{to}: {complaint:?}");
        assert!(complaint.message.contains(message), "{to}: {complaint:?}");
    }
    let cut = &good[..good.len() / 2];
    let complaint = parser::parse(cut).expect_err("half a problem");
    assert!(complaint.line.is_some_and(|line| line + 1 >= cut.lines().count()), "{complaint:?}");
    let goal = good.replacen("(exists", "(forall", 1);
    assert!(parser::parse(&goal).expect_err("no such goal").message.contains("six shapes"));
    let twice = good.replacen(
        "(atLocation agent1",
        "(atLocation agent1 loc_bar_none)\n(atLocation agent1",
        1,
    );
    assert!(parser::parse(&twice).is_err());
    assert!(parser::parse("").is_err());
    assert!(
        parser::parse(&format!("{good} more"))
            .expect_err("text after the end")
            .message
            .contains("more")
    );
}

/// Random damage: the parser may refuse or accept, but it never panics, and what it accepts can be written and read.
#[test]
fn no_damage_makes_the_parser_panic() {
    let good = problem_text().into_bytes();
    let mut accepted = 0;
    for number in 0..400 {
        let mut stream = StreamKey::new(2, 0, number, Purpose::Data, 0).open();
        let mut bytes = good.clone();
        for _ in 0..=stream.below(4).expect("positive") {
            let at = stream.below(bytes.len() as u64).expect("positive") as usize;
            let length = stream.below(40).expect("positive") as usize;
            let end = (at + length).min(bytes.len());
            match stream.below(5) {
                Some(0) => drop(bytes.drain(at..end)),
                Some(1) => bytes.truncate(at.max(1)),
                Some(2) => bytes[at] = stream.next_u64() as u8,
                Some(3) => bytes.insert(at, *b"()-\n ;\"?\xff".get(length % 9).unwrap_or(&b'(')),
                _ => {
                    let copy = bytes[at..end].to_vec();
                    bytes.splice(at..at, copy);
                }
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        if let Ok(problem) = parser::parse(&text) {
            assert_eq!(parser::parse(&problem.text()).as_ref(), Ok(&problem), "case {number}");
            let game = Game::new(&problem, Wording::Second, String::new(), Vec::new());
            let mut episode = Episode::new(Arc::new(game));
            for turn in 0..6 {
                let commands = episode.commands();
                episode.step(&commands[turn * 7 % commands.len()]);
                assert_ne!(episode.observation(), "Nothing happens.", "case {number}");
            }
            accepted += 1;
        }
        let json = serde_json::to_vec(&text).expect("a string");
        assert!(file::load("damaged", &json).is_err());
        assert!(file::load("damaged", &bytes).is_err());
    }
    assert!((5..200).contains(&accepted), "{accepted} of 400 damaged texts were accepted");
}

#[test]
fn a_foreign_game_file_is_refused_with_its_path_and_what_to_do() {
    let error =
        |text: &str| file::load("there/game.tw-pddl", text.as_bytes()).expect_err(text).to_string();
    let broken = error("{\"pddl_domain\": \"\",\n \"grammar\": 3}");
    assert!(broken.starts_with("there/game.tw-pddl:2: not an ALFWorld game file"), "{broken}");
    let no_task = error(r#"{"pddl_domain":"","grammar":"","pddl_problem":"","solvable":true}"#);
    assert!(no_task.contains("Your task is to"), "{no_task}");
    let grammar = r#"\"rhs\": \"Your task is to: win.\"\n"#;
    let foreign = error(&format!(
        r#"{{"pddl_domain":"(d)","grammar":"{grammar}","pddl_problem":"","solvable":true}}"#
    ));
    assert!(foreign.starts_with("there/game.tw-pddl: unknown rules: domain "), "{foreign}");
    assert!(foreign.contains("lens data alfworld"), "{foreign}");
}

#[test]
fn a_folder_without_games_and_a_file_of_another_kind_are_refused() {
    let folder = TempDir::new().expect("a temporary folder");
    let open = |path: &Path| {
        Alfworld::open(path, &Options::default()).expect_err("nothing to load").to_string()
    };
    assert!(open(folder.path()).contains("a game.tw-pddl file in"));
    assert!(open(&folder.path().join("absent")).starts_with("cannot read"));
    let other = folder.path().join("games.rar");
    std::fs::write(&other, "x").expect("written");
    assert!(open(&other).contains("expected a folder, a .zip, a .tar.zst"));
    for name in ["games.zip", "games.tar.zst"] {
        let path = folder.path().join(name);
        std::fs::write(&path, "this is no archive").expect("written");
        let error = open(&path);
        assert!(error.contains(name) && error.contains("download it again"), "{error}");
    }
    let lists = Options { lists: Some(folder.path().to_owned()), ..Options::default() };
    let error = Alfworld::open(folder.path(), &lists).expect_err("no lists").to_string();
    assert!(error.contains("train_hard.jsonl"), "{error}");
    std::fs::write(folder.path().join("test.jsonl"), "{\"game_file\": \"a/b/c\"}\n{")
        .expect("written");
    let error = Alfworld::open(folder.path(), &lists).expect_err("a broken list").to_string();
    assert!(error.contains("test.jsonl:2: not a line of a task list"), "{error}");
}

#[test]
fn folder_zip_and_tar_hold_the_same_games() {
    let folder = TempDir::new().expect("a temporary folder");
    let games = [
        ("train/a-1/trial_1", "one"),
        ("train/a-2/trial_2", "two"),
        ("valid_seen/b-1/trial_3", "three"),
    ];
    let root = folder.path().join("json_2.1.1");
    for (id, text) in games {
        let at = root.join(id);
        std::fs::create_dir_all(&at).expect("a folder");
        std::fs::write(at.join("game.tw-pddl"), text).expect("written");
        std::fs::write(at.join("traj_data.json"), "{}").expect("written");
    }
    let zip_path = folder.path().join("games.zip");
    let mut zip = zip::ZipWriter::new(std::fs::File::create(&zip_path).expect("a file"));
    let tar_path = folder.path().join("games.tar.zst");
    let encoder = zstd::Encoder::new(std::fs::File::create(&tar_path).expect("a file"), 1)
        .expect("an encoder");
    let mut tar = tar::Builder::new(encoder.auto_finish());
    for (id, text) in games {
        let name = format!("json_2.1.1/{id}/game.tw-pddl");
        zip.start_file(name.as_str(), zip::write::SimpleFileOptions::default()).expect("a member");
        zip.write_all(text.as_bytes()).expect("written");
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, text.as_bytes()).expect("written");
    }
    zip.finish().expect("a zip");
    tar.into_inner().expect("a tar").flush().expect("flushed");

    let read = |path: &Path, split: &str| {
        let mut found = Vec::new();
        archive::for_each(path, &|id| id.starts_with(split), &mut |raw| {
            found.push((raw.id, String::from_utf8(raw.bytes).expect("text")));
            Ok(ControlFlow::Continue(()))
        })
        .expect("readable");
        found.sort();
        found
    };
    let expected: Vec<(String, String)> =
        games.iter().map(|(id, text)| ((*id).into(), (*text).into())).collect();
    for path in [&root, &zip_path, &tar_path] {
        assert_eq!(read(path, ""), expected, "{}", path.display());
        assert_eq!(read(path, "valid_seen"), expected[2..], "{}", path.display());
        assert!(archive::first(path).is_ok());
    }
    assert_eq!(read(&root.join("train/a-1/trial_1/game.tw-pddl"), ""), expected[..1]);
}
