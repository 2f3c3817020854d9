//! A sequence's tokens and log-probabilities are the same bits alone, in any batch, with or without shared prefixes, with
//! the prompt run whole or in parts, on any number of threads and on any instruction set.

mod small;

use lens_lm::cache::{KvFormat, PrefixCache};
use lens_lm::config::{Family, ModelConfig};
use lens_lm::generate::{GenerateOptions, GenerateRequest, Generated, generate, generate_with};
use lens_lm::kernels::dispatch::Isa;
use lens_lm::model::{Model, WeightFormat};
use lens_lm::sampling::Sampling;
use lens_lm::score::{ScoreOptions, ScoreRequest, score, score_with};
use lens_opd::random::{Purpose, StreamKey};
use proptest::prelude::*;
use small::{config, model, on_threads, tokens};

const FAMILIES: [Family; 3] = [Family::Qwen3, Family::Qwen2, Family::Llama];
const FORMATS: [WeightFormat; 4] =
    [WeightFormat::F32, WeightFormat::Bf16, WeightFormat::Bf16Dot, WeightFormat::Int8];

/// Bits of a response, so that comparisons are exact.
fn bits(generated: &Generated) -> (Vec<u32>, Vec<u32>, Vec<u32>) {
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect();
    (generated.tokens.clone(), bits(&generated.logprobs), bits(&generated.logprobs_t1))
}

/// Requests some of which begin alike.
fn requests(config: &ModelConfig, seed: u64, count: usize, longest: u64) -> Vec<GenerateRequest> {
    let mut stream = StreamKey::new(seed, 0, 0, Purpose::Data, 0).open();
    let common = tokens(&mut stream, longest as usize, config.vocab_size);
    (0..count)
        .map(|index| {
            let shared = stream.below(longest).expect("positive") as usize;
            let own = 1 + stream.below(30).expect("positive") as usize;
            let mut prompt = common[..shared].to_vec();
            prompt.extend(tokens(&mut stream, own, config.vocab_size));
            let sampling = match index % 4 {
                0 => Sampling::default(),
                1 => Sampling::greedy(),
                2 => Sampling { temperature: 0.7, top_p: 0.9, ..Sampling::default() },
                _ => Sampling { temperature: 1.3, top_k: 50, min_p: 0.02, ..Sampling::default() },
            };
            GenerateRequest {
                prompt,
                max_new_tokens: 1 + stream.below(12).expect("positive") as usize,
                stop: tokens(&mut stream, 20, config.vocab_size),
                sampling,
                key: StreamKey::new(seed, 1, index as u64, Purpose::Rollout, 0),
            }
        })
        .collect()
}

fn alone(model: &Model, requests: &[GenerateRequest]) -> Vec<Generated> {
    let options = GenerateOptions::default();
    requests
        .iter()
        .map(|request| {
            generate(model, std::slice::from_ref(request), &options).expect("generated").remove(0)
        })
        .collect()
}

fn check(model: &Model, requests: &[GenerateRequest], max_batch: usize) {
    let expected = on_threads(1, || alone(model, requests));
    let same = |what: &str, got: &[Generated]| {
        assert_eq!(got.len(), expected.len());
        for (index, (got, expected)) in got.iter().zip(&expected).enumerate() {
            assert_eq!(bits(got), bits(expected), "{what}, request {index}");
            assert_eq!(got.finish, expected.finish, "{what}, request {index}");
        }
    };
    let options = GenerateOptions { max_batch, ..GenerateOptions::default() };
    for threads in [1, 2, 3] {
        let got = on_threads(threads, || generate(model, requests, &options)).expect("generated");
        same(&format!("batch of {max_batch} on {threads} threads"), &got);
    }
    same("alone on 2 threads", &on_threads(2, || alone(model, requests)));
    // A cache that has seen everything, and one too small to keep anything.
    for capacity in [1 << 30, 0] {
        let mut prefix = PrefixCache::new(capacity);
        for pass in 0..2 {
            let got = generate_with(model, requests, &options, &mut prefix, &mut |_| {});
            same(&format!("prefix cache of {capacity}, pass {pass}"), &got.expect("generated"));
        }
    }
}

#[test]
fn every_family_and_format_is_batch_invariant() {
    for (seed, family) in FAMILIES.into_iter().enumerate() {
        for format in FORMATS {
            let config = config(family);
            let model = model(&config, seed as u64, format);
            check(&model, &requests(&config, 40 + seed as u64, 9, 100), 4);
        }
    }
}

