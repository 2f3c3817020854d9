//! SGLang, against a server written from its documented protocol. SGLang itself was never run here.

use lens_engine::remote::ServerKind::SgLang;
use lens_engine::{CallFailure, Deadline, EngineError, Policy, Sampling};
use serde_json::{Value, json};

use crate::inference::{Fake, load};
use crate::server::{Reply, Request, Server};
use crate::{call, connect, options, policy};

#[test]
fn a_served_model_writes_what_the_same_model_writes_here() {
    let (server, _) = Fake::new("student-large").sglang();
    let served = policy(SgLang, &server.url);
    let calls = [call(&served, "Go to the desk.", Sampling::GREEDY)];
    let ours =
        served.generate(&calls, Deadline::never()).expect("answers").remove(0).expect("written");
    let theirs = load("student-large").generate(&calls, Deadline::never()).expect("answers");
    assert_eq!(ours.tokens, theirs[0].as_ref().expect("written").tokens);
    let body = server.seen().last().expect("a request").json();
    assert_eq!(body["sampling_params"]["top_k"], -1, "0 is refused");
    assert!(
        body["sampling_params"]["sampling_seed"]
            .as_u64()
            .is_some_and(|seed| seed > 0 && seed < 1 << 63)
    );
    assert!(
        body["rid"].as_str().is_some_and(|rid| rid.ends_with(';')),
        "aborts match the beginning of ids"
    );
}

#[test]
fn a_served_teacher_is_compared_with_a_student_here() {
    let (server, _) = Fake::new("teacher").sglang();
    let (models, exact) = crate::mixed::pair(SgLang, &server.url);
    crate::vllm::comparison_is_right(&models, &*exact, true);
    let scored: Vec<Value> = server
        .seen()
        .iter()
        .map(Request::json)
        .filter(|body| body["top_logprobs_num"] == 16)
        .collect();
    assert!(!scored.is_empty());
    for body in scored {
        assert_eq!(body["sampling_params"]["max_new_tokens"], 0);
        assert!(
            body["logprob_start_len"].as_u64().is_some_and(|start| start > 0),
            "the cached prompt is used"
        );
    }
}

#[test]
fn aborted_short_and_broken_answers_are_failures() {
    let spoils: [fn(&mut Value); 4] = [
        |answer| answer["meta_info"]["finish_reason"] = json!({"type": "abort", "message": "gone"}),
        |answer| answer["output_ids"] = json!([]),
        |answer| answer["meta_info"]["output_token_logprobs"][0][0] = Value::Null,
        |answer| answer["meta_info"] = Value::Null,
    ];
    for spoil in spoils {
        let tweak = move |request: &Request, mut answer: Value| {
            if request.json()["rid"].as_str().is_some_and(|rid| !rid.starts_with("probe")) {
                spoil(&mut answer);
            }
            Ok(answer)
        };
        let (server, _) = Fake::new("student-large").tweaked(tweak).sglang();
        let served = policy(SgLang, &server.url);
        let calls = [call(&served, "Go.", Sampling::GREEDY)];
        let answer =
            served.generate(&calls, Deadline::never()).expect("the engine works").remove(0);
        assert_eq!(answer, Err(CallFailure::Engine));
    }
}

#[test]
fn weights_are_published_and_read_back() {
    let (server, fake) = Fake::new("student-large").sglang();
    let served = connect(SgLang, &[&server.url], options()).expect("good");
    let limit = std::time::Duration::from_secs(5);
    let folder = crate::inference::lab("student-large").canonicalize().expect("there");
    served.reload(&folder.to_string_lossy(), "12", limit).expect("published");
    assert_eq!(*fake.label.lock().expect("held"), "12");
    let body = server
        .seen()
        .iter()
        .find(|request| request.is("POST", "/update_weights_from_disk"))
        .expect("sent")
        .json();
    assert_eq!(body["flush_cache"], true);
    let error = served.reload("/nowhere", "13", limit).expect_err("refused").to_string();
    assert!(error.contains(&server.url), "{error}");
}

#[test]
fn servers_that_cannot_be_trusted_are_refused_or_noted() {
    for (change, words) in [
        (json!({"version": "0.5.9"}), "0.5.23"),
        (json!({"version": "0.5.23", "allow_auto_truncate": true}), "--allow-auto-truncate"),
    ] {
        let fake = Fake::new("student-large");
        let server = Server::start(move |request| match request.path.as_str() {
            "/server_info" => Reply::json(200, &change),
            _ => fake.answer_sglang(request),
        });
        let error = connect(SgLang, &[&server.url], options()).err().expect("refused").to_string();
        assert!(error.contains(words), "{error}");
    }
    let fake = Fake::new("student-large");
    let server = Server::start(move |request| match request.path.as_str() {
        "/server_info" => Reply::json(200, &json!({"version": "0.5.24"})),
        _ => fake.answer_sglang(request),
    });
    let served = connect(SgLang, &[&server.url], options()).expect("it works");
    let (_, info) = served.servers().next().expect("one");
    assert!(info.notes.iter().any(|note| note.contains("--enable-deterministic-inference")));
}

#[test]
fn a_full_queue_is_asked_again_and_a_bad_request_is_not() {
    let count = std::sync::atomic::AtomicUsize::new(0);
    let tweak = move |request: &Request, answer: Value| {
        if request.json()["rid"] == "probe;" {
            return Ok(answer);
        }
        let full = json!({"object": "error", "message": "The request queue is full.", "type": "503", "code": 503});
        match count.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
            0 | 1 => Err(Reply::json(503, &full)),
            2 => Ok(answer),
            _ => Err(Reply::json(400, &json!({"error": "top_p must be in (0, 1]"}))),
        }
    };
    let (server, _) = Fake::new("student-large").tweaked(tweak).sglang();
    let mut options = options();
    options.scores = false;
    let served = lens_engine::remote::ServedPolicy::frozen(
        connect(SgLang, &[&server.url], options).expect("good"),
    );
    let calls = [call(&served, "Go.", Sampling::GREEDY)];
    let before = server.count("/generate");
    served
        .generate(&calls, Deadline::never())
        .expect("works")
        .remove(0)
        .expect("written in the end");
    assert_eq!(server.count("/generate") - before, 3);
    let error = served.generate(&calls, Deadline::never()).expect_err("refused");
    assert!(matches!(&error, EngineError::Request(words) if words.contains("top_p")), "{error}");
    assert_eq!(server.count("/generate") - before, 4, "asked once");
}
