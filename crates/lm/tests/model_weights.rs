//! Building, refreshing and rounding a model's weights.

mod small;

use lens_lm::cache::PrefixCache;
use lens_lm::config::{Family, ModelConfig};
use lens_lm::error::LmError;
use lens_lm::model::{Model, WeightFormat};
use lens_lm::pair::{PairOptions, PairRow, pair_score};
use lens_lm::score::{ScoreOptions, ScoreRequest, Scored, score, score_with};
use lens_opd::random::{Purpose, StreamKey};
use small::{config, model, parameters, tokens};

fn scored(model: &Model) -> Scored {
    let mut stream = StreamKey::new(1, 0, 0, Purpose::Data, 0).open();
    let prompt = tokens(&mut stream, 40, 1000);
    let response = tokens(&mut stream, 12, 1000);
    let row = ScoreRequest { prompt: &prompt, response: &response, asked: &[] };
    score(model, &[row], &ScoreOptions::default()).expect("scored").remove(0)
}

#[test]
fn rounding_the_weights_costs_little() {
    for family in [Family::Qwen3, Family::Qwen2, Family::Llama] {
        let config = config(family);
        let exact = model(&config, 1, WeightFormat::F32);
        let mut stream = StreamKey::new(2, 0, 0, Purpose::Data, 0).open();
        let prompt = tokens(&mut stream, 60, config.vocab_size);
        let response = tokens(&mut stream, 30, config.vocab_size);
        let row = PairRow { prompt: &prompt, response: &response };
        let cost = |format| {
            let rounded = model(&config, 1, format);
            let rows = pair_score(&exact, &rounded, &[row], &PairOptions::default());
            let positions = rows.expect("scored").remove(0);
            positions.iter().map(|position| position.kl).sum::<f32>() / positions.len() as f32
        };
        assert!(cost(WeightFormat::F32) < 1e-9);
        let [bf16, dot, int8] =
            [WeightFormat::Bf16, WeightFormat::Bf16Dot, WeightFormat::Int8].map(cost);
        assert!(bf16 > 0.0 && bf16 < 2e-3, "{family:?}: bf16 costs {bf16} nats");
        assert!(dot > 0.0 && dot < 4e-3, "{family:?}: bf16-dot costs {dot} nats");
        assert!(int8 > 0.0 && int8 < 2e-2, "{family:?}: int8 costs {int8} nats");
    }
}

#[test]
fn rounded_weights_take_less_memory() {
    let config = ModelConfig { hidden_size: 256, intermediate_size: 512, ..config(Family::Qwen3) };
    let size = |format| model(&config, 1, format).weight_bytes() as f64;
    let exact = size(WeightFormat::F32);
    assert!(exact >= 4.0 * config.parameter_count() as f64);
    assert!(exact <= 4.1 * config.parameter_count() as f64);
    assert!((0.49..0.52).contains(&(size(WeightFormat::Bf16) / exact)));
    assert!((0.49..0.52).contains(&(size(WeightFormat::Bf16Dot) / exact)));
    assert!((0.24..0.28).contains(&(size(WeightFormat::Int8) / exact)));
}

#[test]
fn a_refreshed_model_equals_a_new_one_and_old_clones_keep_their_weights() {
    let config = config(Family::Qwen3);
    let formats =
        [WeightFormat::F32, WeightFormat::Bf16, WeightFormat::Bf16Dot, WeightFormat::Int8];
    for format in formats {
        let mut snapshot = model(&config, 1, format);
        let (old, new) = (scored(&snapshot), scored(&model(&config, 2, format)));
        assert_ne!(old, new);
        let clone = snapshot.clone();
        snapshot.refresh(&parameters(&config, 2)).expect("same shapes");
        assert_eq!(scored(&snapshot), new);
        assert_eq!(scored(&clone), old);
        drop(clone);
        let bytes = snapshot.weight_bytes();
        snapshot.refresh(&parameters(&config, 1)).expect("same shapes");
        assert_eq!(scored(&snapshot), old, "in place");
        assert_eq!(snapshot.weight_bytes(), bytes);
    }
}

