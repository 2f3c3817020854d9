//! The pair scorer against the formulas, computed naively in f64 from each model's full distribution.

mod small;

use lens_lm::cache::PrefixCache;
use lens_lm::config::{Family, ModelConfig};
use lens_lm::error::LmError;
use lens_lm::generate::{GenerateOptions, GenerateRequest, generate_with};
use lens_lm::model::{Model, WeightFormat};
use lens_lm::pair::{CrossRow, PairOptions, PairPosition, PairRow, cross_score, pair_score};
use lens_lm::sampling::Sampling;
use lens_lm::score::{ScoreOptions, ScoreRequest, score};
use lens_opd::random::{Purpose, StreamKey};
use small::{config, model, on_threads, tokens};

const REAL: usize = 1190;

fn student() -> Model {
    model(&config(Family::Qwen3), 1, WeightFormat::F32)
}

/// Another shape, padded differently.
fn teacher() -> Model {
    let config = ModelConfig { hidden_size: 56, vocab_size: 1216, ..config(Family::Qwen2) };
    model(&config, 2, WeightFormat::F32)
}

/// Log-probabilities of every real token at every response position.
fn distributions(model: &Model, prompt: &[u32], response: &[u32], tau: f32) -> Vec<Vec<f64>> {
    let asked = vec![(0..REAL as u32).collect::<Vec<_>>(); response.len()];
    let row = ScoreRequest { prompt, response, asked: &asked };
    let options = ScoreOptions { tau, real_vocab: Some(REAL), ..ScoreOptions::default() };
    let scored = score(model, &[row], &options).expect("scored").remove(0);
    let wide = |values: &[f32]| values.iter().map(|&value| f64::from(value)).collect();
    scored.positions.iter().map(|position| wide(&position.asked)).collect()
}

fn top1(logprobs: &[f64]) -> usize {
    (0..logprobs.len()).rev().max_by(|&a, &b| logprobs[a].total_cmp(&logprobs[b])).expect("some")
}

#[test]
fn every_statistic_matches_the_full_computation() {
    let (student, teacher) = (student(), teacher());
    let mut stream = StreamKey::new(3, 0, 0, Purpose::Data, 0).open();
    let rows: Vec<(Vec<u32>, Vec<u32>)> = [(30, 7), (1, 1), (50, 20), (3, 0), (20, 40)]
        .into_iter()
        .map(|(prompt, response)| {
            (tokens(&mut stream, prompt, REAL), tokens(&mut stream, response, REAL))
        })
        .collect();
    let pairs: Vec<_> =
        rows.iter().map(|(prompt, response)| PairRow { prompt, response }).collect();
    for tau in [1.0, 0.6] {
        let options = PairOptions { tau, real_vocab: Some(REAL), ..PairOptions::default() };
        let scored = pair_score(&student, &teacher, &pairs, &options).expect("scored");
        for ((prompt, response), positions) in rows.iter().zip(&scored) {
            assert_eq!(positions.len(), response.len());
            let s = distributions(&student, prompt, response, tau);
            let t = distributions(&teacher, prompt, response, tau);
            for (at, position) in positions.iter().enumerate() {
                let (s, t) = (&s[at], &t[at]);
                let kl: f64 = s.iter().zip(t).map(|(s, t)| s.exp() * (s - t)).sum();
                assert!(
                    (f64::from(position.kl) - kl).abs() < 2e-5 * (1.0 + kl),
                    "{} {kl}",
                    position.kl
                );
                let (v_s, v_t) = (top1(s), top1(t));
                let token = response[at] as usize;
                let expected = PairPosition {
                    kl: position.kl,
                    student_top1: v_s as u32,
                    teacher_top1: v_t as u32,
                    student_at_student_top1: s[v_s] as f32,
                    student_at_teacher_top1: s[v_t] as f32,
                    teacher_at_teacher_top1: t[v_t] as f32,
                    teacher_at_student_top1: t[v_s] as f32,
                    student_logprob: s[token] as f32,
                    teacher_logprob: t[token] as f32,
                };
                assert_eq!(*position, expected);
            }
        }
    }
}

