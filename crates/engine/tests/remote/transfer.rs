//! Weights that travel from the worker straight into the servers' memory: every server is asked first, joins, receives
//! and is read back. vLLM's answers are those that a real 0.32 gave on the CPU, where no tensor can arrive; SGLang's were
//! written from its protocol. With a real worker, tensors do arrive, over gloo, in a process beside the server.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use lens_engine::http::Retry;
use lens_engine::native::NativePolicy;
use lens_engine::remote::ServerKind::{self, SgLang, Vllm};
use lens_engine::remote::{TeacherPlace, TorchEngine, TorchOptions, Transfer, Worker};
use lens_engine::{Deadline, Engine, EngineError, Policy, Sampling};
use lens_lm::model::WeightFormat;
use serde_json::{Value, json};

use crate::inference::{Fake, Session, lab};
use crate::server::Server;
use crate::worker::{self, State};
use crate::{call, codec, connect, key, mixed, options, torch};

fn start(kind: ServerKind, fake: Fake) -> (Server, Arc<Fake>) {
    if kind == Vllm { fake.vllm() } else { fake.sglang() }
}

fn engine(
    kind: ServerKind,
    servers: &[&str],
    worker: &Server,
    teacher: &Server,
    folder: &Path,
) -> Result<TorchEngine, EngineError> {
    let students = connect(kind, servers, options())?;
    let teacher = TeacherPlace::Served(connect(Vllm, &[&teacher.url], options())?);
    let options = TorchOptions {
        transfer: Transfer::Nccl,
        overlap: true,
        ..torch::torch_options(folder, false)
    };
    TorchEngine::connect(torch::client(&worker.url), students, teacher, options)
}

/// The calls of a server that change something, without their settings.
fn posts(server: &Server) -> Vec<String> {
    let seen = server.seen().into_iter().filter(|request| request.method == "POST");
    let paths = seen.map(|request| request.path.split('?').next().unwrap_or_default().to_owned());
    paths.filter(|path| !path.contains("generate")).collect()
}

fn bodies(server: &Server, path: &str) -> Vec<Value> {
    let seen = server.seen().into_iter().filter(|request| request.is("POST", path));
    seen.map(|request| request.json()).collect()
}

