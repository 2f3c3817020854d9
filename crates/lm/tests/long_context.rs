//! Contexts of many key blocks: the same log-probabilities as training's own attention, and memory that is given back.

mod small;

use lens_lm::cache::{PrefixCache, shares};
use lens_lm::config::{Family, ModelConfig};
use lens_lm::kernels::dispatch::Isa;
use lens_lm::model::{Model, WeightFormat};
use lens_lm::score::{ScoreOptions, ScoreRequest, score, score_with};
use lens_lm::train::{Heads, RowLoss, TrainRow, Trainer, TrainerOptions};
use lens_opd::random::{Purpose, StreamKey};
use small::{config, model, parameters, tokens};

fn long_config(family: Family) -> ModelConfig {
    ModelConfig { max_position: 4096, ..config(family) }
}

#[test]
fn scores_of_a_long_row_are_those_of_training() {
    for family in [Family::Qwen3, Family::Llama] {
        let config = long_config(family);
        let mut stream = StreamKey::new(5, 0, 0, Purpose::Data, 0).open();
        let text = tokens(&mut stream, 1100, config.vocab_size);
        // From the middle of the first block of 512 keys to the third.
        let start = 300;
        let count = text.len() - start;
        let row = TrainRow {
            tokens: text.clone(),
            response_start: start,
            weights: vec![1.0 / count as f32; count],
            loss: RowLoss::Nll,
        };
        let mut trainer =
            Trainer::new(config.clone(), parameters(&config, 2), TrainerOptions::default())
                .expect("valid model");
        let heads = Heads { teacher: None, snapshot: None };
        let trained = trainer.accumulate(&[row], &heads).expect("a valid row").loss;
        let request = ScoreRequest { prompt: &text[..start], response: &text[start..], asked: &[] };
        let mut bits = Vec::new();
        for isa in Isa::available() {
            let model = model(&config, 2, WeightFormat::F32).with_isa(isa).expect("not shared");
            let scored = score(&model, &[request], &ScoreOptions::default()).expect("scored");
            let logprobs: Vec<f32> = scored[0].positions.iter().map(|one| one.logprob).collect();
            let mean = logprobs.iter().map(|&x| f64::from(x)).sum::<f64>() / count as f64;
            assert!((trained + mean).abs() < 1e-4, "{family:?} {isa}: {trained} and {}", -mean);
            bits.push(logprobs.into_iter().map(f32::to_bits).collect::<Vec<_>>());
        }
        assert!(bits.iter().all(|other| *other == bits[0]), "{family:?}");
    }
}

/// Scores rows that begin alike in twos, so that there is something to keep.
fn score_rows(model: &Model, prefix: &mut PrefixCache, seed: u64) {
    let mut stream = StreamKey::new(seed, 0, 0, Purpose::Data, 0).open();
    let texts: Vec<Vec<u32>> =
        (0..12).map(|_| tokens(&mut stream, 400, model.config().vocab_size)).collect();
    let requests: Vec<ScoreRequest<'_>> = texts
        .iter()
        .flat_map(|text| [300, 350].map(|at| (&text[..at], &text[at..])))
        .map(|(prompt, response)| ScoreRequest { prompt, response, asked: &[] })
        .collect();
    score_with(model, &requests, &ScoreOptions::default(), prefix).expect("scored");
}

#[test]
fn pages_stay_within_the_budget_and_go_back_when_nobody_keeps_them() {
    let config = long_config(Family::Qwen3);
    let model = model(&config, 1, WeightFormat::F32);
    let budget = 1000 * model.kv_bytes_per_token();
    let mut prefix = PrefixCache::new(budget);
    for seed in 0..5 {
        score_rows(&model, &mut prefix, seed);
        assert!(model.kv_bytes_in_use() <= budget, "{} of {budget}", model.kv_bytes_in_use());
        assert!(prefix.bytes() <= budget);
    }
    assert!(prefix.bytes() > 0 && model.kv_bytes_in_use() == prefix.bytes());
    assert!(model.kv_bytes_held() >= model.kv_bytes_in_use());
    drop(prefix);
    assert_eq!(model.kv_bytes_in_use(), 0);
    assert!(model.kv_bytes_held() <= 4 << 20, "at most one slab waits for the next sequence");
}

#[test]
fn one_budget_is_shared_by_tokens() {
    let small = model(&config(Family::Qwen3), 1, WeightFormat::F32);
    let large = model(&ModelConfig { layers: 6, ..config(Family::Qwen3) }, 1, WeightFormat::F32);
    let [a, b] = shares(1_000_000, &[&small, &large])[..] else { panic!("two shares") };
    assert_eq!(a / small.kv_bytes_per_token(), b / large.kv_bytes_per_token());
    assert!(a + b <= 1_000_000 && a + b > 900_000, "{a} {b}");
}
