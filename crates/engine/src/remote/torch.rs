//! A student that learns in the training worker and writes behind servers.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lens_lm::train::AdamWConfig;
use lens_opd::objective::Loss;
use serde_json::{Value, json};

use super::models::{Judge, Memory, RemoteModels};
use super::scorer::Scorer;
use super::served::{Served, ServedPolicy};
use super::targets;
use super::transfer::{self, Group, Shipment, Transfer};
use super::weights::{self, Published};
use super::wire::Body;
use super::worker::{Worker, WorkerInfo, WorkerStudent};
use crate::codec::Codec;
use crate::deadline::Deadline;
use crate::engine::{Engine, LearnReport, LearnRow};
use crate::error::{CallFailure, EngineError};
use crate::models::Models;
use crate::native::{NativeCodec, NativePolicy, shared_tokens};
use crate::policy::{Completion, GenerateCall, Policy};
use crate::target::{Kind, Target};

const LEARN: &str = "/v1/learn";

/// The worker's part of a checkpoint, inside `state`.
const WORKER_STATE: &str = "worker";

/// How the student learns.
#[derive(Debug, Clone)]
pub struct TorchOptions {
    /// The token loss.
    pub loss: Loss,
    /// AdamW.
    pub optimizer: AdamWConfig,
    /// Where published weights lie, on storage that the worker and the servers share.
    pub weights: PathBuf,
    /// The longest time a server may take to load weights.
    pub reload_timeout: Duration,
    /// Whether a checkpoint will be loaded before anything else.
    pub resuming: bool,
    /// Whether the worker keeps a copy of the published weights, so that a batch can be explored while it trains.
    pub overlap: bool,
    /// How weights get to the servers.
    pub transfer: Transfer,
}

/// Where the teacher is.
pub enum TeacherPlace {
    /// Behind servers.
    Served(Arc<Served>),
    /// On this machine.
    Native(Arc<NativePolicy>),
    /// In the worker alone: it scores, but writes nothing.
    Worker(Arc<NativeCodec>),
}

/// A student that learns in the training worker and writes behind servers.
pub struct TorchEngine {
    worker: Arc<Worker>,
    info: WorkerInfo,
    students: Arc<Served>,
    teacher: TeacherPlace,
    options: TorchOptions,
    version: u64,
    /// Names this process in request ids, which must never be used twice.
    name: String,
    requests: u64,
    token_budget: Option<u64>,
    published: Arc<RemoteModels>,
    /// The worker and its servers, once weights have to travel over NCCL.
    group: Option<Arc<Group>>,
}

impl TorchEngine {
    /// Connects worker and servers, and publishes the worker's weights to the servers: what they held before is unknown.
    pub fn connect(
        worker: Worker,
        students: Arc<Served>,
        teacher: TeacherPlace,
        options: TorchOptions,
    ) -> Result<Self, EngineError> {
        let info = worker.info()?;
        let real = match &teacher {
            TeacherPlace::Served(served) => shared_tokens(students.codec(), served.codec())?,
            TeacherPlace::Native(policy) => shared_tokens(students.codec(), policy.native_codec())?,
            TeacherPlace::Worker(codec) => shared_tokens(students.codec(), codec)?,
        };
        let refuse = |message: String| EngineError::Remote {
            endpoint: worker.url().to_owned(),
            status: None,
            message,
        };
        if info.real_vocab != real {
            return Err(refuse(format!(
                "its student has {} real tokens, and student.path has {real}: start it with the same --student",
                info.real_vocab
            )));
        }
        if matches!(teacher, TeacherPlace::Worker(_)) && info.teacher.is_none() {
            return Err(refuse("it holds no teacher: start it with --teacher".to_owned()));
        }
        if info.version != 0 && !options.resuming {
            return Err(refuse(format!(
                "it is at step {}, and a new run begins at 0: restart the worker",
                info.version
            )));
        }
        let version = info.version;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let name = format!("{}-{}", std::process::id(), since.as_nanos());
        let worker = Arc::new(worker);
        let published = models(&worker, &info, &students, &teacher, options.loss, None);
        let mut engine = Self {
            worker,
            info,
            students,
            teacher,
            options,
            version,
            name,
            requests: 0,
            token_budget: None,
            published,
            group: None,
        };
        if version == 0 {
            engine.publish(&[])?;
        }
        Ok(engine)
    }

