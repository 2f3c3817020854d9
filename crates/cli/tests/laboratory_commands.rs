//! `lens quickstart`, `sweep`, `sft`, `estimate`, `bench loop`, `diagnose` and `lab` on tiny models.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

mod tiny;

use tiny::{build_models, sets, settings};

/// The models, made once.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    FOLDER
        .get_or_init(|| {
            let folder = tempfile::tempdir().expect("a temporary folder");
            build_models(folder.path());
            folder
        })
        .path()
}

fn run(command: &mut Command) -> (i32, String, String) {
    let output = command.output().expect("lens starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = output.status.code().expect("lens exits by itself");
    (code, text(&output.stdout), text(&output.stderr))
}

fn lens(verb: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lens"));
    command.arg(verb);
    command
}

fn path(name: &str) -> String {
    folder().join(name).display().to_string()
}

#[test]
fn a_sweep_prints_the_table_and_does_not_repeat_itself() {
    let sweep = |more: &[&str]| {
        let mut command = lens("sweep");
        command.args(settings(folder())).args(sets(&["name=swept", "train.steps=2"]));
        command.args(sets(more)).args(["--methods", "opd,lens", "--jobs", "2", "--limit", "3"]);
        command.args(["--format", "json"]);
        run(&mut command)
    };
    let (code, first, stderr) = sweep(&["seeds=[7,8]"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("4 of 4 runs"), "{stderr}");
    let table: serde_json::Value = serde_json::from_str(&first).expect("JSON");
    let rows = table["rows"].as_array().expect("rows");
    let methods: Vec<_> = rows.iter().map(|row| row["method"].as_str()).collect();
    assert_eq!(methods, [None, Some("opd"), Some("lens")], "before training comes first");
    assert!(rows.iter().all(|row| row["success_rate"].as_array().map(Vec::len) == Some(2)));

    let metrics = folder().join("swept-student-small-opd/seed-7/metrics.jsonl");
    let before = std::fs::metadata(&metrics).and_then(|file| file.modified()).expect("a file");
    let (code, again, stderr) = sweep(&["seeds=[7,8]"]);
    assert_eq!((code, again), (0, first), "{stderr}");
    let after = std::fs::metadata(&metrics).and_then(|file| file.modified()).expect("a file");
    assert_eq!(before, after, "a finished run is not repeated");

    let (code, more, stderr) = sweep(&["seeds=[7,8,9]"]);
    assert_eq!(code, 0, "{stderr}");
    let table: serde_json::Value = serde_json::from_str(&more).expect("JSON");
    let rows = table["rows"].as_array().expect("rows");
    assert!(rows.iter().all(|row| row["seeds"].as_array().map(Vec::len) == Some(3)), "{more}");
    let after = std::fs::metadata(&metrics).and_then(|file| file.modified()).expect("a file");
    assert_eq!(before, after, "more seeds do not repeat the first ones");

    let (code, _, stderr) = sweep(&["seeds=[7]", "optimizer.lr=2e-3"]);
    assert_eq!(code, 1);
    assert!(stderr.contains("another configuration"), "{stderr}");
}

#[test]
fn a_kept_result_stands_for_its_run_and_for_no_other() {
    let results = path("kept-results");
    let sweep = |name: &str, more: &[&str]| {
        let mut command = lens("sweep");
        command.args(settings(folder())).args(sets(&[name, "train.steps=2", "seeds=[7]"]));
        command.args(sets(more)).args(["--methods", "opd", "--limit", "2", "--results", &results]);
        command.args(["--variant", "still:method=opd,optimizer.lr=1e-9", "--format", "json"]);
        run(&mut command)
    };
    let (code, first, stderr) = sweep("name=kept", &[]);
    assert_eq!(code, 0, "{stderr}");
    let table: serde_json::Value = serde_json::from_str(&first).expect("JSON");
    let methods: Vec<_> =
        table["rows"].as_array().expect("rows").iter().map(|row| row["method"].as_str()).collect();
    assert_eq!(methods, [None, Some("opd"), Some("still")]);
    let files = ["before", "opd", "still"].map(|row| format!("kept-student-small-{row}"));
    for row in &files {
        let size = std::fs::metadata(Path::new(&results).join(row).join("seed-7.json"));
        assert!(size.expect("a result").len() < 4096, "results are small");
        std::fs::remove_dir_all(folder().join(row)).expect("the run's folder was there");
    }

    let (code, again, stderr) = sweep("name=kept", &[]);
    assert_eq!((code, again), (0, first), "the results stand for the runs: {stderr}");
    assert!(files.iter().all(|row| !folder().join(row).exists()), "nothing was trained again");

    let (code, _, stderr) = sweep("name=kept", &["optimizer.lr=2e-3"]);
    assert_eq!(code, 1);
    assert!(stderr.contains("seed-7.json is a result of another run: `optimizer.lr` was"));

    let file = Path::new(&results).join(&files[0]).join("seed-7.json");
    let text = std::fs::read_to_string(&file).expect("a result");
    let other: String = text.replacen("\"student\":\"", "\"student\":\"0", 1);
    std::fs::write(&file, other).expect("it is written");
    let (code, _, stderr) = sweep("name=kept", &[]);
    assert_eq!(code, 1);
    assert!(stderr.contains("the student was another model"), "{stderr}");
    std::fs::write(&file, "{").expect("it is written");
    let (code, _, stderr) = sweep("name=kept", &[]);
    assert!(code == 1 && stderr.contains("is not a result of a sweep"), "{stderr}");
}

#[test]
fn quickstart_compares_draws_and_reuses_what_is_there() {
    let out = path("quick");
    let quickstart = |more: &[&str]| {
        let mut command = lens("quickstart");
        command.args(["--tasks", "2", "--out", &out, "--models"]).arg(folder()).args(more);
        run(&mut command)
    };
    let (code, first, stderr) = quickstart(&["--steps", "2"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(!first.contains("reusing"), "{first}");
    let (code, stdout, stderr) = quickstart(&["--steps", "2", "--compare"]);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(stdout.matches("reusing the finished run in").count(), 1, "{stdout}");
    let table = |text: &str| -> Vec<String> {
        let rows = text.lines().filter(|line| line.starts_with("  valid_"));
        rows.map(str::to_owned).collect()
    };
    assert_eq!(table(&first).len(), 2, "{first}");
    assert_eq!(table(&stdout).len(), 4, "{stdout}");
    assert_eq!(table(&first), table(&stdout)[..2], "the records hold the same results");
    assert!(table(&first).iter().all(|row| row.contains('[')), "a rate has an interval: {first}");

    let (code, _, stderr) = quickstart(&["--steps", "3"]);
    assert_eq!(code, 1, "a run of 2 steps is not one of 3: {stderr}");
    assert!(stderr.contains("`train.steps` is 2 there and 3 here"), "{stderr}");
    assert!(stderr.contains("hint: start over with --force"), "{stderr}");
    assert_eq!(
        stdout.matches("what it learned, on 2 games of valid_unseen").count(),
        2,
        "{stdout}"
    );
    for part in ["lens", "opd", "before", "after", "horizon:", "kind of task", "mistakes where"] {
        assert!(stdout.contains(part), "no {part} in:\n{stdout}");
    }
    for next in ["eval", "play"] {
        let command = format!("it: {} {next} ", env!("CARGO_BIN_EXE_lens"));
        assert!(stdout.contains(&command), "no {command} in:\n{stdout}");
    }
    let plot = std::fs::read_to_string(Path::new(&out).join("quickstart.svg")).expect("a plot");
    assert_eq!(plot.matches("<polyline").count(), 4, "{plot}");
    assert!(!plot.contains("points=\"\""), "every curve has points: {plot}");
    assert!(plot.contains(">100</text>"), "percent goes to 100: {plot}");
    assert_eq!(plot.matches("<polygon").count(), 4, "an interval around every curve: {plot}");
}

#[test]
fn demonstrations_are_learned_from_a_file_or_an_expert() {
    let data = folder().join("chats.jsonl");
    let chat = |answer: &str| {
        let messages = serde_json::json!([
            { "role": "user", "content": "Where is the apple?" },
            { "role": "assistant", "content": answer },
        ]);
        serde_json::json!({ "messages": messages }).to_string()
    };
    std::fs::write(&data, [chat("On the table."), chat("On the table.")].join("\n"))
        .expect("a file");
    let loss = |stdout: &str| -> f64 {
        let rest = stdout.split("last loss ").nth(1).expect("a loss");
        rest.split(';').next().and_then(|text| text.parse().ok()).expect("a number")
    };
    let sft = |out: &str, steps: &str, more: &[&str]| {
        let mut command = lens("sft");
        command.args([&path("student-small"), &path(out), "--lr", "1e-2", "--steps", steps]);
        run(command.args(more))
    };
    let data = data.display().to_string();
    let (code, short, stderr) = sft("sft-1", "1", &["--data", &data]);
    assert_eq!(code, 0, "{stderr}");
    let (_, long, _) = sft("sft-30", "30", &["--data", &data]);
    assert!(loss(&long) < 0.5 * loss(&short), "{short} {long}");
    let (code, stdout, stderr) = sft("sft-expert", "2", &["--tasks", "3"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("examples"), "{stdout}");

    let (code, _, stderr) = sft("sft-30", "1", &["--data", &data]);
    assert_eq!(code, 1);
    assert!(stderr.contains("already exists"), "{stderr}");
    let broken = folder().join("broken.jsonl");
    let ours = serde_json::json!({ "messages": [{ "role": "user", "content": "x" }] }).to_string();
    for (text, complaint) in [("{\"messages\": 3}", "invalid type"), (ours.as_str(), "assistant")] {
        std::fs::write(&broken, format!("{}\n{text}\n", chat("x"))).expect("a file");
        let (code, _, stderr) = sft("sft-no", "1", &["--data", &broken.display().to_string()]);
        assert_eq!(code, 1, "{stderr}");
        assert!(stderr.contains("broken.jsonl:2") && stderr.contains(complaint), "{stderr}");
    }
}

#[test]
fn an_estimate_needs_no_run_and_tells_of_missing_models() {
    let mut command = lens("estimate");
    let (code, stdout, stderr) = run(command.args(settings(folder())).arg("--json"));
    assert_eq!(code, 0, "{stderr}");
    let costs: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
    let costs = &costs["per_seed"];
    assert_eq!(costs["steps"], 250);
    assert!(costs["prompt_tokens"].as_u64() > Some(50), "{costs}");
    assert!(costs["hours"].as_f64() > Some(0.0), "{costs}");
    let (code, _, stderr) = run(lens("estimate").args(sets(&["student.path=nowhere"])));
    assert_eq!(code, 1);
    assert!(stderr.contains("nowhere") && stderr.contains("student.path"), "{stderr}");
}

#[test]
fn a_big_run_is_estimated_before_its_weights_are_there() {
    let bare = folder().join("bare");
    std::fs::create_dir_all(&bare).expect("a folder");
    std::fs::copy(folder().join("student-small/config.json"), bare.join("config.json"))
        .expect("a file");
    let mut command = lens("estimate");
    command.args(settings(folder()));
    let model = bare.display();
    command.args(sets(&[&format!("student.path={model}"), &format!("teacher.path={model}")]));
    let (code, stdout, stderr) = run(&mut command);
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("no tokenizer.json"), "{stderr}");
    assert!(stdout.contains("for each of 1 seed:"), "{stdout}");
    let (code, _, stderr) = run(lens("config")
        .args(["check", "--files"])
        .args(sets(&[&format!("student.path={model}"), &format!("teacher.path={model}")])));
    assert_eq!(code, 1, "the weights are missing: {stderr}");
    assert!(stderr.contains("bare"), "{stderr}");
    let mut command = lens("config");
    let (code, stdout, stderr) = run(command.args(["check", "--files"]).args(settings(folder())));
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.starts_with("ok: "), "{stdout}");
}

#[test]
fn the_loop_is_taken_apart_by_stage() {
    let mut command = lens("bench");
    command.args(["loop", "--batches", "1", "--horizon", "3", "--json"]);
    let (code, stdout, stderr) = run(command.args(settings(folder())));
    assert_eq!(code, 0, "{stderr}");
    let report: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
    let (opd, lens) = (&report["opd"], &report["lens"]);
    assert_eq!(opd["forks"], 0);
    assert_eq!(opd["turns"], lens["turns"], "the same episodes at the same horizon");
    assert!(lens["forks"].as_u64() > Some(0), "{report}");
    for stage in ["generate", "score", "train"] {
        assert!(opd["seconds"][stage].as_f64() > Some(0.0), "{stage}: {report}");
    }
    assert!(lens["seconds"]["fork: generate"].as_f64() > Some(0.0), "{report}");
}

#[test]
fn a_diagnosis_is_printed_drawn_and_refused_with_reasons() {
    let diagnose = |more: &[&str], options: &[&str]| {
        let mut command = lens("diagnose");
        command.args(settings(folder())).args(sets(more)).args(["--batches", "1"]).args(options);
        run(&mut command)
    };
    let plot = path("support.svg");
    let (code, text, stderr) = diagnose(&[], &["--json", "--plot", &plot]);
    assert_eq!(code, 0, "{stderr}");
    let all: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(all["students"][0]["findings"]["episodes"], 4);
    assert!(std::fs::read_to_string(&plot).is_ok_and(|svg| svg.starts_with("<svg")));
    // A reader that has gone away does not keep the plot from being written.
    let gone = path("gone.svg");
    let mut command = lens("diagnose");
    command.args(settings(folder())).args(["--batches", "1", "--plot", &gone]);
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("lens runs");
    drop(child.stdout.take());
    child.wait().expect("lens ends");
    assert!(Path::new(&gone).exists(), "files come before text");
    let (code, same, stderr) = diagnose(&["method=opd"], &["--json"]);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(same, text, "it forks as LENS-OPD does, whatever the method");
    let (code, _, stderr) = diagnose(&["task.kinds=[\"juggle\"]"], &[]);
    assert!(code == 1 && stderr.contains("task.kinds") && stderr.contains("juggle"), "{stderr}");
}

#[test]
fn a_run_is_diagnosed_where_its_figures_find_it() {
    let mut command = lens("train");
    command.args(settings(folder())).args(sets(&["name=examined", "train.steps=1"]));
    let (code, _, stderr) = run(&mut command);
    assert_eq!(code, 0, "{stderr}");
    let seed = path("examined/seed-7");
    let (code, _, stderr) = run(lens("diagnose").args(["--run", &seed, "--batches", "1"]));
    assert_eq!(code, 0, "{stderr}");
    let text = std::fs::read_to_string(Path::new(&seed).join("diagnose.json")).expect("a file");
    let all: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let student = all["students"][0]["student"].as_str().expect("a student");
    assert!(student.ends_with("step-000001/model"), "{student}");
    let figures = path("examined/figures");
    let (code, stdout, stderr) =
        run(lens("figures").args([&seed, "--out", &figures, "--format", "png,csv"]));
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("response.png"), "{stdout}");
    let (code, _, stderr) = run(lens("diagnose").args(["--run", &path("nowhere")]));
    assert!(code == 1 && stderr.contains("holds no run"), "{stderr}");
}

#[test]
fn an_examination_counts_every_turn_once() {
    let examine = |more: &[&str]| {
        let mut command = lens("lab");
        command.args(["examine", &path("teacher"), "--games", "3"]).args(more);
        run(&mut command)
    };
    let (code, stdout, stderr) = examine(&["--json"]);
    assert_eq!(code, 0, "{stderr}");
    let counts: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!((&counts["games"], &counts["split"]), (&3.into(), &"valid_unseen".into()));
    let verbs = counts["verbs"].as_object().expect("verbs");
    assert!(verbs.contains_key("go"), "every game begins with a walk: {counts}");
    for (verb, one) in verbs {
        let instead = one["instead"].as_object().expect("counts").values();
        let instead: u64 = instead.filter_map(serde_json::Value::as_u64).sum();
        let agreed = one["agreed"].as_u64().expect("a count");
        assert_eq!(Some(agreed + instead), one["turns"].as_u64(), "{verb}");
    }

    let (code, stdout, _) = examine(&[]);
    assert_eq!(code, 0);
    assert!(stdout.starts_with("0 of 3 games of valid_unseen solved"), "{stdout}");
    assert!(!stdout.contains("critique"), "{stdout}");

    // Without a teacher there is nothing to say about critiques; whether the model follows the expert's can be said.
    assert_eq!(counts.get("critiques"), None, "{counts}");
    let instructions = &counts["instructions"];
    let plans = instructions["wrong_plans"].as_u64().expect("a count");
    assert!(plans > 0 && instructions["followed"].as_u64() <= Some(plans), "{instructions}");

    let critiques = |teacher: &str| {
        let (code, stdout, stderr) = examine(&["--json", "--teacher", teacher]);
        assert_eq!(code, 0, "{stderr}");
        let counts: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
        assert_eq!(&counts["instructions"], instructions, "the model is the same");
        let critiques = &counts["critiques"];
        assert_eq!(critiques["wrong_plans"].as_u64(), Some(plans), "{critiques}");
        critiques["named"].as_u64().expect("a count")
    };
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../../assets/lab/teacher");
    assert!(critiques(shipped) > critiques(&path("teacher")));
    let (_, stdout, _) = examine(&["--teacher", &path("teacher")]);
    assert!(stdout.contains("the teacher's critique names the right action"), "{stdout}");
    let (code, _, stderr) = examine(&["--teacher", "nowhere"]);
    assert!(code == 1 && stderr.contains("nowhere"), "{stderr}");
    let (code, _, stderr) = examine(&["--benchmark", "openenv"]);
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("no expert"), "{stderr}");
}

/// A recipe of one tiny model.
fn recipe(steps: &str) -> String {
    let shipped = run(lens("lab").arg("recipe")).1;
    let (head, _) = shipped.split_once("[[model]]").expect("models");
    let head = head.replace("extra_sets = 1", "extra_sets = 0\nmax_per_kind = 2");
    format!(
        r#"{head}[[model]]
name = "small"
family = "qwen3"
hidden_size = 32
intermediate_size = 64
layers = 2
heads = 2
kv_heads = 1
head_dim = 16
rope_theta = 1e6
max_position = 4096
init_std = 0.02

[[model.stage]]
mixture = ["exercise"]
{steps}
batch_size = 4
lr = 1e-3

[[model.stage]]
mixture = ["act", "critique"]
{steps}
batch_size = 4
lr = 1e-3
"#
    )
}

#[test]
fn a_build_follows_a_recipe_and_reuses_its_own_tokenizer_only() {
    let out = tempfile::tempdir().expect("a temporary folder");
    let file = out.path().join("recipe.toml");
    std::fs::write(&file, recipe("steps = 2")).expect("it is written");
    let build = |more: &[&str]| {
        let mut command = lens("lab");
        command.arg("build").arg("--recipe").arg(&file).arg("--out").arg(out.path().join("models"));
        run(command.args(more))
    };
    let (code, stdout, stderr) = build(&["--dagger-games", "2"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("small 1/2") && stdout.contains("small 2/2"), "{stdout}");
    assert!(stdout.contains("of 2 games solved"), "{stdout}");
    let model = out.path().join("models/small");
    let (code, _, stderr) = run(lens("model").arg("inspect").arg(&model));
    assert_eq!(code, 0, "{stderr}");

    let (code, stdout, stderr) = build(&["--skip-stages", "1"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(!stdout.contains("small 1/2") && stdout.contains("small 2/2"), "{stdout}");

    let (code, _, stderr) = build(&["--seed", "2"]);
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("seed = 1 instead of 2") && stderr.contains("hint: "), "{stderr}");
    std::fs::remove_file(out.path().join("models/tokenizer-origin.json")).expect("a record");
    let (code, _, stderr) = build(&[]);
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("tokenizer-origin.json"), "{stderr}");

    let (code, _, stderr) = build(&["--only", "large"]);
    assert!(code == 1 && stderr.contains("`large`") && stderr.contains("small"), "{stderr}");
    std::fs::write(&file, recipe("stepz = 2")).expect("it is written");
    let (code, _, stderr) = build(&[]);
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("recipe.toml:") && stderr.contains("`stepz`"), "{stderr}");
}

#[test]
fn the_schema_of_recipes_describes_every_key() {
    let (code, stdout, stderr) = run(lens("lab").args(["recipe", "--schema"]));
    assert_eq!(code, 0, "{stderr}");
    let schema: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
    let stage = &schema["$defs"]["Stage"]["properties"];
    for key in ["mixture", "steps", "batch_size", "lr", "prompt_weight", "dagger_games"] {
        assert!(stage[key]["description"].is_string(), "{key}: {stage}");
    }
}
