//! Traps of scoring and of waiting, one test each; those of writing and publishing are in `vllm.rs`, those of the worker in
//! `torch.rs` and in `python/tests`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lens_engine::remote::ServerKind::{SgLang, Vllm};
use lens_engine::remote::{ServedPolicy, ServerKind};
use lens_engine::{CallFailure, Compared, Deadline, Models, Policy, Sampling, ScoreCall};
use serde_json::{Value, json};

use crate::inference::Fake;
use crate::server::{Reply, Request, Server};
use crate::{call, connect, mixed, options, policy, prompt};

fn score_call(models: &dyn Models, text: &str) -> ScoreCall {
    ScoreCall {
        prompt: prompt(models.student(), "You are in a room. What do you do?"),
        response: models.student().codec().response(text).expect("tokens"),
        drawn: None,
        compare: true,
        trainable: true,
        temperature: 1.0,
    }
}

fn compare(models: &dyn Models, call: &ScoreCall) -> Compared {
    let mut answers =
        models.compare(std::slice::from_ref(call), Deadline::never()).expect("compared");
    answers.remove(0).expect("an answer")
}

/// The bodies of the calls that scored with lists.
fn scored(server: &Server) -> Vec<Value> {
    let bodies = server.seen().into_iter().map(|request| request.json());
    bodies
        .filter(|body| {
            !body["sampling_params"]["prompt_logprobs"].is_null()
                || body["top_logprobs_num"].as_u64().is_some_and(|k| k > 1)
        })
        .collect()
}

#[test]
fn trap_10_every_position_is_about_its_own_token() {
    for kind in [Vllm, SgLang] {
        let fake = Fake::new("teacher");
        let (server, _) = if kind == Vllm { fake.vllm() } else { fake.sglang() };
        let (models, exact) = mixed::pair(kind, &server.url);
        let call = score_call(&*exact, "take mug 2 from desk 1");
        let values = |compared: Compared| -> Vec<f32> {
            compared.positions.iter().map(|at| at.teacher_logprob.expect("measured")).collect()
        };
        let (ours, theirs) = (values(compare(&*models, &call)), values(compare(&*exact, &call)));
        assert_eq!(ours.len(), call.response.len());
        let distance = |shift: usize| -> f32 {
            let pairs = ours[shift..].iter().zip(&theirs);
            pairs.map(|(ours, theirs)| (ours - theirs).abs()).fold(0.0, f32::max)
        };
        assert!(distance(0) < 2e-4, "{kind:?}: {ours:?} {theirs:?}");
        assert!(distance(1) > 0.1, "the text tells one position from the next");
    }
}

#[test]
fn trap_11_the_favorite_is_the_likeliest_entry_whatever_its_rank() {
    let spoil = |_: &Request, mut answer: Value| {
        for entry in answer["prompt_logprobs"].as_array_mut().into_iter().flatten() {
            for listed in entry.as_object_mut().into_iter().flat_map(|entry| entry.values_mut()) {
                listed["rank"] = json!(4);
            }
        }
        Ok(answer)
    };
    let (server, _) = Fake::new("teacher").tweaked(spoil).vllm();
    let (models, exact) = mixed::pair(Vllm, &server.url);
    // A token that is hardly ever said here stands outside the list, as one entry more.
    let call = score_call(&*exact, "zebra zebra");
    let (ours, theirs) = (compare(&*models, &call), compare(&*exact, &call));
    let mut outside = 0;
    for (ours, theirs) in ours.positions.iter().zip(&theirs.positions) {
        let (a, b) = (ours.top.expect("measured"), theirs.top.expect("measured"));
        assert_eq!(a.teacher_top, b.teacher_top);
        let gap = ours.teacher_logprob.expect("measured") - theirs.teacher_logprob.expect("known");
        assert!(gap.abs() < 2e-4);
        outside += usize::from(ours.teacher_logprob < Some(-8.0));
    }
    assert!(outside > 0, "a realized token was outside the list");
}

#[test]
fn trap_12_scoring_asks_for_the_one_token_it_throws_away() {
    let refuse = |request: &Request, answer: Value| {
        if request.json()["sampling_params"]["max_tokens"] == 0 {
            return Err(Reply::json(
                400,
                &json!({"error": {"message": "max_tokens must be at least 1, got 0."}}),
            ));
        }
        Ok(answer)
    };
    let (server, _) = Fake::new("teacher").tweaked(refuse).vllm();
    let (models, exact) = mixed::pair(Vllm, &server.url);
    let call = score_call(&*exact, "go to desk 1");
    assert_eq!(compare(&*models, &call).positions.len(), call.response.len());
    assert!(scored(&server).iter().all(|body| body["sampling_params"]["max_tokens"] == 1));
}