#[test]
fn servers_join_once_and_take_every_version_after() {
    for kind in [Vllm, SgLang] {
        let folder = tempfile::tempdir().expect("a folder");
        let students = [(); 2].map(|()| start(kind, Fake::new("student-large")));
        let (teacher, _) = Fake::new("teacher").vllm();
        let (worker, _) = worker::start(lab("student-large"), State::default());
        let urls = [students[0].0.url.as_str(), students[1].0.url.as_str()];
        let mut engine = engine(kind, &urls, &worker, &teacher, folder.path()).expect("connected");
        engine.check_overlap().expect("the worker keeps what it sent");
        engine.learn(&mixed::rows(&engine, &["look"])).expect("learned");
        engine.publish(&[]).expect("published");
        for (server, fake) in &students {
            assert_eq!(*fake.label.lock().expect("held"), "1");
            assert_eq!(*fake.session.lock().expect("held"), Session::Joined);
            let round: &[&str] = match kind {
                Vllm => &[
                    "/pause",
                    "/update_weight_version",
                    "/start_weight_update",
                    "/update_weights",
                    "/finish_weight_update",
                    "/reset_prefix_cache",
                    "/resume",
                ],
                SgLang => &[
                    "/update_weight_version",
                    "/update_weights_from_distributed",
                    "/update_weights_from_distributed",
                ],
            };
            let joined: &[&str] = match kind {
                Vllm => &["/shutdown_weight_transfer_engine", "/init_weight_transfer_engine"],
                SgLang => &["/destroy_weights_update_group", "/init_weights_update_group"],
            };
            assert_eq!(posts(server), [joined, round, round].concat());
        }
        // One rank is the worker's; a server of vLLM has two here, one of SGLang has one.
        let (path, at, offsets, world) = match kind {
            Vllm => ("/init_weight_transfer_engine", "/init_info", [1, 3], 5),
            SgLang => ("/init_weights_update_group", "", [1, 2], 3),
        };
        for ((server, _), offset) in students.iter().zip(offsets) {
            let body = &bodies(server, path)[0];
            let info = body.pointer(at).expect("sent");
            assert_eq!(
                (&info["rank_offset"], &info["world_size"]),
                (&json!(offset), &json!(world))
            );
            if kind == Vllm {
                assert_eq!(
                    (&info["packed"], &info["nccl_unique_id_b64"]),
                    (&json!(false), &json!("c29tZXRoaW5n"))
                );
            } else {
                assert_eq!(
                    (&info["master_address"], &info["backend"]),
                    (&json!("127.0.0.1"), &json!("nccl"))
                );
            }
        }
        if kind == Vllm {
            let sent = json!({"update_info": {
                "names": ["a", "b"], "dtype_names": ["bfloat16", "bfloat16"], "shapes": [[300, 1_000_000], [300, 1_000_000]],
            }});
            assert_eq!(bodies(&students[0].0, "/update_weights")[0], sent);
        } else {
            // More than a gigabyte goes in two calls; only the last one makes it a version.
            let parts = bodies(&students[0].0, "/update_weights_from_distributed");
            let said: Vec<_> = parts[2..]
                .iter()
                .map(|part| (&part["names"], &part["weight_version"], &part["flush_cache"]))
                .collect();
            let (first, last) = (
                (json!(["a"]), json!("1-unfinished"), json!(false)),
                (json!(["b"]), json!("1"), json!(true)),
            );
            assert_eq!(said, [(&first.0, &first.1, &first.2), (&last.0, &last.1, &last.2)]);
        }
        assert_eq!((worker.count("/v1/open_transfer"), worker.count("/v1/publish")), (1, 0));
        assert!(!folder.path().join("weights").exists(), "nothing is written");
    }
}

#[test]
fn a_server_that_fails_halfway_is_of_no_version_and_the_group_is_formed_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let (student, fake) = Fake::new("student-large").vllm();
    let (teacher, _) = Fake::new("teacher").vllm();
    let (worker, _) = worker::start(lab("student-large"), State::default());
    let mut engine =
        engine(Vllm, &[&student.url], &worker, &teacher, folder.path()).expect("connected");
    engine.learn(&mixed::rows(&engine, &["look"])).expect("learned");
    *fake.failing.lock().expect("held") = Some("/update_weights");
    let error = engine.publish(&[]).expect_err("told to fail").to_string();
    assert!(error.contains(&student.url) && error.contains("restart this server"), "{error}");
    assert_eq!(*fake.label.lock().expect("held"), "1-unfinished");
    let models = engine.models();
    assert_eq!(models.student().version(), 0, "no policy of the new version was handed out");
    let calls = [call(models.student(), "Go.", Sampling::GREEDY)];
    let error = models.student().generate(&calls, Deadline::never()).expect_err("mixed weights");
    assert!(
        matches!(&error, EngineError::Version { found, .. } if found == "1-unfinished"),
        "{error}"
    );
    *fake.session.lock().expect("held") = Session::Alone;
    engine.publish(&[]).expect("the server was started again");
    assert_eq!(*fake.label.lock().expect("held"), "1");
    assert_eq!(student.count("/init_weight_transfer_engine"), 2);
}

#[test]
fn servers_that_cannot_take_part_are_refused_before_anyone_waits_for_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let (teacher, _) = Fake::new("teacher").vllm();
    let (worker, _) = worker::start(lab("student-large"), State::default());
    let mut fake = Fake::new("student-large");
    fake.nccl = false;
    let (student, _) = fake.vllm();
    let refused = |kind, url: &str| {
        let made = engine(kind, &[url], &worker, &teacher, folder.path());
        made.err().expect("refused").to_string()
    };
    let error = refused(Vllm, &student.url);
    for words in [&student.url, "--weight-transfer-config", "learner.transfer = \"disk\""] {
        assert!(error.contains(words), "{error}");
    }
    let fake = Fake::new("student-large");
    let replicas = Server::start(move |request| match request.path.as_str() {
        "/server_info" => {
            crate::server::Reply::json(200, &json!({"version": "0.5.23", "dp_size": 2}))
        }
        _ => fake.answer_sglang(request),
    });
    let error = refused(SgLang, &replicas.url);
    assert!(error.contains("dp_size is 2") && error.contains("learner.transfer"), "{error}");
    assert_eq!((worker.count("/v1/open_transfer"), replicas.count("/init_weights")), (0, 0));
}