#[test]
fn results_do_not_depend_on_batch_or_threads() {
    let (student, teacher) = (student(), teacher());
    let mut stream = StreamKey::new(4, 0, 0, Purpose::Data, 0).open();
    let common = tokens(&mut stream, 60, REAL);
    let rows: Vec<(Vec<u32>, Vec<u32>)> = (0..5)
        .map(|row| {
            let own = tokens(&mut stream, 1 + row, REAL);
            ([&common[..10 * row], &own[..]].concat(), tokens(&mut stream, 6, REAL))
        })
        .collect();
    let pairs: Vec<_> =
        rows.iter().map(|(prompt, response)| PairRow { prompt, response }).collect();
    let options = PairOptions { real_vocab: Some(REAL), ..PairOptions::default() };
    let alone: Vec<_> = pairs
        .iter()
        .map(|row| pair_score(&student, &teacher, &[*row], &options).expect("scored").remove(0))
        .collect();
    for threads in [1, 2] {
        for kv_budget_bytes in [0, 1 << 30] {
            let options = PairOptions { kv_budget_bytes, ..options.clone() };
            let batch = on_threads(threads, || pair_score(&student, &teacher, &pairs, &options));
            assert_eq!(batch.expect("scored"), alone);
        }
    }
}

#[test]
fn what_writing_left_behind_has_the_bits_that_judging_would_compute() {
    let (student, teacher) = (student(), teacher());
    let mut stream = StreamKey::new(5, 0, 0, Purpose::Data, 0).open();
    let requests: Vec<GenerateRequest> = (0..6)
        .map(|number| GenerateRequest {
            prompt: tokens(&mut stream, 20 + 7 * number, REAL),
            max_new_tokens: 5 + 3 * number,
            stop: Vec::new(),
            sampling: Sampling::at_temperature(0.7),
            key: StreamKey::new(5, 1, number as u64, Purpose::Rollout, 0),
        })
        .collect();
    let options =
        GenerateOptions { real_vocab: Some(REAL), max_batch: 4, ..GenerateOptions::default() };
    let mut known = PrefixCache::new(1 << 30);
    let written =
        generate_with(&student, &requests, &options, &mut known, &mut |_| {}).expect("written");
    // A response nobody wrote stands between those that were.
    let foreign = tokens(&mut stream, 9, REAL);
    let mut responses: Vec<&[u32]> = written.iter().map(|one| &one.tokens[..]).collect();
    responses[2] = &foreign;
    let rows: Vec<CrossRow<'_>> = requests
        .iter()
        .zip(&responses)
        .map(|(request, response)| CrossRow {
            student_prompt: &request.prompt,
            teacher_prompt: &request.prompt,
            response,
        })
        .collect();
    let options =
        PairOptions { real_vocab: Some(REAL), teacher_top_k: 3, ..PairOptions::default() };
    let judge = |known: &mut PrefixCache| {
        let mut teachers = PrefixCache::new(1 << 30);
        cross_score(&student, &teacher, &rows, &options, known, Some(&mut teachers))
            .expect("scored")
    };
    let before = known.tokens_reused();
    let looked_up = judge(&mut known);
    let reused = known.tokens_reused() - before;
    assert_eq!(looked_up, judge(&mut PrefixCache::new(1 << 30)));
    let whole = |row: usize| (rows[row].student_prompt.len() + rows[row].response.len()) as u64;
    let all_but_the_foreign: u64 = [0, 1, 3, 4, 5].map(whole).into_iter().sum();
    let beginning = (rows[2].student_prompt.len() - 1) as u64 / 16 * 16;
    assert_eq!(reused, all_but_the_foreign + beginning);
    let top = &looked_up[0].teacher_top[0];
    assert_eq!((top.len(), top[0].0), (3, looked_up[0].positions[0].teacher_top1));

    // Other weights find nothing of these.
    let other = teacher_of_the_students_shape();
    let after = cross_score(&other, &teacher, &rows, &options, &mut known, None).expect("scored");
    let fresh =
        cross_score(&other, &teacher, &rows, &options, &mut PrefixCache::new(1 << 30), None)
            .expect("scored");
    assert_eq!(after, fresh);
    assert_ne!(after[0].student_hidden, looked_up[0].student_hidden);
}

fn teacher_of_the_students_shape() -> Model {
    model(&config(Family::Qwen3), 9, WeightFormat::F32)
}

