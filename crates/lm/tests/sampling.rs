//! Sampling: the right distribution, the right filters, the right ends.

mod small;

use lens_lm::cache::PrefixCache;
use lens_lm::config::{Family, ModelConfig};
use lens_lm::error::LmError;
use lens_lm::generate::{
    FinishReason, GenerateOptions, GenerateRequest, Generated, TokenEvent, generate, generate_with,
};
use lens_lm::model::{Model, WeightFormat};
use lens_lm::sampling::Sampling;
use lens_lm::score::{ScoreOptions, ScoreRequest, score};
use lens_opd::random::{Purpose, StreamKey};
use small::{config, model, parameters};

const VOCAB: usize = 40;

fn tiny() -> ModelConfig {
    ModelConfig { vocab_size: VOCAB, max_position: 64, ..config(Family::Qwen3) }
}

fn request(prompt: &[u32], max_new_tokens: usize, sampling: Sampling) -> GenerateRequest {
    GenerateRequest {
        prompt: prompt.to_vec(),
        max_new_tokens,
        stop: Vec::new(),
        sampling,
        key: StreamKey::new(1, 0, 0, Purpose::Rollout, 0),
    }
}

fn run(model: &Model, request: &GenerateRequest) -> Generated {
    generate(model, std::slice::from_ref(request), &GenerateOptions::default())
        .expect("generated")
        .remove(0)
}

/// The next-token distribution after a prompt, by ids.
fn distribution(model: &Model, prompt: &[u32], tau: f32) -> Vec<f64> {
    let asked = [(0..VOCAB as u32).collect::<Vec<_>>()];
    let row = ScoreRequest { prompt, response: &[0], asked: &asked };
    let options = ScoreOptions { tau, ..ScoreOptions::default() };
    let scored = score(model, &[row], &options).expect("scored").remove(0);
    scored.positions[0].asked.iter().map(|&logprob| f64::from(logprob).exp()).collect()
}

/// How often each token comes up as the first one, over many streams.
fn counts(model: &Model, prompt: &[u32], sampling: Sampling, draws: u64) -> Vec<f64> {
    let requests: Vec<_> = (0..draws)
        .map(|episode| GenerateRequest {
            key: StreamKey::new(3, 0, episode, Purpose::Rollout, 0),
            ..request(prompt, 1, sampling)
        })
        .collect();
    let options = GenerateOptions { max_batch: 500, ..GenerateOptions::default() };
    let mut counts = vec![0.0; VOCAB];
    for generated in generate(model, &requests, &options).expect("generated") {
        counts[generated.tokens[0] as usize] += 1.0;
    }
    counts
}

/// Pearson's statistic against expected probabilities, and its degrees of freedom.
fn chi_square(counts: &[f64], probabilities: &[f64]) -> (f64, f64) {
    let draws: f64 = counts.iter().sum();
    let cells: Vec<(f64, f64)> = counts
        .iter()
        .zip(probabilities)
        .map(|(&count, &probability)| (count, probability * draws))
        .filter(|&(_, expected)| expected > 0.0)
        .collect();
    let statistic = cells.iter().map(|(count, expected)| (count - expected).powi(2) / expected);
    (statistic.sum(), cells.len() as f64 - 1.0)
}

fn assert_distributed(counts: &[f64], probabilities: &[f64]) {
    for (id, (&count, &probability)) in counts.iter().zip(probabilities).enumerate() {
        assert!(probability > 0.0 || count == 0.0, "token {id} is filtered out but came up");
    }
    let (statistic, freedom) = chi_square(counts, probabilities);
    // Mean plus five standard deviations.
    assert!(statistic < freedom + 5.0 * (2.0 * freedom).sqrt(), "{statistic} for {freedom}");
}

#[test]
fn tokens_follow_the_models_distribution_at_any_temperature() {
    let model = model(&tiny(), 1, WeightFormat::F32);
    for temperature in [0.5, 1.0, 2.0] {
        let expected = distribution(&model, &[3, 1, 4], temperature);
        let counts = counts(&model, &[3, 1, 4], Sampling::at_temperature(temperature), 4000);
        assert_distributed(&counts, &expected);
    }
}

fn renormalized(probabilities: &[f64], keep: impl Fn(usize) -> bool) -> Vec<f64> {
    let kept: Vec<f64> = probabilities
        .iter()
        .enumerate()
        .map(|(id, &probability)| if keep(id) { probability } else { 0.0 })
        .collect();
    let total: f64 = kept.iter().sum();
    kept.iter().map(|probability| probability / total).collect()
}

