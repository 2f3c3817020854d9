//! Data files made to stall or to exhaust the memory: each is refused at once.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use lens_env::EnvError;
use lens_env::alfworld::{archive, replay};
use lens_env::webshop::catalog::load_nouns;

/// What `work` says; a stall fails the test instead of hanging it.
fn soon<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    std::thread::spawn(move || done.send(work()));
    result.recv_timeout(Duration::from_mins(1)).expect("an answer in time")
}

fn pipe(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    assert!(Command::new("mkfifo").arg(&path).status().expect("mkfifo runs").success());
    path
}

#[test]
fn a_pipe_is_no_game_no_archive_no_recording_and_no_table() {
    type Reads = fn(&Path) -> Result<(), EnvError>;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let game: Reads = |path| archive::first(path).map(drop);
    let cases: [(&str, Reads); 6] = [
        ("game.tw-pddl", game),
        ("games.zip", game),
        ("games.tar.zst", game),
        ("plays.jsonl", |path| replay::read(path).map(drop)),
        ("plays.jsonl.zst", |path| replay::read(path).map(drop)),
        ("nouns.jsonl", |path| load_nouns(path).map(drop)),
    ];
    for (name, read) in cases {
        let path = pipe(folder.path(), name);
        let error = soon(move || read(&path).expect_err("refused").to_string());
        assert!(error.contains(&format!("{name}: not a regular file")), "{error}");
    }
}

#[test]
fn a_folder_with_a_pipe_among_its_games_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    pipe(folder.path(), "game.tw-pddl");
    let path = folder.path().to_owned();
    let error = soon(move || archive::first(&path).expect_err("refused").to_string());
    assert!(error.contains("not a regular file"), "{error}");
}

#[test]
fn a_packed_line_without_end_is_refused_before_it_is_unpacked() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("plays.jsonl.zst");
    let file = std::fs::File::create(&path).expect("created");
    let mut packer = zstd::Encoder::new(file, 1).expect("a packer");
    std::io::copy(&mut std::io::repeat(b'x').take(64 << 20), &mut packer).expect("packed");
    packer.finish().and_then(|mut file| file.flush()).expect("written");
    let error = replay::read(&path).map(drop).expect_err("refused").to_string();
    assert!(error.contains("plays.jsonl.zst:1: the line is longer than 33554432 bytes"), "{error}");
}