#[test]
fn one_model_in_two_contexts_shares_one_cache() {
    let model = student();
    let mut stream = StreamKey::new(6, 0, 0, Purpose::Data, 0).open();
    let (common, hint) = (tokens(&mut stream, 64, REAL), tokens(&mut stream, 20, REAL));
    let (plain, hinted) = (common.clone(), [&common[..], &hint[..]].concat());
    let response = tokens(&mut stream, 12, REAL);
    let row = CrossRow { student_prompt: &hinted, teacher_prompt: &plain, response: &response };
    let options = PairOptions { real_vocab: Some(REAL), ..PairOptions::default() };
    let mut shared = PrefixCache::new(1 << 30);
    let together = cross_score(&model, &model, &[row], &options, &mut shared, None);
    assert_eq!(shared.tokens_reused(), 48, "whole pages before the last token of the plain prompt");
    let mut two = [(); 2].map(|()| PrefixCache::new(1 << 30));
    let [first, second] = &mut two;
    let apart = cross_score(&model, &model, &[row], &options, first, Some(second));
    assert_eq!(together.expect("scored"), apart.expect("scored"));
}

#[test]
fn a_model_does_not_diverge_from_itself() {
    let student = student();
    let row = PairRow { prompt: &[1, 2, 3], response: &[4, 5, 6, 7] };
    let scored = pair_score(&student, &student, &[row], &PairOptions::default()).expect("scored");
    for position in &scored[0] {
        assert_eq!(position.kl, 0.0);
        assert_eq!(position.student_top1, position.teacher_top1);
        assert_eq!(position.student_logprob, position.teacher_logprob);
    }
}

#[test]
fn a_tiny_divergence_keeps_its_digits() {
    let config = config(Family::Qwen3);
    let mut parameters = small::parameters(&config, 1);
    let student = Model::new(&config, &parameters, WeightFormat::F32).expect("model");
    for value in &mut parameters.get_mut("model.norm.weight").expect("there").data {
        *value *= 1.0005;
    }
    let teacher = Model::new(&config, &parameters, WeightFormat::F32).expect("model");
    let (prompt, response) = ([5, 6, 7], [8, 9]);
    let row = PairRow { prompt: &prompt, response: &response };
    let options = PairOptions { real_vocab: Some(REAL), ..PairOptions::default() };
    let scored = pair_score(&student, &teacher, &[row], &options).expect("scored").remove(0);
    let s = distributions(&student, &prompt, &response, 1.0);
    for (position, s) in scored.iter().zip(&s) {
        // All logits are stretched by one factor 1 + d: KL = d^2 / 2 * variance of the logits, to leading order.
        let mean: f64 = s.iter().map(|s| s.exp() * s).sum();
        let variance: f64 = s.iter().map(|s| s.exp() * (s - mean).powi(2)).sum();
        let expected = 0.5 * 0.0005_f64.powi(2) * variance;
        let relative = (f64::from(position.kl) - expected).abs() / expected;
        assert!(relative < 0.05, "{} against {expected:e}", position.kl);
    }
}

#[test]
fn models_that_do_not_fit_together_are_refused() {
    let (student, teacher) = (student(), teacher());
    let row = PairRow { prompt: &[1], response: &[2] };
    let error = pair_score(&student, &teacher, &[row], &PairOptions::default());
    let message = error.expect_err("padded differently").to_string();
    assert!(message.contains("1200") && message.contains("1216"), "{message}");
    let options = PairOptions { real_vocab: Some(1210), ..PairOptions::default() };
    let error = pair_score(&student, &teacher, &[row], &options).expect_err("too many");
    assert!(error.to_string().contains("1210 real tokens"), "{error}");
    let options = PairOptions { real_vocab: Some(REAL), ..PairOptions::default() };
    let row = PairRow { prompt: &[1], response: &[REAL as u32] };
    let error = pair_score(&student, &teacher, &[row], &options).expect_err("padding");
    assert!(matches!(error, LmError::Request { index: 0, .. }), "{error:?}");
    let row = PairRow { prompt: &[], response: &[1] };
    let error = pair_score(&student, &teacher, &[row], &options).expect_err("empty");
    assert!(error.to_string().contains("prompt is empty"), "{error}");
    let options = PairOptions { tau: 0.0, ..options };
    let row = PairRow { prompt: &[1], response: &[1] };
    let error = pair_score(&student, &teacher, &[row], &options).expect_err("tau");
    assert!(error.to_string().contains("tau 0"), "{error}");
}