#[test]
fn models_large_enough_to_be_shared_between_threads_are_batch_invariant() {
    let config = ModelConfig {
        hidden_size: 256,
        intermediate_size: 512,
        heads: 8,
        kv_heads: 4,
        head_dim: 32,
        vocab_size: 3000,
        max_position: 2048,
        layers: 2,
        ..config(Family::Qwen3)
    };
    let models =
        [WeightFormat::Bf16, WeightFormat::Bf16Dot].map(|format| model(&config, 7, format));
    let mut requests = requests(&config, 5, 3, 40);
    // Longer than one pass takes, so the prompt is cut into chunks.
    let mut stream = StreamKey::new(6, 0, 0, Purpose::Data, 0).open();
    let long = tokens(&mut stream, 1100, config.vocab_size);
    for (request, length) in requests.iter_mut().zip([1100, 700, 481]) {
        request.prompt = long[..length].to_vec();
        request.max_new_tokens = 3;
    }
    for model in &models {
        check(model, &requests, 3);
    }
}

#[test]
fn every_instruction_set_gives_the_same_bits() {
    for format in FORMATS {
        let config = config(Family::Qwen2);
        let requests = requests(&config, 11, 5, 60);
        let mut results = Isa::available().into_iter().map(|isa| {
            let model = model(&config, 3, format).with_isa(isa).expect("not shared yet");
            let generated = generate(&model, &requests, &GenerateOptions::default());
            generated.expect("generated").iter().map(bits).collect::<Vec<_>>()
        });
        let plain = results.next().expect("plain Rust is always there");
        for other in results {
            assert_eq!(plain, other);
        }
    }
}

#[test]
fn scores_do_not_depend_on_the_batch_either() {
    let config = config(Family::Qwen3);
    let options = ScoreOptions { top_k: 5, hidden: true, ..ScoreOptions::default() };
    for kv_format in [KvFormat::F32, KvFormat::Bf16] {
        let model =
            model(&config, 8, WeightFormat::F32).with_kv_format(kv_format).expect("not shared yet");
        let mut stream = StreamKey::new(12, 0, 0, Purpose::Data, 0).open();
        let common = tokens(&mut stream, 90, config.vocab_size);
        let rows: Vec<(Vec<u32>, Vec<u32>)> = (0..7)
            .map(|row| {
                let mut prompt = common[..=(13 * row)].to_vec();
                prompt.extend(tokens(&mut stream, 5, config.vocab_size));
                (prompt, tokens(&mut stream, 3 * row, config.vocab_size))
            })
            .collect();
        let requests: Vec<_> = rows
            .iter()
            .map(|(prompt, response)| ScoreRequest { prompt, response, asked: &[] })
            .collect();
        let alone: Vec<_> = requests
            .iter()
            .map(|request| score(&model, &[*request], &options).expect("scored").remove(0))
            .collect();
        for threads in [1, 2] {
            let batch = on_threads(threads, || score(&model, &requests, &options));
            assert_eq!(batch.expect("scored"), alone);
        }
        // In parts, and from pages that other calls left behind.
        let parts = ScoreOptions { kv_budget_bytes: 0, ..options.clone() };
        let mut prefix = PrefixCache::new(1 << 30);
        for _ in 0..2 {
            let batch = score_with(&model, &requests, &parts, &mut prefix).expect("scored");
            assert_eq!(batch, alone);
        }
        assert!(prefix.tokens_reused() > 0);
    }
}

#[test]
fn generating_and_scoring_agree_to_the_bit() {
    for format in FORMATS {
        let config = config(Family::Qwen3);
        let model = model(&config, 21, format);
        let requests = requests(&config, 22, 8, 70);
        let generated =
            generate(&model, &requests, &GenerateOptions::default()).expect("generated");
        for (request, generated) in requests.iter().zip(&generated) {
            let row =
                ScoreRequest { prompt: &request.prompt, response: &generated.tokens, asked: &[] };
            let tau = request.sampling.temperature;
            for (tau, expected) in [(1.0, &generated.logprobs_t1), (tau, &generated.logprobs)] {
                let options = ScoreOptions { tau, ..ScoreOptions::default() };
                let scored = score(&model, &[row], &options).expect("scored").remove(0);
                let got: Vec<u32> =
                    scored.positions.iter().map(|position| position.logprob.to_bits()).collect();
                let expected: Vec<u32> = expected.iter().map(|value| value.to_bits()).collect();
                assert_eq!(got, expected);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn random_batches_are_invariant(
        seed in 0_u64..1000,
        count in 1_usize..8,
        longest in 1_u64..150,
        max_batch in 1_usize..6,
        family in 0_usize..3,
        format in 0_usize..FORMATS.len(),
    ) {
        let config = config(FAMILIES[family]);
        let model = model(&config, seed, FORMATS[format]);
        check(&model, &requests(&config, seed, count, longest), max_batch);
    }
}
