//! `lens generate`, `lens score`, `lens model inspect --compare` and `lens bench engine` on small models.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

fn run(arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lens"));
    let Output { status, stdout, stderr } =
        command.args(arguments).env_remove("LENS_PYTHON").output().expect("lens starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is UTF-8");
    (status.code().expect("lens exits by itself"), text(stdout), text(stderr))
}

fn json(arguments: &[&str]) -> Value {
    let (code, stdout, stderr) = run(arguments);
    assert_eq!(code, 0, "{stderr}");
    serde_json::from_str(&stdout).expect("JSON")
}

fn fixture(family: &str) -> String {
    let fixtures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../lm/tests/fixtures");
    fixtures.join(family).to_string_lossy().into_owned()
}

#[test]
fn the_same_seed_gives_the_same_text_and_json_tells_more() {
    let model = fixture("qwen3");
    let with = |seed: &str, more: &[&str]| {
        let mut arguments =
            vec!["generate", &model, "Hello there", "--seed", seed, "--max-new-tokens", "12"];
        arguments.extend(more);
        run(&arguments)
    };
    let (code, first, stderr) = with("1", &[]);
    assert_eq!(code, 0, "{stderr}");
    assert!(first.ends_with('\n'));
    assert_eq!(with("1", &[]).1, first);
    assert_ne!(with("2", &[]).1, first);

    let detail: Value = serde_json::from_str(&with("1", &["--json"]).1).expect("JSON");
    let tokens = detail["tokens"].as_array().expect("tokens").len();
    assert!((1..=12).contains(&tokens));
    assert_eq!(detail["logprobs"].as_array().expect("logprobs").len(), tokens);
    assert_eq!(
        format!("{}\n", detail["text"].as_str().expect("text")),
        first,
        "streamed or at once"
    );
}

#[test]
fn a_chat_prompt_goes_through_the_template() {
    let model = fixture("qwen2");
    let arguments = |more: &[&'static str]| {
        let mut all = vec!["generate", &model, "Hello", "--max-new-tokens", "2", "--json"];
        all.extend(more);
        json(&all)["prompt_tokens"].as_array().expect("tokens").len()
    };
    let (plain, chat) = (arguments(&[]), arguments(&["--chat"]));
    assert!(chat > plain);
    assert!(arguments(&["--chat", "--system", "Be brief."]) > chat);
}

#[test]
fn a_response_is_scored_token_by_token() {
    let model = fixture("llama");
    let base = ["score", &model, "--prompt", "Hello", "--response", " there you are"];
    let detail = json(&[&base[..], &["--json", "--top-k", "3"]].concat());
    let positions = detail["positions"].as_array().expect("positions");
    let total: f64 = positions.iter().filter_map(|position| position["logprob"].as_f64()).sum();
    assert!((detail["logprob"].as_f64().expect("total") - total).abs() < 1e-4);
    for position in positions {
        let top = position["top"].as_array().expect("top");
        assert_eq!(top.len(), 3);
        assert_eq!(top[0], position["top1"]);
    }
    let (code, text, _) = run(&base);
    assert_eq!(code, 0);
    assert!(
        text.lines().count() == positions.len() + 2,
        "a heading, a line a token, a sum:\n{text}"
    );
}

#[test]
fn a_teacher_adds_the_divergence() {
    let model = fixture("qwen3");
    let base = ["score", &model, "--prompt", "Hello", "--response", " there", "--teacher"];
    let same = json(&[&base[..], &[&model, "--json"]].concat());
    assert_eq!(same["mean_kl"], 0.0, "a model does not diverge from itself");
    let other = fixture("qwen2");
    let (code, text, stderr) = run(&[&base[..], &[&other]].concat());
    assert_eq!(code, 0, "the fixtures share a tokenizer: {stderr}");
    assert!(text.contains("teacher's choice") && text.contains("mean of"), "{text}");
}

#[test]
fn what_rounding_costs_is_shown() {
    let model = fixture("qwen3");
    let detail = json(&["model", "inspect", &model, "--compare", "--json"]);
    let rows = detail["rounding"].as_array().expect("rounding");
    let formats: Vec<&str> = rows.iter().filter_map(|row| row["format"].as_str()).collect();
    assert_eq!(formats, ["bf16", "bf16-dot", "int8"]);
    for row in rows {
        let kl = row["mean_kl"].as_f64().expect("a number");
        assert!(kl > 0.0 && kl < 0.1, "{row}");
        assert!(row["same_top1"].as_f64().expect("a number") > 0.8, "{row}");
    }
    let (_, text, _) = run(&["model", "inspect", &model, "--compare"]);
    assert!(text.contains("as bf16") && text.contains("as int8"), "{text}");
}

#[test]
fn bad_calls_exit_1_and_say_why() {
    let model = fixture("qwen3");
    let refused = |arguments: &[&str]| {
        let (code, _, stderr) = run(arguments);
        assert_eq!(code, 1, "{stderr}");
        stderr
    };
    assert!(refused(&["generate", &model, ""]).contains("prompt is empty"));
    assert!(refused(&["generate", "/nowhere", "x"]).contains("/nowhere"));
    assert!(refused(&["generate", &model, "x", "--temperature", "-1"]).contains("temperature"));
    assert!(
        refused(&["generate", &model, "x", "--weights", "int4"])
            .contains("f32, bf16, bf16-dot, int8")
    );
    let long = "word ".repeat(2000);
    assert!(refused(&["generate", &model, &long]).contains("context of 256"));
    assert!(refused(&["generate", &model, "x", "--system", "y"]).contains("--chat"));
    assert!(refused(&["bench", "engine", "--shape", "huge"]).contains("laboratory"));
}

#[test]
fn the_benchmark_runs_without_peers_and_says_so() {
    let base = ["bench", "engine", "--work", "decode", "--shape", "laboratory"];
    let base = [&base[..], &["--rounds", "1", "--repeats", "1"]].concat();
    let (code, text, stderr) = run(&base);
    assert_eq!(code, 0, "{stderr}");
    assert!(text.contains("no peers") && text.contains("laboratory"), "{text}");
    assert!(!text.contains("goal") && !text.contains("missed"), "measures, no goals: {text}");
    let detail = json(&[&base[..], &["--json"]].concat());
    let row = &detail["rows"][0];
    assert!(row["ours"]["tokens_per_second"].as_f64().expect("a number") > 0.0, "{detail}");
    assert_eq!(row["peers"].as_array().expect("a list").len(), 0);
}
