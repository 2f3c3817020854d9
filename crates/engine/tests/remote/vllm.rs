//! vLLM's traps, one test each.

use lens_engine::remote::ServerKind::Vllm;
use lens_engine::remote::{RemoteModels, ServedPolicy};
use lens_engine::{CallFailure, Deadline, EngineError, Models, Policy, Sampling};
use serde_json::{Value, json};

use crate::inference::{Fake, load};
use crate::server::Reply;
use crate::{call, connect, options, policy, prompt};

fn one(
    policy: &dyn Policy,
    sampling: Sampling,
) -> Result<Result<lens_engine::Completion, CallFailure>, EngineError> {
    let calls = [call(policy, "What do you see?", sampling)];
    Ok(policy.generate(&calls, Deadline::never())?.remove(0))
}

#[test]
fn a_served_model_writes_what_the_same_model_writes_here() {
    let (server, _) = Fake::new("student-large").vllm();
    let served = policy(Vllm, &server.url);
    let native = load("student-large");
    let texts = ["Hello", "Go to the desk.", "You see a mug.", "Take it"];
    let calls: Vec<_> = texts.iter().map(|text| call(&served, text, Sampling::GREEDY)).collect();
    let ours = served.generate(&calls, Deadline::never()).expect("answers");
    let theirs = native.generate(&calls, Deadline::never()).expect("answers");
    for (ours, theirs) in ours.into_iter().zip(theirs) {
        let (ours, theirs) = (ours.expect("written"), theirs.expect("written"));
        assert_eq!((ours.tokens, ours.finish), (theirs.tokens, theirs.finish));
        for (ours, theirs) in ours.logprobs.iter().zip(theirs.logprobs) {
            assert!((ours - theirs).abs() < 1e-5);
        }
    }
}

#[test]
fn trap_1_a_missing_flag_is_named() {
    let off = || {
        Reply::json(
            403,
            &json!({"error": {"message": "Scale-out endpoints are disabled.", "code": 403}}),
        )
    };
    let (server, _) = Fake::new("student-large").tweaked(move |_, _| Err(off())).vllm();
    let error = connect(Vllm, &[&server.url], options()).err().expect("refused").to_string();
    assert!(error.contains("--enable-scale-out") && error.contains(&server.url), "{error}");
}

#[test]
fn trap_2_the_key_is_sent_and_a_wrong_one_is_named_without_being_shown() {
    let mut fake = Fake::new("student-large");
    fake.key = Some("right-word".to_owned());
    let (server, _) = fake.vllm();
    let connect = |word: &str| {
        let endpoint = lens_engine::http::Endpoint::new(&server.url, Some(crate::key(word)))
            .expect("an address");
        lens_engine::remote::Served::connect(
            Vllm,
            vec![endpoint],
            crate::codec("student-large"),
            options(),
        )
    };
    connect("right-word").map(|_| ()).expect("the key is right");
    let error = connect("wrong-word").err().expect("refused").to_string();
    assert!(
        error.contains("key_file") && error.contains("401") && !error.contains("wrong-word"),
        "{error}"
    );
}

#[test]
fn trap_6_a_response_the_server_cut_is_no_response() {
    let cut = |_: &_, mut answer: Value| {
        let choice = &mut answer["choices"][0];
        if choice["token_ids"].as_array().is_some_and(|tokens| tokens.len() > 2) {
            for list in ["/token_ids", "/logprobs/content"] {
                choice.pointer_mut(list).and_then(Value::as_array_mut).expect("a list").truncate(2);
            }
            choice["finish_reason"] = json!("length");
        }
        Ok(answer)
    };
    let (server, _) = Fake::new("student-large").tweaked(cut).vllm();
    let served = policy(Vllm, &server.url);
    assert_eq!(one(&served, Sampling::GREEDY).expect("the engine works"), Err(CallFailure::Engine));
}