    /// What the worker says of itself.
    pub fn info(&self) -> &WorkerInfo {
        &self.info
    }

    fn request_id(&mut self) -> String {
        self.requests += 1;
        format!("{}-{}", self.name, self.requests)
    }

    fn learn_body(&self, rows: &[LearnRow], id: &str) -> Result<Body, EngineError> {
        let mut body = Body::default();
        body.rows(rows.iter().map(|row| (row.prompt.as_slice(), row.response.as_slice())));
        let coefficients: Vec<f32> = rows.iter().flat_map(|row| row.coefficients.clone()).collect();
        body.f32s("coefficients", &coefficients);
        supervision(rows, &mut body)?;
        let (loss, optimizer) = (&self.options.loss, &self.options.optimizer);
        body.set("request_id", id);
        body.set("expected_version", self.version);
        body.set("lr", optimizer.lr);
        body.set("weight_decay", optimizer.weight_decay);
        body.set("beta1", optimizer.betas.0);
        body.set("beta2", optimizer.betas.1);
        body.set("eps", optimizer.eps);
        body.set("clip", optimizer.clip);
        body.set("kl_coef", loss.kl_coef);
        body.set("clip_range", loss.clip);
        body.set("dual_clip", loss.dual_clip);
        if let Some(budget) = self.token_budget {
            body.set("token_budget", budget);
        }
        Ok(body)
    }

    /// Gives the worker's weights to every student server.
    fn publish_weights(&mut self) -> Result<(), EngineError> {
        match self.options.transfer {
            Transfer::Disk => self.publish_by_disk()?,
            Transfer::Nccl => self.publish_over_nccl()?,
        }
        let (worker, info, students) = (&self.worker, &self.info, &self.students);
        let (loss, version) = (self.options.loss, Some(self.version));
        self.published = models(worker, info, students, &self.teacher, loss, version);
        Ok(())
    }

    fn publish_over_nccl(&mut self) -> Result<(), EngineError> {
        let (worker, students, limit) = (&self.worker, &self.students, self.options.reload_timeout);
        // After a failure the state of the group is unknown: the next time it is formed again.
        let group = match self.group.take() {
            Some(group) => group,
            None => transfer::join(worker, students, limit)?,
        };
        let (version, keep) = (self.version, self.options.overlap);
        let shipment = Shipment { version, label: version.to_string(), keep };
        transfer::send(worker, students, &group, &shipment, limit)?;
        self.group = Some(group);
        Ok(())
    }

    /// Writes the weights, checks them, and makes the servers load them.
    fn publish_by_disk(&mut self) -> Result<(), EngineError> {
        let version = self.version;
        let folder = weights::folder(&self.options.weights, version);
        let parent = &self.options.weights;
        std::fs::create_dir_all(parent).map_err(EngineError::state(parent))?;
        let wanted = json!({"version": version, "keep": self.options.overlap});
        let answer = self.worker.folder("/v1/publish", &folder, wanted)?;
        let published: Published = serde_json::from_value(answer)
            .map_err(|_| self.worker.lacks("/v1/publish", "files"))?;
        self.worker.check_version(version, Some(published.version))?;
        weights::verify(&folder, &published)?;
        let absolute = std::path::absolute(&folder).map_err(EngineError::state(&folder))?;
        let (path, label) = (absolute.to_string_lossy(), version.to_string());
        self.students.reload(&path, &label, self.options.reload_timeout)?;
        weights::prune(parent, version);
        Ok(())
    }
}

