//! A training worker without a model: it speaks the protocol, counts steps, and fails where told to.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::server::{Reply, Request, Server};

pub(crate) const TOKEN: &str = "worker-word";

/// What goes wrong with a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The line is cut before the worker hears of it.
    CutBefore,
    /// It is done, and the line is cut before the answer.
    CutAfter,
    /// Another command runs.
    Busy,
    /// Memory runs out; nothing is done.
    OutOfMemory,
    /// The files are damaged after they were written.
    Damage,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) version: u64,
    /// Steps ever applied, whatever was loaded since.
    pub(crate) applied: u64,
    pub(crate) last: Option<(String, Value)>,
    /// Faults of the next commands to a path, in order.
    pub(crate) faults: Vec<(&'static str, Fault)>,
    /// The metadata of every step that was asked for.
    pub(crate) asked: Vec<HashMap<String, String>>,
    pub(crate) forgotten: Vec<u64>,
    pub(crate) teacher: bool,
    pub(crate) skip: bool,
    /// Its student's scores are not numbers.
    pub(crate) nan: bool,
    /// The version whose weights it keeps beside the trained ones.
    pub(crate) published: Option<u64>,
    /// The next step waits for a word on this.
    pub(crate) hold: Option<mpsc::Receiver<()>>,
}

impl State {
    /// The version a request asks about, if its weights are held.
    fn held(&self, request: &Request) -> Result<u64, Reply> {
        let wanted: u64 = metadata(&request.body)["expected_version"].parse().expect("a number");
        if wanted == self.version || Some(wanted) == self.published {
            return Ok(wanted);
        }
        let message = format!("at {}, the request expects {wanted}", self.version);
        Err(Reply::json(409, &json!({"error": {"kind": "state", "message": message}})))
    }
}

/// The worker's student, copied whenever it publishes.
pub(crate) fn start(student: PathBuf, state: State) -> (Server, Arc<Mutex<State>>) {
    let state = Arc::new(Mutex::new(state));
    let held = state.clone();
    (Server::start(move |request| answer(request, &student, &held)), state)
}

fn answer(request: &Request, student: &Path, state: &Mutex<State>) -> Reply {
    let mut state = state.lock().expect("held");
    if request.header("authorization") != Some(&format!("Bearer {TOKEN}")) {
        return Reply::json(401, &json!({"error": {"kind": "request", "message": "wrong token"}}));
    }
    assert_eq!(request.header("x-lens-protocol"), Some("1"));
    let fault = state.faults.iter().position(|(path, _)| *path == request.path);
    let fault = fault.map(|index| state.faults.remove(index).1);
    match fault {
        Some(Fault::CutBefore) => return Reply::Cut,
        Some(Fault::Busy) => {
            return Reply::json(503, &json!({"error": {"kind": "state", "message": "busy"}}));
        }
        Some(Fault::OutOfMemory) => {
            return Reply::json(
                500,
                &json!({"error": {"kind": "oom", "message": "out of memory"}}),
            );
        }
        _ => {}
    }
    let done = command(request, student, &mut state, fault == Some(Fault::Damage));
    if fault == Some(Fault::CutAfter) { Reply::Cut } else { done }
}

fn command(request: &Request, student: &Path, state: &mut State, damage: bool) -> Reply {
    let body = request.json();
    let folder = PathBuf::from(body["directory"].as_str().unwrap_or_default());
    match request.path.as_str() {
        "/v1/info" => Reply::json(
            200,
            &json!({
                "protocol": 1, "torch": "none", "world_size": 1, "compute": "float32", "real_vocab": real_vocab(student),
                "teacher": state.teacher.then(|| json!({"vocab_size": 2048})), "version": state.version,
                "checkpoint_bytes": 1000, "max_body_bytes": 1_000_000, "token_budget": 16384,
            }),
        ),
        "/v1/learn" => learn(request, state),
        "/v1/score" => match state.held(request) {
            // Every version has a view of its own.
            Ok(version) if !state.nan => score(request, version, -2.0 - 0.25 * version as f32),
            Ok(version) => score(request, version, f32::NAN),
            Err(refusal) => refusal,
        },
        "/v1/cross_context" => match state.held(request) {
            Ok(version) => cross_context(request, version),
            Err(refusal) => refusal,
        },
        "/v1/publish" | "/v1/export" => {
            if request.path == "/v1/publish" && body["version"] != state.version {
                return Reply::json(
                    409,
                    &json!({"error": {"kind": "state", "message": "another version"}}),
                );
            }
            if request.path == "/v1/publish" {
                state.published = (body["keep"] == true).then_some(state.version);
            }
            let files = copy(student, &folder);
            if damage {
                std::fs::write(folder.join("model.safetensors"), b"half").expect("written");
            }
            Reply::json(
                200,
                &json!({"directory": folder, "version": state.version, "files": files}),
            )
        }
        "/v1/open_transfer" => Reply::json(
            200,
            &json!({
                "backend": "nccl", "dtype": "bfloat16", "names": ["a", "b"], "shapes": [[300, 1_000_000], [300, 1_000_000]],
                "rendezvous": if body["rendezvous"] == "store" {
                    json!({"master_address": body["address"], "master_port": 7001, "group_name": body["group"]})
                } else {
                    json!({"nccl_unique_id_b64": "c29tZXRoaW5n"})
                },
            }),
        ),
        "/v1/join_transfer" => Reply::json(200, &json!({"joined": true})),
        "/v1/transfer" => {
            state.published = (body["keep"] == true).then_some(state.version);
            Reply::json(200, &json!({"version": state.version, "bytes": 4, "seconds": 0.1}))
        }
        "/v1/save" => {
            std::fs::create_dir_all(&folder).expect("made");
            std::fs::write(folder.join("version"), state.version.to_string()).expect("written");
            Reply::json(200, &json!({"directory": folder, "version": state.version}))
        }
        "/v1/load" => match std::fs::read_to_string(folder.join("version")) {
            Ok(text) => {
                state.version = text.parse().expect("a number");
                (state.last, state.published) = (None, None);
                Reply::json(200, &json!({"version": state.version, "exact": true}))
            }
            Err(_) => Reply::json(
                409,
                &json!({"error": {"kind": "state", "message": "no checkpoint there"}}),
            ),
        },
        "/v1/forget" => {
            state.forgotten.push(body["before_version"].as_u64().expect("a version"));
            Reply::json(200, &json!({"forgotten": 0, "kept": 0}))
        }
        path => Reply::json(404, &json!({"error": {"kind": "request", "message": path}})),
    }
}

