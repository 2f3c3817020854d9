//! Servers that restart, die, hang, are busy, answer late, cut the line or answer nonsense.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lens_engine::http::Retry;
use lens_engine::remote::ServedPolicy;
use lens_engine::remote::ServerKind::Vllm;
use lens_engine::{CallFailure, Deadline, EngineError, GenerateCall, Policy, Sampling};
use serde_json::{Value, json};

use crate::inference::Fake;
use crate::server::{Reply, Request, Server};
use crate::{call, connect, options, policy};

fn is_probe(request: &Request) -> bool {
    request.json()["request_id"] == "probe"
        || !request.json()["sampling_params"]["prompt_logprob_start"].is_null()
}

/// A server whose answers are replaced by `fault` for the calls with these numbers.
fn failing(
    numbers: std::ops::Range<usize>,
    fault: impl Fn() -> Reply + Send + Sync + 'static,
) -> (Server, Arc<Fake>) {
    let count = AtomicUsize::new(0);
    let tweak = move |request: &Request, answer: Value| {
        if !is_probe(request) && numbers.contains(&count.fetch_add(1, Ordering::SeqCst)) {
            return Err(fault());
        }
        Ok(answer)
    };
    Fake::new("student-large").tweaked(tweak).vllm()
}

fn busy() -> Reply {
    Reply::json(503, &json!({"error": {"message": "The engine is currently busy", "code": 503}}))
}

fn one(served: &ServedPolicy) -> Result<Result<lens_engine::Completion, CallFailure>, EngineError> {
    Ok(served.generate(&[call(served, "Go.", Sampling::GREEDY)], Deadline::never())?.remove(0))
}

#[test]
fn a_busy_or_cut_line_is_asked_again_and_gives_the_same_answer() {
    let (calm, _) = Fake::new("student-large").vllm();
    let wanted = one(&policy(Vllm, &calm.url)).expect("works").expect("written");
    let faults: [fn() -> Reply; 5] = [
        busy,
        || Reply::json(429, &json!({})),
        || Reply::json(502, &json!({})),
        || Reply::Cut,
        || Reply::HalfAnswer(vec![b' '; 1000]),
    ];
    for fault in faults {
        let (server, _) = failing(0..3, fault);
        let found = one(&policy(Vllm, &server.url)).expect("works").expect("written in the end");
        assert_eq!(found, wanted);
    }
}

#[test]
fn a_server_that_stays_busy_fails_the_call_not_the_run() {
    let (server, _) = failing(0..6, busy);
    let served = policy(Vllm, &server.url);
    let before = server.count("/inference");
    assert_eq!(one(&served).expect("the run goes on"), Err(CallFailure::Engine));
    assert_eq!(server.count("/inference") - before, 6, "one call and five repetitions");
    one(&served).expect("works").expect("and then it works again");
}

#[test]
fn a_server_that_is_busy_for_long_costs_time_and_nothing_else() {
    let (server, _) = failing(0..8, busy);
    let mut options = options();
    options.retry.again = Retry::PATIENT.again;
    options.retry.pause = Duration::from_millis(2);
    let served = ServedPolicy::frozen(connect(Vllm, &[&server.url], options).expect("good"));
    one(&served).expect("works").expect("written in the end");
}

#[test]
fn a_server_that_restarts_with_its_first_weights_is_not_taken_for_the_one_before() {
    let (server, fake) = Fake::new("student-large").vllm();
    let served = connect(Vllm, &[&server.url], options()).expect("good");
    let folder = crate::inference::lab("student-large").canonicalize().expect("there");
    served.reload(&folder.to_string_lossy(), "3", Duration::from_secs(5)).expect("published");
    let student = ServedPolicy::at(served, 3);
    one(&student).expect("works").expect("written");
    // What a restart does: other weights, and the label a server begins with.
    *fake.label.lock().expect("held") = "default".to_owned();
    let error = one(&student).expect_err("these are not the weights of step 3");
    assert!(matches!(&error, EngineError::Version { expected, .. } if expected == "3"), "{error}");
}