#[test]
fn a_prefix_cache_never_serves_pages_of_earlier_weights() {
    let config = config(Family::Qwen3);
    let mut snapshot = model(&config, 1, WeightFormat::F32);
    let mut stream = StreamKey::new(3, 0, 0, Purpose::Data, 0).open();
    let prompt = tokens(&mut stream, 100, config.vocab_size);
    let row = ScoreRequest { prompt: &prompt, response: &[1, 2, 3], asked: &[] };
    let options = ScoreOptions::default();
    let mut prefix = PrefixCache::new(1 << 30);
    score_with(&snapshot, &[row], &options, &mut prefix).expect("scored");
    assert!(prefix.bytes() > 0);
    snapshot.refresh(&parameters(&config, 2)).expect("same shapes");
    let reused = prefix.tokens_reused();
    let after = score_with(&snapshot, &[row], &options, &mut prefix).expect("scored");
    assert_eq!(after, score(&snapshot, &[row], &options).expect("scored"));
    assert_eq!(prefix.tokens_reused(), reused);
}

#[test]
fn a_prefix_cache_stays_within_its_capacity() {
    let config = config(Family::Qwen3);
    let model = model(&config, 1, WeightFormat::F32);
    let capacity = model.kv_bytes_per_token() * 16 * 20;
    let mut prefix = PrefixCache::new(capacity);
    let mut stream = StreamKey::new(4, 0, 0, Purpose::Data, 0).open();
    for _ in 0..10 {
        let prompt = tokens(&mut stream, 150, config.vocab_size);
        let row = ScoreRequest { prompt: &prompt, response: &[1, 2], asked: &[] };
        score_with(&model, &[row], &ScoreOptions::default(), &mut prefix).expect("scored");
        assert!(prefix.bytes() > 0 && prefix.bytes() <= capacity);
    }
}

#[test]
fn shared_beginnings_are_computed_once() {
    let config = config(Family::Qwen3);
    let model = model(&config, 1, WeightFormat::F32);
    let mut stream = StreamKey::new(5, 0, 0, Purpose::Data, 0).open();
    let common = tokens(&mut stream, 128, config.vocab_size);
    let prompts: Vec<Vec<u32>> = (0..6)
        .map(|_| [&common[..], &tokens(&mut stream, 10, config.vocab_size)[..]].concat())
        .collect();
    let rows: Vec<_> =
        prompts.iter().map(|prompt| ScoreRequest { prompt, response: &[1], asked: &[] }).collect();
    let mut prefix = PrefixCache::new(1 << 30);
    score_with(&model, &rows, &ScoreOptions::default(), &mut prefix).expect("scored");
    assert_eq!(prefix.tokens_reused(), 5 * 128, "all but the first take over the beginning");
}

#[test]
fn parameters_that_do_not_make_the_model_are_named() {
    let config = config(Family::Qwen2);
    let good = parameters(&config, 1);
    let refused = |parameters: &_| {
        let error = Model::new(&config, parameters, WeightFormat::F32).expect_err("refused");
        assert!(matches!(error, LmError::Parameter { .. }), "{error:?}");
        error.to_string()
    };
    let mut missing = good.clone();
    missing.remove("model.layers.1.self_attn.k_proj.bias");
    let message = refused(&missing);
    assert_eq!(message, "parameter `model.layers.1.self_attn.k_proj.bias` is missing");

    let mut shaped = good.clone();
    shaped.get_mut("model.layers.0.mlp.up_proj.weight").expect("there").shape = vec![72, 41];
    let message = refused(&shaped);
    assert!(message.contains("up_proj.weight` has shape [72, 41]"), "{message}");

    let mut lying = good.clone();
    lying.get_mut("model.norm.weight").expect("there").data.pop();
    assert!(refused(&lying).contains("has 39 values for shape [40]"));

    let mut broken = good;
    broken.get_mut("model.layers.2.mlp.down_proj.weight").expect("there").data[77] = f32::NAN;
    let message = refused(&broken);
    assert!(message.contains("down_proj.weight` holds NaN at index 77"), "{message}");
}

#[test]
fn impossible_shapes_are_refused() {
    let refused = |config: ModelConfig| {
        let error = Model::new(&config, &parameters(&config, 1), WeightFormat::F32);
        error.expect_err("refused").to_string()
    };
    let good = || config(Family::Qwen3);
    assert!(refused(ModelConfig { kv_heads: 4, ..good() }).contains("6 query heads"));
    assert!(refused(ModelConfig { head_dim: 7, ..good() }).contains("head_dim 7 is odd"));
    assert!(refused(ModelConfig { layers: 0, ..good() }).contains("layers is 0"));
}