#[test]
fn trap_6_the_context_is_kept_to_before_the_server_cuts() {
    let mut fake = Fake::new("student-large");
    fake.context = 64;
    let (server, _) = fake.vllm();
    let served = policy(Vllm, &server.url);
    let mut long = call(&served, &"word ".repeat(40), Sampling::GREEDY);
    long.prompt.truncate(60);
    long.max_new_tokens = 30;
    let written = served.generate(&[long.clone()], Deadline::never()).expect("answers").remove(0);
    assert!(written.expect("it fits").tokens.len() <= 4);
    let body = server.seen().last().expect("a request").json();
    assert_eq!(body["sampling_params"]["max_tokens"], 4, "the room that is left is asked for");
    long.prompt = vec![5; 64];
    let before = server.seen().len();
    let written = served.generate(&[long], Deadline::never()).expect("answers").remove(0);
    assert_eq!(written, Err(CallFailure::PromptTooLong));
    assert_eq!(server.seen().len(), before, "nothing was sent");
}

#[test]
fn trap_7_every_sampling_field_is_sent_every_time() {
    let (server, _) = Fake::new("student-large").vllm();
    let served = policy(Vllm, &server.url);
    one(&served, Sampling { temperature: 0.7, top_p: 0.9, top_k: Some(20), min_p: 0.05 })
        .expect("works")
        .expect("written");
    let body = server.seen().last().expect("a request").json();
    let params = &body["sampling_params"];
    for name in [
        "max_tokens",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "seed",
        "stop_token_ids",
        "logprobs",
        "detokenize",
        "repetition_penalty",
        "presence_penalty",
        "frequency_penalty",
    ] {
        assert!(!params[name].is_null(), "{name} is missing");
    }
    assert_eq!(params["temperature"], 0.7, "as it was written, not as an f32 rounds it");
    assert_eq!(params["top_k"], 20);
    let seed = params["seed"].as_u64().expect("a seed");
    assert!(seed > 0 && seed < 1 << 63);
    one(&served, Sampling::at(1.0)).expect("works").expect("written");
    let again = server.seen().last().expect("a request").json();
    assert_eq!(again["sampling_params"]["seed"], seed, "the stream's name decides the seed");
    assert_eq!(again["sampling_params"]["top_k"], 0, "0 is off");
    let error = one(&served, Sampling::at(0.005)).expect_err("the server would raise it to 0.01");
    assert!(matches!(error, EngineError::Request(_)), "{error}");
}

#[test]
fn trap_8_one_prompt_per_request() {
    let (server, _) = Fake::new("student-large").vllm();
    let served = policy(Vllm, &server.url);
    let before = server.count("/inference");
    let mut calls: Vec<_> =
        (0..5).map(|n| call(&served, &"a".repeat(n + 1), Sampling::GREEDY)).collect();
    calls[2].max_prompt_tokens = 1;
    let answers = served.generate(&calls, Deadline::never()).expect("answers");
    assert_eq!(server.count("/inference") - before, 4);
    assert_eq!(answers[2], Err(CallFailure::PromptTooLong));
    assert_eq!(
        answers.iter().filter(|answer| answer.is_ok()).count(),
        4,
        "one bad prompt fails alone"
    );
}

#[test]
fn trap_9_the_number_for_nothing_is_not_a_log_probability() {
    for bad in [json!(-9999.0), json!(null), json!(0.5)] {
        let spoil = move |_: &crate::server::Request, mut answer: Value| {
            if answer["choices"][0]["token_ids"].as_array().is_some_and(|tokens| tokens.len() > 1) {
                answer["choices"][0]["logprobs"]["content"][1]["logprob"] = bad.clone();
            }
            Ok(answer)
        };
        let (server, _) = Fake::new("student-large").tweaked(spoil).vllm();
        let served = policy(Vllm, &server.url);
        assert_eq!(one(&served, Sampling::GREEDY).expect("works"), Err(CallFailure::Engine));
    }
}

