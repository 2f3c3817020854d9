//! The spellings of `config.json` in the wild.

use std::path::Path;

use lens_lm::checkpoint::Dtype;
use lens_lm::checkpoint::hf_config::{self, ModelTokens};
use lens_lm::config::{Family, ModelConfig, RopeScaling};
use serde_json::{Map, Value, json};

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        other => panic!("not an object: {other}"),
    }
}

fn parse(value: Value) -> Result<ModelConfig, String> {
    hf_config::parse(Path::new("config.json"), &object(value)).map_err(|error| error.to_string())
}

/// A Llama configuration with `more` put over it.
fn llama(more: Value) -> Value {
    let mut base = object(json!({
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 1000,
    }));
    base.extend(object(more));
    Value::Object(base)
}

#[test]
fn what_is_left_out_gets_the_familys_default() {
    let config = parse(llama(json!({}))).expect("valid");
    assert_eq!((config.kv_heads, config.head_dim, config.max_position), (4, 16, 2048));
    assert_eq!((config.rope_theta, config.rms_norm_eps), (10_000.0, 1e-6));
    assert!(!config.tied_head && config.rope_scaling.is_none());
    let qwen = parse(llama(json!({"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]})))
        .expect("valid");
    assert_eq!((qwen.head_dim, qwen.max_position, qwen.qk_norm), (128, 32_768, true));
    let qwen = parse(llama(json!({"model_type": "qwen2", "architectures": null, "head_dim": 7})))
        .expect("valid");
    assert_eq!((qwen.head_dim, qwen.qkv_bias), (16, true), "Qwen2 has no head_dim of its own");
    let nulls = json!({"num_key_value_heads": null, "head_dim": null, "rope_scaling": null, "quantization_config": null});
    assert_eq!(parse(llama(nulls)).expect("valid"), config);
}

#[test]
fn old_and_new_spellings_of_rotary_settings_mean_the_same() {
    let llama3 = json!({
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    });
    let old =
        parse(llama(json!({"rope_theta": 500_000.0, "rope_scaling": llama3}))).expect("valid");
    assert_eq!(old.rope_theta, 500_000.0);
    let expected = RopeScaling::Llama3 {
        factor: 32.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position: 8192,
    };
    assert_eq!(old.rope_scaling, Some(expected));
    let mut new = object(llama3);
    new.insert("rope_theta".to_owned(), json!(500_000.0));
    assert_eq!(parse(llama(json!({"rope_parameters": new}))).expect("valid"), old);
    let nested = json!({"rope_parameters": {"full_attention": new, "sliding_attention": {"rope_type": "yarn"}}});
    assert_eq!(parse(llama(nested)).expect("valid"), old);

    let linear =
        parse(llama(json!({"rope_scaling": {"type": "linear", "factor": 2.0}}))).expect("valid");
    assert_eq!(linear.rope_scaling, Some(RopeScaling::Linear { factor: 2.0 }));
    let default = parse(llama(json!({"rope_scaling": {"type": "default"}}))).expect("valid");
    assert_eq!(default.rope_scaling, None);
}

#[test]
fn rotary_settings_that_are_not_implemented_are_refused() {
    for (setting, words) in [
        (
            json!({"rope_scaling": {"type": "dynamic", "factor": 2.0}}),
            "`rope_scaling.rope_type` is `dynamic`",
        ),
        (
            json!({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}),
            "`rope_scaling.low_freq_factor` is missing",
        ),
        (
            json!({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}),
            "partial_rotary_factor",
        ),
        (json!({"rope_scaling": "linear"}), "must be an object"),
        (json!({"rope_scaling": {"type": "linear", "factor": 0.0}}), "`factor`"),
        (json!({"rope_interleaved": true}), "rope_interleaved"),
        (json!({"mlp_bias": true}), "mlp_bias"),
    ] {
        let error = parse(llama(setting)).expect_err("not implemented");
        assert!(error.contains(words), "{words}: {error}");
    }
}

#[test]
fn sliding_windows_matter_only_when_they_are_used() {
    let qwen = |more: Value| {
        let mut base = object(
            json!({"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "sliding_window": 4096}),
        );
        base.extend(object(more));
        parse(llama(Value::Object(base)))
    };
    qwen(json!({"use_sliding_window": false})).expect("unused");
    qwen(json!({"use_sliding_window": true, "max_window_layers": 2})).expect("no layer is beyond");
    let error =
        qwen(json!({"use_sliding_window": true, "max_window_layers": 1})).expect_err("used");
    assert!(error.contains("use_sliding_window"), "{error}");
}

#[test]
fn a_new_configuration_is_read_back_as_it_was() {
    let scalings = [
        None,
        Some(RopeScaling::Linear { factor: 2.5 }),
        Some(RopeScaling::Llama3 {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_max_position: 512,
        }),
    ];
    for family in [Family::Qwen3, Family::Qwen2, Family::Llama] {
        for rope_scaling in scalings {
            let config = ModelConfig {
                family,
                hidden_size: 64,
                intermediate_size: 96,
                layers: 3,
                heads: 4,
                kv_heads: 2,
                head_dim: if family == Family::Qwen2 { 16 } else { 24 },
                vocab_size: 777,
                max_position: 2048,
                rms_norm_eps: 1e-5,
                rope_theta: 12_345.5,
                rope_scaling,
                tied_head: family == Family::Llama,
                qkv_bias: family == Family::Qwen2,
                qk_norm: family == Family::Qwen3,
            };
            let tokens = ModelTokens { bos: None, eos: Some(2), pad: Some(0) };
            let rendered = hf_config::render(&config, Dtype::Bf16, &tokens);
            assert_eq!(rendered["torch_dtype"], Dtype::Bf16.torch_name());
            assert_eq!(rendered["rms_norm_eps"].to_string(), "0.00001");
            assert_eq!(
                hf_config::parse(Path::new("config.json"), &rendered).expect("valid"),
                config
            );
        }
    }
}