struct Receiver(Child, String);

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The process that stands for an inference engine's memory.
fn receiver(python: &Path, output: &Path) -> Receiver {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/tests/receiver.py");
    let mut child = Command::new(python)
        .arg(script)
        .arg(lab("student-small"))
        .arg(output)
        .stdout(Stdio::piped())
        .spawn()
        .expect("python starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("its address");
    let said: Value = serde_json::from_str(&line).expect("one line of JSON");
    Receiver(child, said["listening"].as_str().expect("an address").to_owned())
}

#[test]
fn tensors_of_the_real_worker_arrive_in_the_server_as_they_are_published_on_disk() {
    let Some(python) = crate::real_worker::python() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let token = folder.path().join("token");
    std::fs::write(&token, "word").expect("written");
    let worker = crate::real_worker::start(&python, &token, true);
    let arrived = folder.path().join("arrived");
    // The tokenizer does not travel.
    std::fs::create_dir(&arrived).expect("made");
    for entry in std::fs::read_dir(lab("student-small")).expect("readable").flatten() {
        std::fs::copy(entry.path(), arrived.join(entry.file_name())).expect("copied");
    }
    let receiver = receiver(&python, &arrived);
    let mut fake = Fake::new("student-small");
    fake.receiver = Some((receiver.1.clone(), arrived));
    let (student, fake) = fake.sglang();
    let retry = Retry { again: 5, pause: Duration::from_millis(200) };
    let client =
        || Worker::new(&worker.1, key("word"), Duration::from_mins(5), retry).expect("an address");
    let served = |url: &str| {
        let endpoint = lens_engine::http::Endpoint::new(url, None).expect("an address");
        let codec = codec("student-small");
        let served = lens_engine::remote::Served::connect(SgLang, vec![endpoint], codec, options());
        Arc::new(served.expect("good"))
    };
    let options = |transfer| TorchOptions {
        transfer,
        overlap: true,
        reload_timeout: Duration::from_mins(2),
        ..torch::torch_options(folder.path(), true)
    };
    let teacher = || TeacherPlace::Worker(codec("teacher"));
    let mut engine =
        TorchEngine::connect(client(), served(&student.url), teacher(), options(Transfer::Nccl))
            .expect("connected");
    assert_eq!(*fake.label.lock().expect("held"), "0", "the first weights travel too");
    for version in 1..=2_u64 {
        engine.learn(&mixed::rows(&engine, &["go to desk 1", "wait"])).expect("learned");
        engine.publish(&[]).expect("published");
        assert_eq!(*fake.label.lock().expect("held"), version.to_string());
    }
    assert_eq!(fake.loaded.lock().expect("held").len(), 3);
    // The same weights by disk, in the same type, write the same response with the same bits.
    let written = |policy: &dyn Policy| {
        let calls = [call(policy, "Go.", Sampling::at(1.0))];
        policy.generate(&calls, Deadline::never()).expect("works").remove(0).expect("written")
    };
    let over_nccl = written(engine.models().student());
    drop(engine);
    let by_disk = Fake::new("student-small").sglang();
    let mut engine =
        TorchEngine::connect(client(), served(&by_disk.0.url), teacher(), options(Transfer::Disk))
            .expect("connected");
    assert_eq!(engine.version(), 2);
    engine.publish(&[]).expect("published");
    assert_eq!(written(engine.models().student()), over_nccl);
    let before = NativePolicy::load(&lab("student-small"), WeightFormat::F32).expect("here");
    assert_ne!(written(&before).logprobs, over_nccl.logprobs, "there was something to learn");
}
