//! The published configurations of Qwen3 and Qwen2.5 are read as the shapes they are known to have.

mod common;

use common::shared;
use lens_lm::checkpoint::hf_config;
use lens_lm::config::Family;

#[test]
fn published_configurations_have_the_known_shapes() {
    let Some(folder) = shared("data/models/configs") else { return };
    // hidden, feed-forward, layers, heads, key/value heads, head width, tied, positions, vocabulary
    let known = [
        ("Qwen3-0.6B", (1024, 3072, 28, 16, 8, 128, true, 40_960, 151_936)),
        ("Qwen3-1.7B", (2048, 6144, 28, 16, 8, 128, true, 40_960, 151_936)),
        ("Qwen3-4B", (2560, 9728, 36, 32, 8, 128, true, 40_960, 151_936)),
        ("Qwen3-8B", (4096, 12_288, 36, 32, 8, 128, false, 40_960, 151_936)),
        ("Qwen3-32B", (5120, 25_600, 64, 64, 8, 128, false, 40_960, 151_936)),
        ("Qwen2.5-0.5B-Instruct", (896, 4864, 24, 14, 2, 64, true, 32_768, 151_936)),
        ("Qwen2.5-3B-Instruct", (2048, 11_008, 36, 16, 2, 128, true, 32_768, 151_936)),
        ("Qwen2.5-7B-Instruct", (3584, 18_944, 28, 28, 4, 128, false, 32_768, 152_064)),
    ];
    for (name, shape) in known {
        let path = folder.join(format!("{name}.json"));
        let text = std::fs::read(&path).expect("readable");
        let object = serde_json::from_slice(&text).expect("JSON");
        let c = hf_config::parse(&path, &object).expect("valid");
        let family = if name.starts_with("Qwen3") { Family::Qwen3 } else { Family::Qwen2 };
        assert_eq!((c.family, c.rope_theta, c.rms_norm_eps), (family, 1e6, 1e-6), "{name}");
        let ours = (
            c.hidden_size,
            c.intermediate_size,
            c.layers,
            c.heads,
            c.kv_heads,
            c.head_dim,
            c.tied_head,
            c.max_position,
            c.vocab_size,
        );
        assert_eq!(ours, shape, "{name}");
    }
    // The name says how large a model is.
    let text = std::fs::read(folder.join("Qwen3-0.6B.json")).expect("readable");
    let config =
        hf_config::parse(&folder, &serde_json::from_slice(&text).expect("JSON")).expect("valid");
    assert_eq!(config.parameter_count(), 596_049_920);
}