#[test]
fn a_token_beyond_the_vocabulary_never_reaches_the_codec() {
    let spoil = |_: &crate::server::Request, mut answer: Value| {
        if answer["choices"][0]["token_ids"].as_array().is_some_and(|tokens| tokens.len() > 1) {
            answer["choices"][0]["token_ids"][1] = json!(3072);
            answer["choices"][0]["logprobs"]["content"][1]["token_id"] = json!(3072);
        }
        Ok(answer)
    };
    let (server, _) = Fake::new("student-large").tweaked(spoil).vllm();
    let served = policy(Vllm, &server.url);
    assert_eq!(one(&served, Sampling::GREEDY).expect("works"), Err(CallFailure::Engine));
}

#[test]
fn trap_14_an_aborted_response_is_a_failure() {
    let abort = |request: &crate::server::Request, mut answer: Value| {
        if request.json()["request_id"] != "probe" {
            answer["choices"][0]["finish_reason"] = json!("abort");
        }
        Ok(answer)
    };
    let (server, _) = Fake::new("student-large").tweaked(abort).vllm();
    let served = policy(Vllm, &server.url);
    assert_eq!(one(&served, Sampling::GREEDY).expect("works"), Err(CallFailure::Engine));
}

#[test]
fn trap_5_an_answer_of_other_weights_stops_everything() {
    let (server, fake) = Fake::new("student-large").vllm();
    let served = policy(Vllm, &server.url);
    one(&served, Sampling::GREEDY).expect("works").expect("written");
    *fake.label.lock().expect("held") = "13".to_owned();
    let error = one(&served, Sampling::GREEDY).expect_err("other weights");
    assert!(matches!(&error, EngineError::Version { found, .. } if found == "13"), "{error}");
    let student = ServedPolicy::at(served.served().clone(), 13);
    one(&student, Sampling::GREEDY).expect("these are the ones").expect("written");
}

#[test]
fn an_old_server_is_refused() {
    let (real, fake) = Fake::new("student-large").vllm();
    drop(real);
    let server = crate::server::Server::start(move |request| match request.path.as_str() {
        "/version" => Reply::json(200, &json!({"version": "0.31.2"})),
        _ => fake.answer_vllm(request),
    });
    let error = connect(Vllm, &[&server.url], options()).err().expect("refused").to_string();
    assert!(error.contains("0.31.2") && error.contains("0.32"), "{error}");
}

#[test]
fn trap_4_weights_are_published_in_the_order_that_clears_the_caches() {
    let (server, fake) = Fake::new("student-large").vllm();
    let served = connect(Vllm, &[&server.url], options()).expect("good");
    let limit = std::time::Duration::from_secs(5);
    let folder = crate::inference::lab("student-large").canonicalize().expect("there");
    served.reload(&folder.to_string_lossy(), "4", limit).expect("published");
    let paths: Vec<String> = server.seen().iter().map(|request| request.path.clone()).collect();
    let control: Vec<&str> = paths
        .iter()
        .map(String::as_str)
        .filter(|path| {
            !path.starts_with("/v1") && !path.starts_with("/inference") && *path != "/version"
        })
        .collect();
    assert_eq!(
        control,
        [
            "/pause?mode=wait",
            "/collective_rpc",
            "/reset_prefix_cache",
            "/update_weight_version",
            "/resume",
            "/weight_info"
        ]
    );
    assert_eq!(*fake.label.lock().expect("held"), "4");
}

#[test]
fn trap_3_a_server_that_could_not_load_is_not_resumed() {
    let (server, fake) = Fake::new("student-large").vllm();
    let served = connect(Vllm, &[&server.url], options()).expect("good");
    let limit = std::time::Duration::from_secs(5);
    let error = served.reload("/nowhere", "5", limit).expect_err("nothing is there").to_string();
    assert!(error.contains(&server.url) && error.contains("restart this server"), "{error}");
    assert_eq!(server.count("/resume"), 0, "a server with broken weights is not resumed");
    assert_eq!(*fake.label.lock().expect("held"), "default");
}

