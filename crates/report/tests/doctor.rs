//! Every detector of the doctor, on a run that has nothing but its illness; and the keys its advice names.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use lens_records::RunFolder;
use lens_report::Run;
use lens_report::doctor::{DETECTORS, Finding, Severity, examine};
use serde_json::{Value, json};

const BATCHES: u64 = 12;
const FORKS: u64 = 8;

/// A run as its files hold it: what tests make ill.
struct Records {
    evals: Vec<Value>,
    batches: Vec<Value>,
    steps: Vec<Value>,
    /// Episodes of the last batch.
    episodes: Vec<Value>,
}

/// A run that learns.
fn healthy() -> Records {
    let evals = vec![evaluation(0, 5), evaluation(12, 30)];
    let batches = (1..=BATCHES).map(batch).collect();
    let step = |step: u64| json!({"kind": "step", "format": 2, "step": step, "loss": 1.0, "grad_norm": 1.0 + 0.1 * (step % 3) as f64, "opd_tokens": 90, "gi_tokens": 5});
    let steps = (1..=12).map(step).collect();
    Records { evals, batches, steps, episodes: (0..30).map(episode).collect() }
}

fn evaluation(step: u64, solved: u64) -> Value {
    let task = |task: u64| json!({"task": format!("t{task}"), "kind": "all", "success": task < solved, "score": 0.0, "turns": 5, "end": "completed"});
    json!({"kind": "eval", "format": 2, "step": step, "batch": step, "split": "test",
        "all": {"tasks": 40, "success_rate": 2.5 * solved as f64, "score": null, "rounds": 7.0},
        "kinds": {}, "tasks": (0..40).map(task).collect::<Vec<_>>()})
}

fn batch(number: u64) -> Value {
    json!({"kind": "batch", "format": 2, "batch": number, "version": number - 1, "horizon": number,
        "tick": {"depth": number, "valid_episodes": 8, "competence": 0.8, "pace": 1.0, "next_depth": number + 1},
        "forks": (0..FORKS).map(fork).collect::<Vec<_>>(),
        "rollout": {"turns": 100, "parsed_turns": 99, "repeated_turns": 5, "prompt_tokens": 9000,
            "response_tokens": 2000, "kl": 0.5, "student_nll": 1.0, "teacher_nll": 1.0,
            "teacher_confidence": 0.8, "agreement": 0.8}})
}

/// Three of four gains are positive.
fn fork(number: u64) -> Value {
    let gain = if number.is_multiple_of(4) { -0.1 } else { 0.2 + 0.01 * number as f64 };
    json!({"request": {"episode": number, "turn": 0, "kind": {"hint": {"feedback": "incorporate"}},
            "continuation_turns": 3, "score_temperature": 1.0, "divergence": 0.5},
        "verdict": {"base_value": -2.0, "guided_value": gain - 2.0, "gain": gain, "accepted": gain > 0.0},
        "reason": null, "internalization_gap": 0.3, "focus": null})
}

/// A failed episode whose hint contradicts the plan and changes the action.
fn episode(number: u64) -> Value {
    json!({"format": 2, "batch": BATCHES, "episode": number, "task": "t", "success": false,
        "turns": [{"turn": 0, "actor": "student", "observation": "", "response": "", "action": "go to desk 1"}],
        "forks": [{"turn": 0, "hint": "go to bed 1 is right, not go to desk 1.",
            "request": fork(number)["request"], "verdict": fork(number)["verdict"],
            "base": [{"turn": 0, "action": "go to desk 1"}],
            "guided": [{"turn": 0, "action": "go to bed 1"}]}]})
}

fn examined(records: &Records) -> Vec<Finding> {
    let folder = tempfile::tempdir().expect("a folder");
    let run = folder.path().join("ill").join("seed-1");
    write(&run, records);
    examine(&Run::load(RunFolder::open(&run).expect("a run")))
}

fn write(run: &Path, records: &Records) {
    fs::create_dir_all(run.join("episodes")).expect("a folder");
    let config = "name = \"ill\"\nmethod = \"lens\"\n[task]\nbenchmark = \"alfworld\"\nturn_limit = 30\n\
                  [rollout]\nmax_response_tokens = 64\n[train]\nsteps = 24\nbatch_size = 64\n";
    fs::write(run.join("config.toml"), config).expect("a file");
    let text = |lines: &[&[Value]]| -> String {
        let lines: Vec<String> = lines.concat().iter().map(Value::to_string).collect();
        lines.join("\n") + "\n"
    };
    let metrics =
        text(&[&records.evals[..1], &records.batches, &records.steps, &records.evals[1..]]);
    fs::write(run.join("metrics.jsonl"), metrics).expect("a file");
    let episodes = zstd::encode_all(text(&[&records.episodes]).as_bytes(), 3).expect("packed");
    let name = format!("episodes/batch-{BATCHES:06}.jsonl.zst");
    fs::write(run.join(name), episodes).expect("a file");
}

fn forks(records: &mut Records) -> impl Iterator<Item = &mut Value> {
    let lists = records.batches.iter_mut().map(|batch| batch["forks"].as_array_mut());
    lists.flatten().flatten()
}

fn rollouts(records: &mut Records) -> impl Iterator<Item = &mut Value> {
    records.batches.iter_mut().map(|batch| &mut batch["rollout"])
}

type Illness = (&'static str, Severity, &'static str, fn(&mut Records));