#[test]
fn trap_13_a_row_is_read_once_and_from_its_response_on_where_that_can_be_said() {
    let (server, _) = Fake::new("teacher").vllm();
    let (models, exact) = mixed::pair(Vllm, &server.url);
    let call = score_call(&*exact, "go to desk 1");
    compare(&*models, &call);
    // The whole context is read again at every call, so nothing is asked for twice.
    assert_eq!(scored(&server).len(), 1, "one list per row");
    let (server, _) = Fake::new("teacher").sglang();
    let (models, exact) = mixed::pair(SgLang, &server.url);
    let call = score_call(&*exact, "go to desk 1");
    compare(&*models, &call);
    let start = call.prompt.len() as u64 - 1;
    let bodies = scored(&server);
    assert!(!bodies.is_empty() && bodies.iter().all(|body| body["logprob_start_len"] == start));
}

#[test]
fn trap_15_a_paused_server_costs_its_deadline() {
    for waits in [true, false] {
        let paused = std::sync::Arc::new(AtomicBool::new(false));
        let (server, fake) = Fake::new("student-large").vllm();
        drop(server);
        let asleep = paused.clone();
        // 0.32 lets new requests wait for ever; 0.33 refuses them.
        let server = Server::start(move |request| {
            match asleep.load(Ordering::SeqCst) && request.is("POST", "/inference/v1/generate") {
                true if waits => Reply::Hang(Duration::from_secs(20)),
                true => Reply::json(503, &json!({"error": {"message": "The engine is paused."}})),
                false => fake.answer_vllm(request),
            }
        });
        let mut options = options();
        options.timeout = Duration::from_millis(1500);
        let served = ServedPolicy::frozen(connect(Vllm, &[&server.url], options).expect("good"));
        let calls = [call(&served, "Go.", Sampling::GREEDY)];
        let once =
            || served.generate(&calls, Deadline::never()).expect("the run goes on").remove(0);
        once().expect("written");
        paused.store(true, Ordering::SeqCst);
        let began = Instant::now();
        let failure = if waits { CallFailure::Timeout } else { CallFailure::Engine };
        assert_eq!(once(), Err(failure));
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        paused.store(false, Ordering::SeqCst);
        once().expect("and then it is written");
    }
}

#[test]
fn trap_16_the_health_check_that_writes_is_never_asked() {
    let broken = |request: &Request, answer: Value| {
        if request.json()["rid"].as_str().is_some_and(|rid| rid.starts_with("probe")) {
            return Ok(answer);
        }
        Err(Reply::json(500, &json!({"error": {"message": "out of luck"}})))
    };
    let (server, _) = Fake::new("student-large").tweaked(broken).sglang();
    let served = policy(SgLang, &server.url);
    let calls = [call(&served, "Go.", Sampling::GREEDY)];
    let answer = served.generate(&calls, Deadline::never()).expect("the run goes on").remove(0);
    assert_eq!(answer, Err(CallFailure::Engine));
    assert!(server.count("/ready") > 0, "whether it is dead was asked");
    assert_eq!(server.count("/health"), 0);
}

#[test]
fn trap_17_the_last_id_of_the_vocabulary_is_scored_under_another_name() {
    let (server, _) = Fake::new("teacher").sglang();
    let (models, exact) = mixed::pair(SgLang, &server.url);
    let mut call = score_call(&*exact, "go to desk 1");
    let last = crate::codec("teacher").tokenizer().real_tokens() as u32 - 1;
    call.response[1] = last;
    let (ours, theirs) = (compare(&*models, &call), compare(&*exact, &call));
    for (ours, theirs) in ours.positions.iter().zip(&theirs.positions) {
        let gap = ours.teacher_logprob.expect("measured") - theirs.teacher_logprob.expect("known");
        assert!(gap.abs() < 2e-4, "{ours:?} {theirs:?}");
    }
}

#[test]
fn trap_20_ids_are_never_asked_for_at_written_positions() {
    let kinds: [(ServerKind, bool); 2] = [(Vllm, true), (Vllm, false)];
    for (kind, asked_ids) in kinds {
        let mut fake = Fake::new("teacher");
        fake.asked_ids = asked_ids;
        let (server, _) = fake.vllm();
        let (models, exact) = mixed::pair(kind, &server.url);
        compare(&*models, &score_call(&*exact, "go to desk 1"));
        let teacher = models.teacher();
        let calls = [call(teacher, "Go.", Sampling::at(1.0))];
        teacher.generate(&calls, Deadline::never()).expect("works").remove(0).expect("written");
        let bodies: Vec<Value> = server.seen().iter().map(Request::json).collect();
        assert!(bodies.len() > 3);
        for body in bodies {
            assert!(body["sampling_params"].get("logprob_token_ids").is_none(), "{body}");
        }
    }
}