/// What each row is pulled toward, as the worker reads it.
fn supervision(rows: &[LearnRow], body: &mut Body) -> Result<(), EngineError> {
    let width = rows.iter().filter_map(|row| match &row.target.0 {
        Kind::TeacherTop(Some(top)) => Some(top.k),
        _ => None,
    });
    let width = width.max().unwrap_or(0);
    let (mut kinds, mut keys) = (Vec::new(), Vec::new());
    let (mut ids, mut logprobs): (Vec<i32>, Vec<f32>) = (Vec::new(), Vec::new());
    let (mut teacher, mut rollout) = (Vec::new(), Vec::new());
    for row in rows {
        let mut key = -1;
        kinds.push(match &row.target.0 {
            Kind::TeacherStates(None) => 0,
            Kind::TeacherTop(Some(top)) => {
                let k = top.k.max(1);
                for (listed, values) in top.ids.chunks(k).zip(top.logprobs.chunks(k)) {
                    ids.extend(listed.iter().map(|&id| id as i32));
                    ids.resize(ids.len().next_multiple_of(width), -1);
                    logprobs.extend(values);
                    logprobs.resize(ids.len(), 0.0);
                }
                1
            }
            Kind::Sampled { teacher: theirs, rollout: ours } => {
                teacher.extend(theirs);
                rollout.extend(ours);
                2
            }
            Kind::Kept { key: kept, .. } => {
                key = *kept;
                3
            }
            Kind::Tokens => 5,
            Kind::TeacherStates(Some(_)) | Kind::TeacherTop(None) | Kind::Snapshot { .. } => {
                return Err(EngineError::Request(
                    "a row's target was made by another engine than the training worker".to_owned(),
                ));
            }
        });
        keys.push(key);
    }
    body.u8s("kind", &kinds);
    body.i64s("target_key", &keys);
    if let Some(rows) = ids.len().checked_div(width) {
        let shape = vec![rows, width];
        body.i32_matrix("teacher_top_ids", shape.clone(), &ids);
        body.f32_matrix("teacher_top_logprobs", shape, &logprobs);
    }
    if !teacher.is_empty() {
        body.f32s("teacher_logprobs", &teacher);
        body.f32s("rollout_logprobs", &rollout);
    }
    Ok(())
}

/// The models of a version; `None`: nothing was published yet, and asking is an error.
fn models(
    worker: &Arc<Worker>,
    info: &WorkerInfo,
    students: &Arc<Served>,
    teacher: &TeacherPlace,
    loss: Loss,
    version: Option<u64>,
) -> Arc<RemoteModels> {
    let number = version.unwrap_or(info.version);
    let student: Arc<dyn Policy> = match version {
        Some(version) => Arc::new(ServedPolicy::at(students.clone(), version)),
        None => Arc::new(Silent {
            codec: students.codec().clone(),
            version: number,
            why: format!(
                "the training worker is at step {number}, and no checkpoint of this run was loaded into it: restart the worker"
            ),
        }),
    };
    let (policy, scorer): (Arc<dyn Policy>, Option<Arc<dyn Scorer>>) = match teacher {
        TeacherPlace::Served(served) => {
            let policy = Arc::new(ServedPolicy::frozen(served.clone()));
            (policy.clone(), Some(policy))
        }
        TeacherPlace::Native(policy) => (policy.clone(), Some(policy.clone())),
        TeacherPlace::Worker(codec) => {
            let why = "the teacher is in the training worker, which writes no text: give it servers with teacher.engine and teacher.urls, and set learner.holds_teacher".to_owned();
            (Arc::new(Silent { codec: codec.clone(), version: 0, why }), None)
        }
    };
    let judge = match (scorer, &info.teacher) {
        (Some(teacher), None) => {
            let student = Arc::new(WorkerStudent { worker: worker.clone(), version: number });
            Judge::Lists { student, teacher }
        }
        _ => Judge::Worker { worker: worker.clone(), version: number },
    };
    let memory = Memory::Worker(worker.clone(), number);
    Arc::new(RemoteModels { student, teacher: policy, judge, memory, loss })
}

/// A model that cannot write, and why.
struct Silent {
    codec: Arc<NativeCodec>,
    version: u64,
    why: String,
}

