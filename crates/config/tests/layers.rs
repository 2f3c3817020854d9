//! Layers, provenance and the errors people meet.

use std::path::{Path, PathBuf};

use lens_config::{Config, ConfigError, Origin, render, resolve, resolve_text};
use lens_opd::methods::MethodName;

fn write(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, text).expect("the temporary folder is writable");
    path
}

fn error_of(text: &str, overrides: &[&str]) -> String {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let file = write(dir.path(), "run.toml", text);
    let overrides: Vec<String> = overrides.iter().map(|&text| text.to_owned()).collect();
    let error = resolve(&[file], &overrides).expect_err("the configuration is wrong");
    let error = match error.hint() {
        Some(hint) => format!("{error}; {hint}"),
        None => error.to_string(),
    };
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
        "--set: unknown key `optimiser.lr`; did you mean `optimizer.lr`?"
    );
    // A key in the wrong section is found by its own name.
    assert_eq!(
        error_of("[train]\nweight_decay = 0.1\n", &[]),
        "run.toml:2: unknown key `train.weight_decay`; did you mean `optimizer.weight_decay`?"
    );
    assert_eq!(error_of("zzqx = 1\n", &[]), "run.toml:1: unknown key `zzqx`");
}

#[test]
fn a_misspelled_section_is_mended_with_its_key() {
    assert_eq!(
        error_of("[trian]\nsteps = 3\n", &[]),
        "run.toml:2: unknown key `trian.steps`; did you mean `train.steps`?"
    );
}

#[test]
fn a_configuration_at_hand_as_text_is_read_like_a_file() {
    let name = Path::new("built-in.toml");
    let text = "[train]\nsteps = 3\n";
    let overrides = ["train.batch_size=8".to_owned()];
    let resolved = resolve_text(name, text, &overrides).expect("it is sound");
    assert_eq!((resolved.config.train.steps, resolved.config.train.batch_size), (3, 8));
    let origin = Origin::File { path: name.to_owned(), line: 2 };
    assert_eq!(resolved.origin("train.steps"), origin);
    let error = resolve_text(name, "[train]\nstep = 3\n", &[]).expect_err("it has a bad key");
    assert!(error.to_string().starts_with("built-in.toml:2: unknown key"), "{error}");
}

#[test]
fn a_value_of_the_wrong_kind_names_its_place() {
    let error = error_of("\n[rollout]\ntemperature = \"hot\"\n", &[]);
    assert!(error.starts_with("run.toml:3: `rollout.temperature`: invalid type"), "{error}");
    let error = error_of("method = \"lense\"\n", &[]);
    assert!(error.starts_with("run.toml:1: `method`: unknown value `lense`"), "{error}");
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
        ("train.steps=0", "must be between 1 and 1000000000, not 0"),
        ("optimizer.lr=nan", "must be above 0 and at most 1000, not NaN"),
        ("optimizer.beta2=1.0", "must be at least 0 and below 1"),
        ("eval.top_p=1.5", "must be above 0 and at most 1"),
        ("refine.weight_cap=0.5", "must be between 1 and 1000000"),
        ("locate.max_horizon=31", "must be 0 or at most the turn limit, 30"),
        ("locate.residence=1", "must be at least locate.pace_max, 1.5"),
        ("loss.clip=1.5", "must be above 0 and below 1"),
        ("loss.kl_coef=0", "must be above 0"),
        ("locate.proposals_per_episode=0", "must be between 1 and 1000"),
        ("threads=100000000", "must be between 0 and 4096"),
        ("rollout.batch_size=9223372036854775807", "must be between 1 and 100000"),
        ("seeds=[]", "at least one seed"),
        ("seeds=[1,1]", "names a seed twice"),
        ("name=a/b", "plain folder name"),
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
    assert_eq!(config.task.benchmark, "webshop");
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

#[test]
fn files_of_earlier_releases_still_load_and_say_what_to_change() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let text = "[tcod]\ngrowth = 7\n[validate]\nhorizon = 4\n[cluster]\nnodes = 2\ngpu = \"any\"\n";
    let file = write(dir.path(), "old.toml", text);
    let resolved = resolve(&[file], &[]).expect("an earlier release wrote it");
    assert_eq!(resolved.config.methods.tcod.residence, 7);
    assert_eq!(resolved.config.methods.validate.continuation_turns, 4);
    assert_eq!(resolved.notes.len(), 4);
    assert!(resolved.notes[0].contains("old.toml:2: `tcod.growth` is now `tcod.residence`"));
    assert!(resolved.notes[2].contains("`cluster.nodes` is ignored"), "{:?}", resolved.notes);
}

#[test]
fn a_wrong_value_in_a_methods_section_names_its_place() {
    let error = error_of("[locate]\nresidence = \"five\"\n", &[]);
    assert_eq!(
        error,
        "run.toml:2: `locate.residence`: invalid type: string \"five\", expected a whole number, 0 or above"
    );
    let error = error_of("", &["locate.clock=x"]);
    assert!(error.starts_with("--set: `locate.clock`: unknown value `x`"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn defaults_follow_the_benchmark() {
    let resolved = resolve(&[], &["task.benchmark=webshop".to_owned()]).expect("it is right");
    let task = &resolved.config.task;
    assert_eq!((task.turn_limit, task.eval_splits.as_slice()), (15, &["test".to_owned()][..]));
    assert_eq!(resolved.origin("task.turn_limit"), Origin::Benchmark("webshop".to_owned()));
    let set = ["task.benchmark=webshop", "task.turn_limit=9"].map(str::to_owned);
    let resolved = resolve(&[], &set).expect("it is right");
    assert_eq!(resolved.config.task.turn_limit, 9, "what is set stays");
    let error = error_of("[task]\nbenchmark = \"webshop2\"\n", &[]);
    assert!(error.contains("`task.benchmark`: must be one of alfworld, webshop"), "{error}");
    let error = error_of("[task]\ngoals = \"good\"\n", &[]);
    assert!(
        error.contains("run.toml:2: `task.goals`: must be \"synthetic\" or \"human\""),
        "{error}"
    );
}

#[test]
fn every_ablation_is_a_key_away() {
    use lens_opd::locate::Clock;
    use lens_opd::locate::proposal::Proposal;
    use lens_opd::validate::fork::HintPrompt;
    let with = |text: &str| resolve(&[], &[text.to_owned()]).expect("it is right").config.methods;
    assert_eq!(with("locate.clock=fixed-f2b").locate.clock, Clock::FixedF2b);
    assert_eq!(with("locate.proposal=last-turn").locate.proposal, Proposal::LastTurn);
    assert!(!with("refine.internalize=false").refine.internalize);
    assert!(!with("refine.focus=false").refine.focus);
    let reconsider = with("validate.hint_prompt=reconsideration").validate.hint_prompt;
    assert_eq!(reconsider, HintPrompt::Reconsideration);
    for &method in MethodName::ALL {
        let config = resolve(&[], &[format!("method={method}")]).expect("it is right").config;
        assert_eq!(config.method, method);
    }
}