fn learn(request: &Request, state: &mut State) -> Reply {
    let metadata = metadata(&request.body);
    if let Some(hold) = state.hold.take() {
        hold.recv().expect("a word");
    }
    state.asked.push(metadata.clone());
    if let Some((id, report)) = &state.last
        && *id == metadata["request_id"]
    {
        return Reply::json(200, report);
    }
    if metadata["expected_version"] != state.version.to_string() {
        return Reply::json(
            409,
            &json!({"error": {"kind": "state", "message": "the worker is at another version"}}),
        );
    }
    if !state.skip {
        state.version += 1;
        state.applied += 1;
    }
    let report = json!({
        "loss": if state.skip { Value::Null } else { json!(0.5) }, "focus_loss": 0.4, "internalization_loss": 0.1,
        "grad_norm": 1.0, "skipped": state.skip, "tokens": 10, "version": state.version,
    });
    state.last = Some((metadata["request_id"].clone(), report.clone()));
    Reply::json(200, &report)
}

/// The student likes every token alike.
fn score(request: &Request, version: u64, value: f32) -> Reply {
    let tensors = SafeTensors::deserialize(&request.body).expect("safetensors");
    let offsets: Vec<i64> =
        words(&tensors, "row_offsets").into_iter().map(i64::from_le_bytes).collect();
    let starts: Vec<i32> =
        words(&tensors, "response_start").into_iter().map(i32::from_le_bytes).collect();
    let tokens: usize = offsets
        .windows(2)
        .zip(&starts)
        .map(|(row, start)| (row[1] - row[0]) as usize - *start as usize)
        .sum();
    let width = tensors.tensor("asked_ids").map_or(0, |tensor| tensor.shape()[1]);
    let floats =
        |count: usize| vec![value; count].iter().flat_map(|value| value.to_le_bytes()).collect();
    let mut answer: Vec<(&str, Dtype, Vec<usize>, Vec<u8>)> = vec![
        ("student_logprob", Dtype::F32, vec![tokens], floats(tokens)),
        ("student_at_student", Dtype::F32, vec![tokens], floats(tokens)),
        (
            "student_top",
            Dtype::I32,
            vec![tokens],
            vec![7_i32; tokens].iter().flat_map(|id| id.to_le_bytes()).collect(),
        ),
    ];
    if width > 0 {
        answer.push(("student_at_asked", Dtype::F32, vec![tokens, width], floats(tokens * width)));
    }
    reply(&answer, version)
}

fn cross_context(request: &Request, version: u64) -> Reply {
    let tensors = SafeTensors::deserialize(&request.body).expect("safetensors");
    let rows = tensors.tensor("response_offsets").expect("sent").shape()[0] - 1;
    let keys: Vec<u8> = (0..rows as i64).flat_map(|key| (100 + key).to_le_bytes()).collect();
    let gaps: Vec<u8> = (0..rows).flat_map(|_| 0.25_f64.to_le_bytes()).collect();
    reply(
        &[("gap", Dtype::F64, vec![rows], gaps), ("target_key", Dtype::I64, vec![rows], keys)],
        version,
    )
}

fn reply(tensors: &[(&str, Dtype, Vec<usize>, Vec<u8>)], version: u64) -> Reply {
    let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
        (*name, TensorView::new(*dtype, shape.clone(), bytes).expect("a tensor"))
    });
    let metadata = HashMap::from([("version".to_owned(), version.to_string())]);
    Reply::Answer(200, safetensors::serialize(views, Some(metadata)).expect("safetensors"))
}

fn words<const N: usize>(tensors: &SafeTensors<'_>, name: &str) -> Vec<[u8; N]> {
    let tensor = tensors.tensor(name).expect("sent");
    tensor.data().chunks_exact(N).map(|word| word.try_into().expect("whole")).collect()
}

pub(crate) fn metadata(body: &[u8]) -> HashMap<String, String> {
    let (_, metadata) = SafeTensors::read_metadata(body).expect("safetensors");
    metadata.metadata().clone().expect("settings")
}

fn real_vocab(student: &Path) -> usize {
    let files = lens_lm::checkpoint::ModelFiles::read(student).expect("a model");
    files.tokenizer().expect("a tokenizer").real_tokens()
}

fn copy(from: &Path, to: &Path) -> Vec<Value> {
    std::fs::create_dir_all(to).expect("made");
    let mut files = Vec::new();
    for entry in
        std::fs::read_dir(from).expect("readable").flatten().filter(|entry| entry.path().is_file())
    {
        let bytes = std::fs::read(entry.path()).expect("readable");
        std::fs::write(to.join(entry.file_name()), &bytes).expect("written");
        let hash = Sha256::digest(&bytes)
            .iter()
            .fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
        files.push(json!({"name": entry.file_name().to_string_lossy(), "bytes": bytes.len(), "sha256": hash}));
    }
    files
}