#[test]
fn without_dev_mode_publishing_says_which_switch_is_missing() {
    let mut fake = Fake::new("student-large");
    fake.dev_mode = false;
    let (server, _) = fake.vllm();
    let served = connect(Vllm, &[&server.url], options()).expect("good");
    let error = served
        .reload("/w", "1", std::time::Duration::from_secs(5))
        .expect_err("refused")
        .to_string();
    assert!(error.contains("VLLM_SERVER_DEV_MODE=1"), "{error}");
}

/// Scores of a served teacher against the exact comparison of the same two models here.
pub(crate) fn comparison_is_right(models: &RemoteModels, exact: &dyn Models, asked_ids: bool) {
    let codec = exact.student().codec();
    let calls: Vec<lens_engine::ScoreCall> = ["go to desk 1", "take mug 2 from desk 1 now"]
        .iter()
        .map(|text| lens_engine::ScoreCall {
            prompt: prompt(exact.student(), "You are in a room. What do you do?"),
            response: codec.response(text).expect("tokens"),
            drawn: None,
            compare: true,
            trainable: true,
            temperature: 1.0,
        })
        .collect();
    let ours = models.compare(&calls, Deadline::never()).expect("compared");
    let theirs = exact.compare(&calls, Deadline::never()).expect("compared");
    let close =
        |a: Option<f32>, b: Option<f32>| (a.expect("measured") - b.expect("measured")).abs() < 2e-4;
    let (mut known, mut positions, mut sums) = (0, 0, (0.0, 0.0));
    for (ours, theirs) in ours.into_iter().zip(theirs) {
        let (ours, theirs) = (ours.expect("an answer"), theirs.expect("an answer"));
        assert!(ours.target.is_some());
        assert_eq!(ours.positions.len(), theirs.positions.len());
        for (ours, theirs) in ours.positions.iter().zip(&theirs.positions) {
            assert!(close(ours.teacher_logprob, theirs.teacher_logprob), "{ours:?} {theirs:?}");
            assert!(close(ours.student_logprob, theirs.student_logprob));
            let (a, b) = (ours.top.expect("measured"), theirs.top.expect("measured"));
            assert_eq!((a.student_top, a.teacher_top), (b.student_top, b.teacher_top));
            assert!(close(a.student_at_teacher, b.student_at_teacher));
            assert!(close(a.teacher_at_teacher, b.teacher_at_teacher));
            positions += 1;
            if a.teacher_at_student.is_some() {
                known += 1;
                assert!(close(a.teacher_at_student, b.teacher_at_student));
            }
            let (kl, whole) = (ours.kl.expect("measured"), theirs.kl.expect("measured"));
            assert!(kl <= whole + 1e-3 && kl >= 0.0, "lists give a lower bound: {kl} {whole}");
            sums = (sums.0 + kl, sums.1 + whole);
        }
    }
    assert!(positions > 8);
    assert!(sums.0 > 0.2 * sums.1, "and not an empty one: {sums:?}");
    assert!(known == positions || !asked_ids, "{known} of {positions}");
}

#[test]
fn a_served_teacher_is_compared_with_a_student_here() {
    for asked_ids in [true, false] {
        let mut fake = Fake::new("teacher");
        fake.asked_ids = asked_ids;
        let (server, _) = fake.vllm();
        let (models, exact) = crate::mixed::pair(Vllm, &server.url);
        comparison_is_right(&models, &*exact, asked_ids);
        let body = server
            .seen()
            .into_iter()
            .map(|request| request.json())
            .find(|body| body["sampling_params"]["prompt_logprobs"] == 16);
        let body = body.expect("a score was asked for");
        assert_eq!(body["sampling_params"]["max_tokens"], 1, "0 is refused");
    }
}

#[test]
fn scores_at_another_temperature_are_refused() {
    let (server, _) = Fake::new("teacher").vllm();
    let (models, _) = crate::mixed::pair(Vllm, &server.url);
    let call = lens_engine::ScoreCall {
        prompt: vec![1, 2],
        response: vec![3],
        drawn: None,
        compare: false,
        trainable: false,
        temperature: 0.5,
    };
    let error = models.compare(&[call], Deadline::never()).expect_err("refused").to_string();
    assert!(error.contains("validate.temperature"), "{error}");
}