/// Each illness: what must be found, how bad it is, a number of its evidence, and how a healthy run gets it.
const ILLNESSES: &[Illness] = &[
    ("gate.closed", Severity::Problem, "0 of the last 64", |records| {
        for fork in forks(records) {
            fork["verdict"]["accepted"] = json!(false);
        }
    }),
    ("gate.coin_flip", Severity::Warning, "50 % positive", |records| {
        for (number, fork) in forks(records).enumerate() {
            let gain = if number % 2 == 0 { 0.3 } else { -0.3 };
            fork["verdict"]["gain"] = json!(gain);
            fork["verdict"]["accepted"] = json!(gain > 0.0);
        }
    }),
    ("gate.incomplete", Severity::Warning, "`base.timeout` (48)", |records| {
        for (_, fork) in forks(records).enumerate().filter(|(number, _)| number % 4 != 1) {
            fork["verdict"]["gain"] = Value::Null;
            fork["verdict"]["accepted"] = json!(false);
            fork["reason"] = json!("base.timeout");
        }
    }),
    ("gate.identical_branches", Severity::Warning, "30 of 30", |records| {
        for episode in &mut records.episodes {
            episode["forks"][0]["guided"][0]["action"] = json!("go to desk 1");
        }
    }),
    ("gate.approving_hints", Severity::Warning, "30 of 30", |records| {
        for episode in &mut records.episodes {
            episode["forks"][0]["hint"] = json!("Go to desk 1 is right.");
        }
    }),
    ("learning.diverging", Severity::Problem, "1 of 12 steps skipped", |records| {
        records.steps[7]["skipped"] = json!(true);
    }),
    ("learning.saturated_clock", Severity::Note, "0.9950", |records| {
        for batch in &mut records.batches {
            batch["tick"]["competence"] = json!(0.995);
        }
    }),
    ("learning.nothing_to_internalize", Severity::Note, "0.00010 nats", |records| {
        for fork in forks(records) {
            fork["internalization_gap"] = json!(0.0001);
        }
    }),
    ("learning.stale_rows", Severity::Warning, "700 rows dropped", |records| {
        records.batches[11]["stale_rows"] = json!(700);
    }),
    ("learning.horizon_out_of_reach", Severity::Warning, "about 4 at the end", |records| {
        for batch in &mut records.batches {
            batch["horizon"] = json!(2);
        }
    }),
    ("rollout.unparsed", Severity::Problem, "30 % of 800 turns", |records| {
        rollouts(records).for_each(|stats| stats["parsed_turns"] = json!(30));
    }),
    (
        "rollout.growing_length",
        Severity::Warning,
        "20 tokens per response at first, 50 now",
        |records| {
            rollouts(records).skip(6).for_each(|stats| stats["response_tokens"] = json!(5000));
        },
    ),
    ("rollout.repetition", Severity::Warning, "60 % of 800 turns", |records| {
        rollouts(records).for_each(|stats| stats["repeated_turns"] = json!(60));
    }),
    ("rollout.entropy_collapse", Severity::Warning, "0.050 now", |records| {
        rollouts(records).skip(6).for_each(|stats| stats["student_nll"] = json!(0.05));
    }),
    ("rollout.uniform_teacher", Severity::Problem, "probability 0.10", |records| {
        rollouts(records).for_each(|stats| stats["teacher_confidence"] = json!(0.1));
    }),
    ("evaluation.no_difference", Severity::Note, "+5.0 points", |records| {
        records.evals[1] = evaluation(12, 7);
    }),
    ("evaluation.falling", Severity::Problem, "-50.0 points", |records| {
        records.evals = vec![evaluation(0, 30), evaluation(12, 10)];
    }),
];

#[test]
fn a_healthy_run_has_nothing() {
    let found = examined(&healthy());
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn every_illness_is_found_and_nothing_else() {
    assert_eq!(ILLNESSES.len(), DETECTORS.len(), "a detector without an illness is untested");
    for (code, severity, evidence, infect) in ILLNESSES {
        let mut records = healthy();
        infect(&mut records);
        let found = examined(&records);
        let codes: Vec<&str> = found.iter().map(|finding| finding.code).collect();
        assert_eq!(codes, [*code], "{found:#?}");
        assert_eq!(found[0].severity, *severity, "{code}");
        assert!(found[0].evidence.contains(evidence), "{code}: {}", found[0].evidence);
    }
}

/// Keys of the configuration, such as `train.steps`.
fn keys() -> BTreeSet<String> {
    let schema = lens_config::schema::json_schema();
    let mut keys = BTreeSet::new();
    for (section, content) in schema["properties"].as_object().expect("sections") {
        let name = content["$ref"].as_str().and_then(|path| path.rsplit('/').next());
        let content = name.map_or(content, |name| &schema["$defs"][name]);
        for key in content["properties"].as_object().into_iter().flatten() {
            keys.insert(format!("{section}.{}", key.0));
        }
    }
    keys
}

#[test]
fn advice_names_keys_that_exist() {
    let (keys, mut named) = (keys(), 0);
    for (code, _, _, infect) in ILLNESSES {
        let mut records = healthy();
        infect(&mut records);
        for finding in examined(&records) {
            let words = finding.advice.split(|letter: char| {
                !(letter.is_ascii_alphanumeric() || letter == '_' || letter == '.')
            });
            let dotted = words.map(|word| word.trim_end_matches('.')).filter(|w| w.contains('.'));
            for word in dotted {
                named += 1;
                assert!(keys.contains(word), "{code}: there is no key `{word}`");
            }
        }
    }
    assert!(named > 15, "{named} keys");
}
