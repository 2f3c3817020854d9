//! `lens model` on the committed checkpoints.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn run(arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_lens")).args(arguments).output().expect("lens starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is UTF-8");
    (status.code().expect("lens exits by itself"), text(stdout), text(stderr))
}

fn fixture(name: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../lm/tests/fixtures");
    root.join(name).to_string_lossy().into_owned()
}

fn inside(folder: &Path, name: &str) -> String {
    folder.join(name).to_string_lossy().into_owned()
}

#[test]
fn inspect_shows_shape_tokenizer_and_memory() {
    let (code, stdout, stderr) = run(&["model", "inspect", &fixture("qwen3"), "--check"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    for words in [
        "Qwen3",
        "parameters     22,224",
        "4 query, 2 key/value, each 12 wide",
        "160 rows: 150 tokens and 10 of padding",
        "chat_template.jinja, thinking can be switched off",
        "<|im_end|> (2)",
        "all 22,224 values are finite",
        "model.layers.*.self_attn.q_norm.weight",
        "2 times",
    ] {
        assert!(stdout.contains(words), "{words:?} is missing from:\n{stdout}");
    }
    let (_, stdout, _) = run(&["model", "inspect", &fixture("gguf/tiny.gguf"), "--tensors"]);
    assert!(stdout.contains("blk.0.attn_q.weight") && stdout.contains("Q4_1"), "{stdout}");
}

#[test]
fn inspect_prints_json_for_scripts() {
    let (code, stdout, _) = run(&["model", "inspect", &fixture("llama"), "--json", "--tensors"]);
    assert_eq!(code, 0);
    let facts: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!(facts["config"]["family"], "llama");
    assert_eq!(facts["config"]["rope_scaling"]["Llama3"]["factor"], 8.0);
    assert_eq!(facts["tokenizer"]["tokens"], 150);
    assert_eq!(
        facts["memory_bytes"]["weights_f32"],
        facts["parameters"].as_u64().expect("a number") * 4
    );
    assert_eq!(facts["tensors"].as_array().map(Vec::len), Some(29));
}

#[test]
fn convert_changes_the_type_and_imports_gguf() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let target = inside(folder.path(), "half");
    let (code, stdout, stderr) =
        run(&["model", "convert", &fixture("qwen3"), &target, "--dtype", "bf16"]);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    assert!(stdout.contains("22,224 parameters in bf16"), "{stdout}");
    let (_, stdout, _) = run(&["model", "inspect", &target]);
    assert!(stdout.contains("bf16 in 1 file"), "{stdout}");

    let (code, _, stderr) = run(&["model", "convert", &fixture("llama"), &target]);
    assert_eq!(code, 1);
    assert!(stderr.contains("--force"), "{stderr}");
    let (code, ..) = run(&["model", "convert", &fixture("llama"), &target, "--force"]);
    assert_eq!(code, 0);
    let (code, _, stderr) = run(&["model", "convert", &target, &target, "--force"]);
    assert_eq!(code, 1, "{stderr}");

    let target = inside(folder.path(), "imported");
    let (code, _, stderr) = run(&["model", "convert", &fixture("gguf/tiny.gguf"), &target]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let (_, stdout, _) = run(&["model", "inspect", &target, "--check"]);
    assert!(
        stdout.contains("Llama") && stdout.contains("150 tokens and 10 of padding"),
        "{stdout}"
    );
}

#[test]
fn init_makes_a_model_that_loads_and_depends_on_the_seed_only() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let spec = inside(folder.path(), "spec.toml");
    let text = "family = 'qwen2'\nhidden_size = 16\nintermediate_size = 24\nlayers = 1\nheads = 2\nkv_heads = 1\nseed = 3\n";
    std::fs::write(&spec, text).expect("written");
    let make = |name: &str, more: &[&str]| {
        let (target, tokenizer) = (inside(folder.path(), name), fixture("qwen3"));
        let mut arguments = vec!["model", "init", &spec, &target, "--tokenizer", &tokenizer];
        arguments.extend(more);
        let (code, _, stderr) = run(&arguments);
        assert_eq!((code, stderr.as_str()), (0, ""));
        std::fs::read(folder.path().join(name).join("model.safetensors")).expect("written")
    };
    let first = make("a", &[]);
    assert_eq!(first, make("b", &[]));
    assert_ne!(first, make("c", &["--seed", "4"]));
    let (code, stdout, _) = run(&["model", "inspect", &inside(folder.path(), "a"), "--check"]);
    assert_eq!(code, 0);
    assert!(stdout.contains("192 rows: 150 tokens and 42 of padding"), "{stdout}");

    std::fs::write(&spec, text.replace("layers", "layer")).expect("written");
    let (code, _, stderr) = run(&["model", "init", &spec, &inside(folder.path(), "d")]);
    assert_eq!(code, 1);
    assert!(stderr.contains("did you mean `layers`?"), "{stderr}");
}

#[test]
fn what_is_not_a_model_is_an_error_with_advice() {
    let (code, _, stderr) = run(&["model", "inspect", "no-such-folder"]);
    assert_eq!(code, 1);
    assert!(stderr.contains("a model is a directory with config.json"), "{stderr}");
    let (code, _, stderr) = run(&["model", "inspect", &fixture("make_gguf.py")]);
    assert_eq!(code, 1);
    assert!(stderr.contains("not a GGUF file"), "{stderr}");
}
