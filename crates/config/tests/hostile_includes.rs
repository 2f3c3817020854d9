//! Includes that are no files, too large, or too many: an error at once, where a read would stall or fill the memory.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use lens_config::{ConfigError, resolve};

fn write(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, text).expect("the temporary folder is writable");
    path
}

/// The error of a configuration that must not take long; a stall fails the test instead of hanging it.
fn error_soon(file: PathBuf) -> ConfigError {
    let (done, result) = mpsc::channel();
    std::thread::spawn(move || {
        let _ = done.send(resolve(&[file], &[]));
    });
    let result = result.recv_timeout(Duration::from_secs(20)).expect("an answer in time");
    result.expect_err("the configuration is wrong")
}

#[test]
fn a_device_is_not_included() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let file = write(dir.path(), "run.toml", "include = [\"/dev/zero\"]\n");
    let error = error_soon(file);
    assert!(matches!(error, ConfigError::NotAFile { .. }), "{error}");
    assert_eq!(error.to_string(), "configuration `/dev/zero` is not a regular file");
}

#[test]
fn a_pipe_is_not_waited_for() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let pipe = dir.path().join("base.toml");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs").success());
    let file = write(dir.path(), "run.toml", "include = [\"base.toml\"]\n");
    assert!(matches!(error_soon(file), ConfigError::NotAFile { path } if path == pipe));
}

#[test]
fn a_file_above_the_limit_is_refused_and_one_below_it_is_read() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let comment = format!("#{}\n", "x".repeat((1 << 20) - 2));
    let file = write(dir.path(), "run.toml", &comment);
    resolve(std::slice::from_ref(&file), &[]).expect("1 MiB is allowed");
    write(dir.path(), "run.toml", &format!("{comment}\n"));
    assert!(matches!(error_soon(file), ConfigError::TooLarge { .. }));
}

#[test]
fn includes_that_double_end_at_the_limit() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    for level in 0..40 {
        let next = format!("{}.toml", level + 1);
        write(
            dir.path(),
            &format!("{level}.toml"),
            &format!("include = [\"{next}\", \"{next}\"]\n"),
        );
    }
    let last = write(dir.path(), "40.toml", "");
    resolve(&[last], &[]).expect("an empty file is a configuration");
    let error = error_soon(dir.path().join("0.toml"));
    assert!(matches!(error, ConfigError::TooManyFiles { limit: 64, .. }), "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("include shared files once")));
}
