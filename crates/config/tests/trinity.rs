//! Importing Trinity-RFT files.

use lens_config::{resolve, trinity};

const YAML: &str = r"
project: P
name: shop-b2f
algorithm:
  algorithm_type: on_policy_distill
  sample_strategy: staleness_control
  sample_strategy_args:
    max_staleness: 2
  repeat_times: 1
  loss_agg_mode: seq-mean-token-mean
  optimizer:
    lr: 1e-6
    betas: [0.9, 0.95]
model:
  model_path: models/student
  max_prompt_tokens: 10240
buffer:
  total_steps: 150
  batch_size: 16
  train_batch_size: 64
  explorer_input:
    taskset:
      split: train
      path: data/shop
      rollout_args: {temperature: 1.0, logprobs: 0}
      workflow_args: {max_env_steps: 15, checkpoint_steps: 4}
    default_workflow_type: TCOD_b2f_webshop_workflow
explorer:
  rollout_model: {engine_num: 2, seed: 43}
  auxiliary_models:
    - model_path: models/teacher
trainer:
  total_steps: 250
  made_up_key: 1
";

fn import(text: &str) -> Result<trinity::Import, lens_config::ConfigError> {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("trinity.yaml");
    std::fs::write(&path, text).expect("the temporary folder is writable");
    trinity::import(&path)
}

#[test]
fn what_has_a_counterpart_is_mapped_and_resolves() {
    let toml = import(YAML).expect("it is YAML").to_toml();
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("run.toml");
    std::fs::write(&path, &toml).expect("the temporary folder is writable");
    let config = resolve(&[path], &[]).unwrap_or_else(|error| panic!("{error}\n{toml}")).config;
    assert_eq!(config.name, "shop-b2f");
    assert_eq!(config.method.to_string(), "tcod-b2f");
    assert_eq!(config.task.benchmark, "webshop");
    assert_eq!(config.loss.estimator, lens_opd::objective::Estimator::K1Pg);
    assert_eq!(config.loss.aggregation, lens_opd::objective::Aggregation::RowMean);
    assert_eq!((config.task.turn_limit, config.methods.tcod.residence), (15, 4));
    assert_eq!((config.optimizer.lr, config.optimizer.beta2), (1e-6, 0.95));
    assert_eq!((config.rollout.batch_size, config.train.batch_size), (16, 64));
    assert_eq!(config.student.path.to_string_lossy(), "models/student");
    assert_eq!(config.teacher.path.to_string_lossy(), "models/teacher");
    assert_eq!(config.seeds, [43]);
}

#[test]
fn what_has_none_is_listed_with_the_reason() {
    let import = import(YAML).expect("it is YAML");
    let reason = |key: &str| {
        import
            .unmapped
            .iter()
            .find(|unmapped| unmapped.from == key)
            .unwrap_or_else(|| panic!("{key} is listed: {:?}", import.unmapped))
            .reason
            .clone()
    };
    assert_eq!(reason("trainer.made_up_key"), "not known here");
    assert!(reason("trainer.total_steps").contains("differs from `buffer.total_steps`"));
    assert!(reason("explorer.rollout_model.engine_num").contains("serving engine"));
    assert!(reason("buffer.explorer_input.taskset.path").contains("task.data"));
    let leaves = 27;
    assert_eq!(
        import.mapped.len() + import.unmapped.len(),
        leaves + 1,
        "one key maps to two, none is lost"
    );
}

#[test]
fn broken_yaml_names_file_and_line() {
    let error = import("a: b\n  c: [1,\n").expect_err("it is broken").to_string();
    assert!(error.contains("trinity.yaml:"), "{error}");
    let error = import("- 1\n- 2\n").expect_err("it is a list").to_string();
    assert!(error.contains("expected a YAML mapping"), "{error}");
}