impl Policy for Silent {
    fn codec(&self) -> &dyn Codec {
        &*self.codec
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn generate(
        &self,
        calls: &[GenerateCall],
        _deadline: Deadline,
    ) -> Result<Vec<Result<Completion, CallFailure>>, EngineError> {
        if calls.is_empty() {
            return Ok(Vec::new());
        }
        Err(EngineError::Request(self.why.clone()))
    }
}

impl Engine for TorchEngine {
    fn models(&self) -> Arc<dyn Models> {
        self.published.clone()
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn learn(&mut self, rows: &[LearnRow]) -> Result<LearnReport, EngineError> {
        if rows.is_empty() {
            return Err(EngineError::Request("a train batch without rows".to_owned()));
        }
        let id = self.request_id();
        let mut answer = self.worker.tensors(LEARN, self.learn_body(rows, &id)?)?;
        if Worker::is_out_of_memory(&answer) {
            // Nothing changed there; half the tokens at a time may fit, and do from here on.
            self.token_budget =
                Some((self.token_budget.unwrap_or(self.info.token_budget) / 2).max(1));
            let id = self.request_id();
            answer = self.worker.tensors(LEARN, self.learn_body(rows, &id)?)?;
        }
        let answer = self.worker.good(LEARN, answer)?;
        let json = answer.json().ok_or_else(|| self.worker.lacks(LEARN, "report"))?;
        let skipped = json.get("skipped").and_then(Value::as_bool);
        let skipped = skipped.ok_or_else(|| self.worker.lacks(LEARN, "skipped"))?;
        let next = self.version + u64::from(!skipped);
        self.worker.check_version(next, json.get("version").and_then(Value::as_u64))?;
        self.version = next;
        let number = |name: &str| json.get(name).and_then(Value::as_f64).unwrap_or(f64::NAN);
        Ok(LearnReport {
            loss: number("loss"),
            focus_loss: number("focus_loss"),
            internalization_loss: number("internalization_loss"),
            grad_norm: number("grad_norm"),
            skipped,
            tokens: json.get("tokens").and_then(Value::as_u64).unwrap_or(0) as usize,
        })
    }

    fn check_overlap(&self) -> Result<(), EngineError> {
        if self.options.overlap {
            return Ok(());
        }
        let why = "the worker was not told to keep the published weights";
        Err(EngineError::Request(format!("train.overlap: {why}")))
    }

    fn publish(&mut self, kept: &[&Target]) -> Result<(), EngineError> {
        self.publish_weights()?;
        let oldest = targets::versions(kept).first().copied().unwrap_or(self.version);
        let before = oldest.min(self.version);
        self.worker.command("/v1/forget", &json!({"before_version": before})).map(|_| ())
    }

    fn checkpoint_bytes(&self) -> u64 {
        self.info.checkpoint_bytes
    }

    fn save(&self, folder: &Path, targets: &[&Target]) -> Result<Vec<Value>, EngineError> {
        let state = folder.join("state");
        std::fs::create_dir_all(&state).map_err(EngineError::state(&state))?;
        let saved = targets::save(&state, targets)?;
        let answer = self.worker.folder("/v1/save", &state.join(WORKER_STATE), json!({}))?;
        let found = answer.get("version").and_then(Value::as_u64);
        self.worker.check_version(self.version, found)?;
        self.worker.folder("/v1/export", &folder.join("model"), json!({"dtype": "f32"}))?;
        Ok(saved)
    }

    fn load(&mut self, folder: &Path, saved: &[Value]) -> Result<Vec<Target>, EngineError> {
        let state = folder.join("state");
        let targets = targets::load(&state, saved)?;
        let answer = self.worker.folder("/v1/load", &state.join(WORKER_STATE), json!({}))?;
        let version = answer.get("version").and_then(Value::as_u64);
        self.version = version.ok_or_else(|| self.worker.lacks("/v1/load", "version"))?;
        self.publish_weights()?;
        Ok(targets)
    }
}
