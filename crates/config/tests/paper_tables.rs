//! The ready files hold the paper's tables 4 and 5 to the letter.

use std::path::PathBuf;

use lens_config::schema::Config;
use lens_config::{Origin, resolve};
use lens_opd::buffer::Staleness;
use lens_opd::methods::MethodName;

fn configs() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../configs")
}

fn paper_runs() -> Vec<(String, Config)> {
    let mut runs = Vec::new();
    for entry in std::fs::read_dir(configs().join("paper")).expect("configs/paper is there") {
        let path = entry.expect("it can be listed").path();
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        if name != "tables" {
            runs.push((name, resolve(&[path], &[]).expect("a ready file resolves").config));
        }
    }
    runs.sort_by(|a, b| a.0.cmp(&b.0));
    runs
}

#[test]
fn table_4_training_configuration() {
    for (name, config) in paper_runs() {
        assert_eq!(config.loss.kl_coef, 1.0, "{name}");
        assert_eq!(config.optimizer.lr, 1e-6, "{name}");
        assert_eq!(config.optimizer.grad_clip, 1.0, "{name}");
        assert_eq!(config.rollout.repeat_times, 1, "{name}");
        assert_eq!(config.train.max_staleness, 2, "{name}");
        assert_eq!(config.train.staleness, Staleness::Paper, "{name}");
        assert_eq!(config.train.steps, 250, "{name}");
        assert_eq!((config.rollout.batch_size, config.train.batch_size), (16, 64), "{name}");
        assert_eq!((config.train.save_interval, config.train.eval_interval), (250, 5), "{name}");
        let limits = (config.rollout.max_prompt_tokens, config.rollout.max_response_tokens);
        assert_eq!(limits, (10_240, 512), "{name}");
        assert_eq!(config.rollout.temperature, 1.0, "{name}");
        assert_eq!(config.seeds, [42, 43, 44, 45, 46], "{name}");
        assert_eq!(config.methods.locate.residence, 5, "{name}");
        assert_eq!(config.methods.locate.proposals_per_episode, 1, "{name}");
        assert_eq!(config.methods.validate.continuation_turns, 3, "{name}");
        assert_eq!(config.methods.validate.temperature, 1.0, "{name}");
        assert_eq!(config.methods.refine.focus_scale, 1.0, "{name}");
        assert_eq!(config.methods.refine.weight_cap, 5.0, "{name}");
    }
}

#[test]
fn table_5_evaluation_configuration() {
    for (name, config) in paper_runs() {
        assert_eq!(config.eval.max_tokens, 4096, "{name}");
        assert_eq!(config.eval.temperature, 0.4, "{name}");
        let cuts = (config.eval.top_p, config.eval.top_k, config.eval.min_p);
        assert_eq!(cuts, (1.0, -1, 0.0), "{name}");
        assert_eq!(config.eval.history, 2, "{name}");
        let turns = match config.task.benchmark.as_str() {
            "webshop" => 15,
            _ => 30,
        };
        assert_eq!(config.task.turn_limit, turns, "{name}");
        assert_eq!(config.eval.workers, 8, "{name}");
        assert_eq!(config.eval.timeout_seconds, 3600, "{name}");
    }
}

#[test]
fn every_benchmark_has_both_students_and_the_second_family_has_alfworld() {
    let runs = paper_runs();
    let names: Vec<&str> = runs.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "alfworld-qwen2.5-3b",
            "alfworld-qwen3-1.7b",
            "alfworld-qwen3-4b",
            "scienceworld-qwen3-1.7b",
            "scienceworld-qwen3-4b",
            "webshop-qwen3-1.7b",
            "webshop-qwen3-4b",
        ]
    );
    for (name, config) in &runs {
        assert_eq!(config.method, MethodName::Lens, "{name}");
        assert_eq!(&config.name, name, "a run is named after its file");
        let student = config.student.path.to_string_lossy().to_lowercase();
        let size = name.rsplit('-').next().expect("a size");
        assert!(student.contains(size), "{name}: {student}");
    }
}

#[test]
fn the_tables_are_written_out_and_not_left_to_the_defaults() {
    let tables = resolve(&[configs().join("paper/tables.toml")], &[]).expect("it resolves");
    for key in ["optimizer.lr", "train.steps", "eval.temperature", "refine.weight_cap", "seeds"] {
        assert!(matches!(tables.origin(key), Origin::File { .. }), "{key}");
    }
}

#[test]
fn every_ready_file_resolves() {
    let mut count = 0;
    let mut folders = vec![configs()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("configs is there") {
            let path = entry.expect("it can be listed").path();
            if path.is_dir() {
                // Laboratory recipes are not configurations; `crates/lab` checks them.
                folders.extend((!path.ends_with("lab")).then_some(path));
            } else if path.extension().is_some_and(|ending| ending == "toml") {
                resolve(std::slice::from_ref(&path), &[])
                    .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                count += 1;
            }
        }
    }
    assert!(count >= 9, "only {count} ready files");
}
