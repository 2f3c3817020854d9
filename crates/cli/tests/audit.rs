//! `lens audit` and `lens sweep --plan` on tiny models, and what common draws do to the gate of a real engine.

mod tiny;

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use lens_records::RunFolder;
use lens_records::episodes::BranchTurn;
use lens_records::folder::collect;
use serde_json::Value;
use tiny::{build_models, sets, settings};

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
    command.arg(verb).args(settings(folder()));
    command
}

#[test]
fn an_audit_reports_every_gate_and_takes_up_what_is_done() {
    let out = folder().join("audited");
    let audit = |more: &[&str]| {
        let mut command = lens("audit");
        command.args(["--forks", "2", "--episodes", "4", "--continuations", "2", "--seed", "7"]);
        command.arg("--out").arg(&out).args(more);
        run(&mut command)
    };
    let (code, text, stderr) = audit(&[]);
    assert_eq!(code, 0, "{stderr}");
    assert!(text.contains("gate: common, 4 pairs") && text.contains("top-kl"), "{text}");
    let lines = std::fs::read_to_string(out.join("audit.jsonl")).expect("lines");
    let (code, again, stderr) = audit(&["--json"]);
    assert_eq!(code, 0, "{stderr}");
    let report: Value = serde_json::from_str(&again).expect("JSON");
    assert_eq!(report["gates"].as_array().map(Vec::len), Some(60), "six gates, ten values");
    let kept = std::fs::read_to_string(out.join("audit.jsonl")).expect("lines");
    assert!(lines == kept && kept.lines().count() > 4, "forks that are done are kept");
    let student = folder().join("student-small");
    let (code, text, stderr) = audit(&["--after", &student.display().to_string()]);
    assert_eq!(code, 0, "{stderr}");
    // The same student draws the same, so nothing was gained.
    assert!(text.contains("gained without it +0.0 [+0.0, +0.0]"), "{text}");
    let (code, _, stderr) = audit(&["--set", "validate.pairs=2"]);
    assert_eq!(code, 1);
    assert!(stderr.contains("other settings") && stderr.contains("--out"), "{stderr}");
}

#[test]
fn equal_fork_turns_have_gain_exactly_zero_with_common_draws_on_the_native_engine() {
    let mut command = lens("train");
    command.args(sets(&["name=coupled", "validate.coupling=common"]));
    // Nearly greedy, so that a hint often changes nothing.
    command.args(sets(&["train.steps=4", "method=lens", "rollout.temperature=0.05"]));
    let (code, _, stderr) = run(&mut command);
    assert_eq!(code, 0, "{stderr}");
    let (mut same, mut compared) = (0, 0);
    let run = RunFolder::open(&folder().join("coupled/seed-7")).expect("a run");
    for batch in run.episode_batches() {
        let episodes = collect(run.episodes(batch).expect("episodes")).0;
        for fork in episodes.iter().flat_map(|episode| &episode.forks) {
            let repeats = fork.repeats.iter().map(|pair| (&pair.base, &pair.guided));
            let mut pairs = std::iter::once((&fork.base, &fork.guided)).chain(repeats);
            let first = |turns: &[BranchTurn]| turns.first().map(|turn| turn.tokens.ids.clone());
            let equal = pairs.all(|(base, guided)| first(base) == first(guided));
            let verdict = fork.record.as_ref().expect("it was judged").verdict;
            let Some(gain) = verdict.gain else { continue };
            compared += 1;
            if equal {
                assert_eq!(gain.to_bits(), 0_f64.to_bits(), "turn {}", fork.turn);
                assert!(!verdict.accepted);
                same += 1;
            }
        }
    }
    assert!(same > 0, "none of {compared} forks has equal fork turns: the test shows nothing");
}

#[test]
fn a_plan_is_made_without_training_and_from_finished_runs() {
    let plan = || {
        let mut command = lens("sweep");
        command.args(sets(&["name=planned", "train.steps=1", "seeds=[7,8]"]));
        command.args(["--methods", "opd,lens-plus", "--limit", "3"]);
        command
    };
    let (code, text, stderr) = run(plan().args(["--plan", "--difference", "5"]));
    assert_eq!(code, 0, "{stderr}");
    assert!(text.contains("a difference of 5 points") && text.contains("assumed"), "{text}");
    assert!(!folder().join("planned-student-small-opd").exists(), "nothing is trained");
    let (code, text, stderr) = run(&mut plan());
    assert_eq!(code, 0, "{stderr}");
    assert!(text.contains("student tokens") && text.contains("lens-plus"), "{text}");
    let (code, text, stderr) = run(plan().arg("--plan"));
    assert_eq!(code, 0, "{stderr}");
    assert!(text.contains("measured: lens-plus and opd"), "{text}");
}