#[test]
fn the_filters_keep_exactly_what_they_promise() {
    let model = model(&tiny(), 2, WeightFormat::F32);
    let prompt = [7, 7, 2];
    let full = distribution(&model, &prompt, 1.0);
    let mut ranked: Vec<usize> = (0..VOCAB).collect();
    ranked.sort_by(|&a, &b| full[b].total_cmp(&full[a]));
    let rank = |id: usize| ranked.iter().position(|&other| other == id).expect("ranked");
    // The mass of everything more likely than a token tells whether the nucleus needs it.
    let before =
        |id: usize, among: &[f64]| -> f64 { ranked[..rank(id)].iter().map(|&id| among[id]).sum() };

    let top_k = renormalized(&full, |id| rank(id) < 5);
    let sampling = Sampling { top_k: 5, ..Sampling::default() };
    assert_distributed(&counts(&model, &prompt, sampling, 3000), &top_k);

    let top_p = renormalized(&full, |id| before(id, &full) < 0.6);
    let sampling = Sampling { top_p: 0.6, ..Sampling::default() };
    assert_distributed(&counts(&model, &prompt, sampling, 3000), &top_p);

    let min_p = renormalized(&full, |id| full[id] >= 0.3 * full[ranked[0]]);
    let sampling = Sampling { min_p: 0.3, ..Sampling::default() };
    assert_distributed(&counts(&model, &prompt, sampling, 3000), &min_p);

    // Top-p counts the mass that top-k left.
    let both = renormalized(&top_k, |id| before(id, &top_k) < 0.7);
    let sampling = Sampling { top_k: 5, top_p: 0.7, ..Sampling::default() };
    assert_distributed(&counts(&model, &prompt, sampling, 3000), &both);
}

#[test]
fn greedy_takes_the_lowest_of_equal_tokens() {
    let config = ModelConfig { tied_head: false, ..tiny() };
    let mut parameters = parameters(&config, 3);
    let head = parameters.get_mut("lm_head.weight").expect("untied");
    // Every token gets the same logit.
    let first = head.data[..config.hidden_size].to_vec();
    for row in head.data.chunks_exact_mut(config.hidden_size) {
        row.copy_from_slice(&first);
    }
    let model = Model::new(&config, &parameters, WeightFormat::F32).expect("model");
    let generated = run(&model, &request(&[5], 3, Sampling::greedy()));
    assert_eq!(generated.tokens, [0, 0, 0]);
    assert!((generated.logprobs[0] - -(VOCAB as f32).ln()).abs() < 1e-5);
    let by_temperature = run(&model, &request(&[5], 3, Sampling::at_temperature(0.0)));
    assert_eq!(by_temperature, generated);
}

#[test]
fn responses_end_at_a_stop_token_at_the_limit_or_with_the_context() {
    let model = model(&tiny(), 4, WeightFormat::F32);
    let free = run(&model, &request(&[1, 2, 3], 10, Sampling::default()));
    assert_eq!((free.tokens.len(), free.finish), (10, FinishReason::Length));

    let stop = free.tokens[4];
    let first = free.tokens.iter().position(|&token| token == stop).expect("there") + 1;
    let stopped = run(
        &model,
        &GenerateRequest { stop: vec![99, stop], ..request(&[1, 2, 3], 10, Sampling::default()) },
    );
    assert_eq!(stopped.tokens, free.tokens[..first], "the stop token is part of the response");
    assert_eq!(stopped.finish, FinishReason::Stop);

    // A stop token that is also the last allowed one counts as a stop.
    let last = run(
        &model,
        &GenerateRequest { stop: vec![stop], ..request(&[1, 2, 3], first, Sampling::default()) },
    );
    assert_eq!(last.finish, FinishReason::Stop);

    let full = run(&model, &request(&[1, 2, 3], 1000, Sampling::default()));
    assert_eq!((full.tokens.len(), full.finish), (61, FinishReason::Context));
    let options = GenerateOptions { context: Some(5), ..GenerateOptions::default() };
    let short = generate(&model, &[request(&[1, 2, 3], 9, Sampling::default())], &options);
    let short = short.expect("generated").remove(0);
    assert_eq!((short.tokens.len(), short.finish), (2, FinishReason::Context));

    let none = run(&model, &request(&[1], 0, Sampling::default()));
    assert_eq!((none.tokens.len(), none.finish), (0, FinishReason::Length));
}

