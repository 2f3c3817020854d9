//! Layers, provenance and the errors people meet.

use std::path::{Path, PathBuf};

use lens_config::schema::{BenchmarkName, MethodName};
use lens_config::{Config, ConfigError, Origin, render, resolve};

fn write(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, text).expect("the temporary folder is writable");
    path
}

fn error_of(text: &str, overrides: &[&str]) -> String {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let file = write(dir.path(), "run.toml", text);
    let overrides: Vec<String> = overrides.iter().map(|&text| text.to_owned()).collect();
    let error = resolve(&[file], &overrides).expect_err("the configuration is wrong").to_string();
    error.replace(&format!("{}/", dir.path().display()), "")
}

#[test]
fn later_layers_win_and_are_remembered() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    write(dir.path(), "base.toml", "[train]\nsteps = 10\nbatch_size = 8\n");
    let run = write(
        dir.path(),
        "run.toml",
        "include = [\"base.toml\"]\nmethod = \"opd\"\n\n[train]\nsteps = 20\n",
    );
    let resolved =
        resolve(std::slice::from_ref(&run), &["optimizer.lr=0.5".to_owned()]).expect("it is right");
    assert_eq!(resolved.config.train.steps, 20);
    assert_eq!(resolved.config.train.batch_size, 8);
    assert_eq!(resolved.config.method, MethodName::Opd);
    assert_eq!(resolved.config.optimizer.lr, 0.5);
    assert_eq!(resolved.origin("train.steps"), Origin::File { path: run, line: 5 });
    assert_eq!(
        resolved.origin("train.batch_size"),
        Origin::File { path: dir.path().join("base.toml"), line: 3 }
    );
    assert_eq!(resolved.origin("optimizer.lr"), Origin::Override);
    assert_eq!(resolved.origin("rollout.batch_size"), Origin::Default);
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest_one() {
    assert_eq!(
        error_of("[train]\nstep = 3\n", &[]),
        "run.toml:2: unknown key `train.step`; did you mean `train.steps`?"
    );
    assert_eq!(
        error_of("", &["optimiser.lr=1"]),
        "--set: unknown key `optimiser.lr`; did you mean `optimizer`?"
    );
    // A key in the wrong section is found by its own name.
    assert_eq!(
        error_of("[train]\nweight_decay = 0.1\n", &[]),
        "run.toml:2: unknown key `train.weight_decay`; did you mean `optimizer.weight_decay`?"
    );
    assert_eq!(error_of("zzqx = 1\n", &[]), "run.toml:1: unknown key `zzqx`");
}

#[test]
fn a_value_of_the_wrong_kind_names_its_place() {
    let error = error_of("\n[rollout]\ntemperature = \"hot\"\n", &[]);
    assert!(error.starts_with("run.toml:3: `rollout.temperature`: invalid type"), "{error}");
    let error = error_of("method = \"lense\"\n", &[]);
    assert!(error.starts_with("run.toml:1: `method`: unknown variant `lense`"), "{error}");
    assert_eq!(
        error_of("train = 3\n", &[]),
        "run.toml:1: `train`: is a section, not a value; set one of the keys inside it"
    );
    let error = error_of("seeds = [1, \"two\"]\n", &[]);
    assert!(error.starts_with("run.toml:1: `seeds[1]`"), "{error}");
}

#[test]
fn values_out_of_range_are_refused() {
    let cases = [
        ("train.steps=0", "must be at least 1"),
        ("optimizer.lr=nan", "must be a positive number"),
        ("optimizer.beta2=1.0", "must be below 1"),
        ("eval.top_p=1.5", "must lie between 0 and 1"),
        ("refine.weight_cap=0.5", "must be at least 1"),
        ("locate.max_horizon=31", "must not pass task.turn_limit (30)"),
        ("locate.residence=1", "at least 2"),
        ("seeds=[]", "at least one seed"),
        ("seeds=[1,1]", "names a seed twice"),
        ("name=a/b", "plain folder name"),
        ("locate.proposals_per_episode=2", "only 1 is supported"),
    ];
    for (override_text, expected) in cases {
        let error = error_of("", &[override_text]);
        assert!(
            error.starts_with("--set: ") && error.contains(expected),
            "{override_text}: {error}"
        );
    }
    assert!(error_of("", &["train.steps"]).contains("expected key=value"));
    assert!(error_of("", &["=3"]).contains("expected key=value"));
    assert!(error_of("", &["a..b=3"]).contains("expected key=value"));
}

#[test]
fn broken_files_are_named_with_their_line() {
    let error = error_of("[train]\nsteps = = 3\n", &[]);
    assert!(error.starts_with("run.toml:2: "), "{error}");
    let missing = resolve(&[PathBuf::from("no/such/file.toml")], &[]).expect_err("it is missing");
    assert!(matches!(missing, ConfigError::Read { .. }), "{missing}");
    let dir = tempfile::tempdir().expect("a temporary folder");
    write(dir.path(), "a.toml", "include = [\"b.toml\"]\n");
    let b = write(dir.path(), "b.toml", "include = [\"a.toml\"]\n");
    let cycle = resolve(&[b], &[]).expect_err("the files include each other");
    assert!(matches!(cycle, ConfigError::IncludeCycle { .. }), "{cycle}");
    assert!(error_of("include = 3\n", &[]).contains("include must be a list of file names"));
}

#[test]
fn a_rendered_configuration_reads_back_as_itself() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let config = Config { name: "round \"trip\"".to_owned(), seeds: vec![7], ..Config::default() };
    let file = write(dir.path(), "again.toml", &render::to_toml(&config));
    let resolved = resolve(&[file], &[]).expect("what was written can be read");
    assert_eq!(resolved.config, config);
    let shown = render::lines(&resolved);
    let values = shown.iter().filter(|line| matches!(line, render::Line::Value { .. })).count();
    assert_eq!(values, resolved.origins.len(), "every value is shown once");
}

#[test]
fn overrides_take_toml_values_and_bare_words() {
    let overrides =
        ["task.benchmark=webshop", "task={turn_limit=15}", "seeds=[1, 2]", "student.path=a dir/x"];
    let overrides: Vec<String> = overrides.iter().map(|&text| text.to_owned()).collect();
    let config = resolve(&[], &overrides).expect("they are right").config;
    assert_eq!(config.task.benchmark, BenchmarkName::Webshop);
    assert_eq!(config.task.turn_limit, 15);
    assert_eq!(config.seeds, [1, 2]);
    assert_eq!(config.student.path, PathBuf::from("a dir/x"));
}

proptest::proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in ".{0,200}", override_text in ".{0,40}") {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let file = write(dir.path(), "any.toml", &text);
        let _ = resolve(&[file], &[override_text]);
    }
}