#[test]
fn a_server_that_never_works_again_stops_the_run() {
    let (server, _) =
        failing(0..1_000_000, || Reply::json(500, &json!({"error": {"message": "out of luck"}})));
    let served = policy(Vllm, &server.url);
    let calls: Vec<GenerateCall> =
        (0..100).map(|_| call(&served, "Go.", Sampling::GREEDY)).collect();
    let error = served.generate(&calls, Deadline::never()).expect_err("hopeless").to_string();
    assert!(error.contains("in a row") && error.contains("out of luck"), "{error}");
}

#[test]
fn a_dead_engine_is_told_from_a_failed_call() {
    let (server, fake) = Fake::new("student-large").vllm();
    drop(server);
    let dead = Arc::new(AtomicBool::new(false));
    let is_dead = dead.clone();
    let server = Server::start(move |request| {
        match (is_dead.load(Ordering::SeqCst), request.path.as_str()) {
            (true, "/health") => Reply::Answer(503, Vec::new()),
            (true, _) => {
                Reply::json(500, &json!({"error": {"message": "EngineCore encountered an issue."}}))
            }
            (false, _) => fake.answer_vllm(request),
        }
    });
    let served = policy(Vllm, &server.url);
    dead.store(true, Ordering::SeqCst);
    let error = one(&served).expect_err("the engine is dead").to_string();
    assert!(error.contains("restart this server"), "{error}");
}

#[test]
fn a_hanging_server_costs_its_deadline_and_no_more() {
    let (server, _) = failing(0..1, || Reply::Hang(Duration::from_secs(20)));
    let mut options = options();
    options.timeout = Duration::from_millis(1500);
    let served = ServedPolicy::frozen(connect(Vllm, &[&server.url], options).expect("good"));
    let began = Instant::now();
    assert_eq!(one(&served).expect("the run goes on"), Err(CallFailure::Timeout));
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    one(&served).expect("works").expect("written");
}

#[test]
fn a_server_that_is_gone_stops_the_run_and_one_that_restarts_does_not() {
    let (server, fake) = Fake::new("student-large").vllm();
    let mut options = options();
    options.retry.pause = Duration::from_millis(50);
    let served = ServedPolicy::frozen(connect(Vllm, &[&server.url], options).expect("good"));
    let port = server.port;
    drop(server);
    let again = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        Server::start_at(port, move |request| fake.answer_vllm(request))
    });
    one(&served).expect("it came back in time").expect("written");
    drop(again.join().expect("started"));
    let error = one(&served).expect_err("it is gone").to_string();
    assert!(error.contains("resume the run") && error.contains(&port.to_string()), "{error}");
}

#[test]
fn several_servers_share_the_load_and_stand_in_for_each_other() {
    let (first, _) = Fake::new("student-large").vllm();
    let (second, _) = Fake::new("student-large").vllm();
    let served = connect(Vllm, &[&first.url, &second.url], options()).expect("good");
    let served = ServedPolicy::frozen(served);
    let calls: Vec<GenerateCall> =
        (0..24).map(|n| call(&served, &"go ".repeat(n + 1), Sampling::at(1.0))).collect();
    let before = [first.count("/inference"), second.count("/inference")];
    let together = served.generate(&calls, Deadline::never()).expect("works");
    let load = [first.count("/inference") - before[0], second.count("/inference") - before[1]];
    assert_eq!(load[0] + load[1], 24);
    assert!(load[0] >= 4 && load[1] >= 4, "{load:?}");
    drop(second);
    let alone = served.generate(&calls, Deadline::never()).expect("the other one stands in");
    assert_eq!(together, alone, "who answers changes nothing");
}

#[test]
fn nonsense_is_a_failed_call() {
    for body in
        ["", "[1, 2", "{}", r#"{"choices": []}"#, r#"{"choices": [{"finish_reason": "stop"}]}"#]
    {
        let (server, _) = failing(0..1, move || Reply::Answer(200, body.as_bytes().to_vec()));
        assert_eq!(
            one(&policy(Vllm, &server.url)).expect("the run goes on"),
            Err(CallFailure::Engine),
            "{body}"
        );
    }
}

#[test]
fn nobody_there_is_said_at_once() {
    let error =
        connect(Vllm, &["http://127.0.0.1:9"], options()).err().expect("nobody").to_string();
    assert!(error.contains("http://127.0.0.1:9"), "{error}");
    let error = connect(Vllm, &[], options()).err().expect("no address").to_string();
    assert!(error.contains("address"), "{error}");
}