#[test]
fn padding_is_cut_before_the_softmax() {
    let mut parameters = parameters(&tiny(), 5);
    let embedding = parameters.get_mut("model.embed_tokens.weight").expect("there");
    // Padding that would win every time.
    for row in embedding.data.chunks_exact_mut(tiny().hidden_size).skip(30) {
        row.fill(50.0);
    }
    let model = Model::new(&tiny(), &parameters, WeightFormat::F32).expect("model");
    let requests: Vec<_> = (0..50)
        .map(|episode| GenerateRequest {
            key: StreamKey::new(1, 0, episode, Purpose::Rollout, 0),
            ..request(&[1, 2], 5, Sampling::default())
        })
        .collect();
    let options = GenerateOptions { real_vocab: Some(30), ..GenerateOptions::default() };
    for generated in generate(&model, &requests, &options).expect("generated") {
        assert!(generated.tokens.iter().all(|&token| token < 30), "{:?}", generated.tokens);
    }
    let asked = [(0..30).collect::<Vec<u32>>()];
    let row = ScoreRequest { prompt: &[1, 2], response: &[0], asked: &asked };
    let options = ScoreOptions { real_vocab: Some(30), ..ScoreOptions::default() };
    let scored = score(&model, &[row], &options).expect("scored").remove(0);
    let total: f64 = scored.positions[0].asked.iter().map(|&p| f64::from(p).exp()).sum();
    assert!((total - 1.0).abs() < 1e-5, "{total}");
}

#[test]
fn a_finished_sequence_makes_room_at_once_and_tokens_stream_in_order() {
    let model = model(&tiny(), 6, WeightFormat::F32);
    let requests: Vec<_> = [1, 9, 2, 5]
        .into_iter()
        .map(|length| request(&[8, 8], length, Sampling::default()))
        .collect();
    let options = GenerateOptions { max_batch: 2, ..GenerateOptions::default() };
    let mut events: Vec<TokenEvent> = Vec::new();
    let mut prefix = PrefixCache::new(1 << 20);
    let generated = generate_with(&model, &requests, &options, &mut prefix, &mut |event| {
        events.push(event);
    })
    .expect("generated");
    for (index, generated) in generated.iter().enumerate() {
        let streamed: Vec<u32> =
            events.iter().filter(|e| e.request == index).map(|e| e.token).collect();
        assert_eq!(streamed, generated.tokens);
    }
    let at = |request: usize, last: bool| {
        let mut places = events.iter().enumerate().filter(|(_, e)| e.request == request);
        let place = if last { places.next_back() } else { places.next() };
        place.expect("streamed").0
    };
    assert!(at(2, false) < at(1, true), "the third starts before the second ends");
    assert!(at(3, false) > at(2, true), "no more than two at a time");
}

#[test]
fn bad_requests_are_refused_with_a_reason() {
    let model = model(&tiny(), 7, WeightFormat::F32);
    let good = request(&[1], 2, Sampling::default());
    let refused = |bad: GenerateRequest| {
        let error = generate(&model, &[good.clone(), bad], &GenerateOptions::default());
        let error = error.expect_err("refused");
        assert!(matches!(error, LmError::Request { index: 1, .. }), "{error:?}");
        error.to_string()
    };
    assert!(refused(request(&[], 2, Sampling::default())).contains("prompt is empty"));
    assert!(
        refused(request(&[1; 64], 2, Sampling::default())).contains("no room in a context of 64")
    );
    assert!(
        refused(request(&[1, 40], 2, Sampling::default())).contains("token 1 of the prompt is 40")
    );
    let settings = |sampling| refused(request(&[1], 2, sampling));
    assert!(settings(Sampling::at_temperature(-1.0)).contains("temperature"));
    assert!(settings(Sampling::at_temperature(f32::NAN)).contains("temperature"));
    assert!(settings(Sampling { top_p: 0.0, ..Sampling::default() }).contains("top_p"));
    assert!(settings(Sampling { min_p: 1.5, ..Sampling::default() }).contains("min_p"));
    let options = GenerateOptions { real_vocab: Some(41), ..GenerateOptions::default() };
    let error = generate(&model, &[good], &options).expect_err("more tokens than rows");
    assert!(error.to_string().contains("41 real tokens"), "{error}");
}

#[test]
fn weights_that_overflow_are_an_error_not_a_token() {
    let mut parameters = parameters(&tiny(), 8);
    for value in &mut parameters.get_mut("model.norm.weight").expect("there").data {
        *value = 1e38;
    }
    let model = Model::new(&tiny(), &parameters, WeightFormat::F32).expect("finite");
    let request = request(&[1, 2], 2, Sampling::default());
    let error = generate(&model, &[request], &GenerateOptions::default()).expect_err("not finite");
    assert!(matches!(error, LmError::NotFinite { index: 0, .. }), "{error:?}");
}
