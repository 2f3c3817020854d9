//! vLLM, from release 0.32 on: tokens in and out through `/inference/v1/generate`.
//!
//! The server fills in fields that are left out, ignores those it does not know and cuts what does not fit, all with
//! status 200. So every sampling field is always sent, lengths are checked before, and answers are checked after.

use serde_json::{Value, json};

use super::dialect::{
    BY_DISK, Caller, Fault, Kind, Member, ScoredRow, ServerInfo, WriteRequest, Written, control,
    decimal, get, ids, release_numbers, set_up, unfinished,
};
use super::npy;
use super::scorer::{ScoreRow, Scored, best_first, measured};
use super::transfer::Group;
use crate::deadline::Deadline;
use crate::error::EngineError;
use crate::http::Endpoint;
use crate::policy::FinishReason;

const GENERATE: &str = "/inference/v1/generate";

/// The oldest release whose answers have everything that is checked.
const OLDEST: [u64; 3] = [0, 32, 0];

pub(super) fn write_request(request: &WriteRequest<'_>) -> (&'static str, Value) {
    let sampling = request.sampling;
    let body = json!({
        "model": request.model,
        "request_id": request.id,
        "token_ids": request.prompt,
        "sampling_params": {
            "max_tokens": request.max_new_tokens,
            "temperature": decimal(sampling.temperature),
            "top_p": decimal(sampling.top_p),
            "top_k": sampling.top_k.unwrap_or(0),
            "min_p": decimal(sampling.min_p),
            "seed": request.seed,
            "stop_token_ids": request.stop,
            "logprobs": 0,
            "detokenize": false,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
        },
    });
    (GENERATE, body)
}

pub(super) fn read_written(answer: &Value) -> Result<Written, Fault> {
    let shape = || Fault::broken("an answer of another shape");
    let choice = answer.pointer("/choices/0").ok_or_else(shape)?;
    let finish = match choice.get("finish_reason").and_then(Value::as_str) {
        Some("stop") => FinishReason::Stop,
        Some("length") => FinishReason::Length,
        other => {
            return Err(Fault::broken(format!(
                "the response ended by {}",
                other.unwrap_or("nothing")
            )));
        }
    };
    let tokens = ids(choice.get("token_ids")).ok_or_else(shape)?;
    let entries =
        choice.pointer("/logprobs/content").and_then(Value::as_array).ok_or_else(shape)?;
    let named = entries.iter().map(|entry| entry.get("token_id").and_then(Value::as_u64));
    if !named.eq(tokens.iter().map(|&token| Some(u64::from(token)))) {
        return Err(Fault::broken("tokens and log-probabilities do not belong together"));
    }
    let logprobs = entries.iter().map(|entry| measured(entry.get("logprob")?)).collect();
    Ok(Written { tokens, logprobs, finish, labels: labels(choice) })
}

fn labels(choice: &Value) -> Vec<String> {
    let spans = choice.get("weight_versions").and_then(Value::as_array);
    let found = spans.into_iter().flatten().filter_map(|span| span.get("version")?.as_str());
    found.map(str::to_owned).collect()
}

pub(super) fn score(
    model: &str,
    row: &ScoreRow<'_>,
    real_vocab: usize,
    call: Caller<'_>,
) -> Result<ScoredRow, Fault> {
    let (mut scored, mut found_labels) = (vec![Scored::default(); row.response.len()], Vec::new());
    if row.top_k > 0 || row.asked.is_empty() {
        let answer =
            call(GENERATE, &score_body(model, row, json!({"prompt_logprobs": row.top_k})))?;
        found_labels.extend(answer.pointer("/choices/0").map(labels).unwrap_or_default());
        read_listed(&answer, row, real_vocab, &mut scored)?;
    }
    if !row.asked.is_empty() {
        let width = row.asked.iter().map(Vec::len).max().unwrap_or(0);
        let padded: Vec<Vec<i64>> = row
            .asked
            .iter()
            .map(|ids| {
                let ids = ids.iter().map(|&id| i64::from(id));
                ids.chain(std::iter::repeat(-1)).take(width).collect()
            })
            .collect();
        let more = json!({
            "prompt_logprob_start": row.prompt.len() - 1,
            "prompt_logprob_token_ids": padded,
        });
        let answer = call(GENERATE, &score_body(model, row, more))?;
        found_labels.extend(answer.pointer("/choices/0").map(labels).unwrap_or_default());
        let text = answer.get("prompt_token_id_logprobs").and_then(Value::as_str);
        let values = text
            .and_then(|text| npy::rows(text, row.response.len()))
            .ok_or_else(|| Fault::broken("the asked log-probabilities cannot be read"))?;
        for ((position, values), asked) in scored.iter_mut().zip(values).zip(&row.asked) {
            let real = |value: f32| (value.is_finite() && value > -9999.0).then_some(value);
            position.asked = values.into_iter().take(asked.len()).map(real).collect();
        }
    }
    Ok((scored, found_labels))
}

/// One token must be written for a score; it is thrown away.
fn score_body(model: &str, row: &ScoreRow<'_>, more: Value) -> Value {
    let mut sampling = json!({
        "max_tokens": 1,
        "temperature": 0.0,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "seed": 1,
        "detokenize": false,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
    });
    if let (Some(sampling), Value::Object(more)) = (sampling.as_object_mut(), more) {
        sampling.extend(more);
    }
    let tokens = [row.prompt, row.response].concat();
    json!({
        "model": model,
        "token_ids": tokens,
        "sampling_params": sampling,
    })
}

/// Entry `i` is about token `i`; the realized token is among its keys whatever its rank.
fn read_listed(
    answer: &Value,
    row: &ScoreRow<'_>,
    real_vocab: usize,
    scored: &mut [Scored],
) -> Result<(), Fault> {
    let entries = answer.get("prompt_logprobs").and_then(Value::as_array);
    let entries = entries.filter(|entries| entries.len() == row.prompt.len() + row.response.len());
    let entries = entries.ok_or_else(|| Fault::broken("prompt_logprobs has another length"))?;
    for (index, (position, &token)) in scored.iter_mut().zip(row.response).enumerate() {
        let entry = entries[row.prompt.len() + index].as_object();
        let entry = entry.ok_or_else(|| Fault::broken("a position was not scored"))?;
        let mut found = Vec::with_capacity(entry.len());
        for (key, value) in entry {
            let id: u32 = key.parse().map_err(|_| Fault::broken("a token without an id"))?;
            let logprob = value.get("logprob").and_then(measured);
            if id == token {
                position.logprob = logprob;
            }
            found.extend(logprob.map(|logprob| (id, logprob)));
        }
        if !entry.contains_key(&token.to_string()) {
            return Err(Fault::broken("the realized token is missing"));
        }
        position.top = best_first(found, row.top_k, real_vocab);
    }
    Ok(())
}

pub(super) fn inspect(endpoint: &Endpoint, deadline: Deadline) -> Result<ServerInfo, EngineError> {
    let version = get(Kind::Vllm, endpoint, "/version", deadline)?;
    let release = version.get("version").and_then(Value::as_str).unwrap_or("unknown").to_owned();
    if release_numbers(&release) < OLDEST {
        return Err(
            endpoint.error(None, format!("this is vLLM {release}, and 0.32 or later is needed"))
        );
    }
    let models = get(Kind::Vllm, endpoint, "/v1/models", deadline)?;
    let model = models.pointer("/data/0");
    let field = |name: &str| model.and_then(|model| model.get(name));
    let name = field("id").and_then(Value::as_str);
    let context = field("max_model_len").and_then(Value::as_u64);
    let (Some(name), Some(context)) = (name, context) else {
        return Err(endpoint.error(None, "/v1/models does not name a model and its max_model_len"));
    };
    let (model, context) = (name.to_owned(), context as usize);
    Ok(ServerInfo { release, model, context, ..ServerInfo::default() })
}

pub(super) fn reload(
    endpoint: &Endpoint,
    directory: &str,
    label: &str,
    deadline: Deadline,
) -> Result<(), EngineError> {
    pause(endpoint, deadline)?;
    let load = json!({
        "method": "reload_weights",
        "kwargs": {"weights_path": directory},
        "timeout": deadline.remaining().map_or(600, |left| left.as_secs().max(1)),
    });
    control(Kind::Vllm, endpoint, "/collective_rpc", &load, deadline, |json| {
        let results = json.get("results").and_then(Value::as_array);
        results.is_some_and(|results| !results.is_empty() && results.iter().all(Value::is_null))
    })?;
    reset_cache(endpoint, deadline)?;
    name(endpoint, label, deadline)?;
    resume(endpoint, label, deadline)
}

fn is(name: &'static str, wanted: Value) -> impl Fn(&Value) -> bool {
    move |json| json.get(name) == Some(&wanted)
}

/// Waiting clears the caches; keeping would mix old keys and values with new weights.
fn pause(endpoint: &Endpoint, deadline: Deadline) -> Result<(), EngineError> {
    let good = is("status", json!("paused"));
    control(Kind::Vllm, endpoint, "/pause?mode=wait", &json!({}), deadline, good).map(|_| ())
}

fn reset_cache(endpoint: &Endpoint, deadline: Deadline) -> Result<(), EngineError> {
    let good = is("success", json!(true));
    control(Kind::Vllm, endpoint, "/reset_prefix_cache", &json!({}), deadline, good).map(|_| ())
}

/// The label is the driver's word alone: loading does not change it.
fn name(endpoint: &Endpoint, label: &str, deadline: Deadline) -> Result<(), EngineError> {
    let (body, good) = (json!({"new_version": label}), is("success", json!(true)));
    control(Kind::Vllm, endpoint, "/update_weight_version", &body, deadline, good).map(|_| ())
}

/// Lets it write again, and reads the label back.
fn resume(endpoint: &Endpoint, label: &str, deadline: Deadline) -> Result<(), EngineError> {
    let good = is("status", json!("resumed"));
    control(Kind::Vllm, endpoint, "/resume", &json!({}), deadline, good)?;
    let info = get(Kind::Vllm, endpoint, "/weight_info", deadline)?;
    let found = info.get("weight_version").and_then(Value::as_str).unwrap_or("nothing");
    if found == label {
        return Ok(());
    }
    let (endpoint, expected) = (endpoint.url().to_owned(), label.to_owned());
    Err(EngineError::Version { endpoint, expected, found: found.to_owned() })
}

pub(super) fn member_count(endpoint: &Endpoint, deadline: Deadline) -> Result<u64, EngineError> {
    // Without the flag it would refuse to join while all others wait for it.
    let info = get(Kind::Vllm, endpoint, "/server_info?config_format=json", deadline)?;
    let backend = info.pointer("/vllm_config/weight_transfer_config/backend");
    if backend.and_then(Value::as_str) != Some("nccl") {
        let message = format!(
            "weights over NCCL are off: start it with --weight-transfer-config '{{\"backend\": \"nccl\"}}', {BY_DISK}"
        );
        return Err(endpoint.error(None, message));
    }
    let answer = get(Kind::Vllm, endpoint, "/get_world_size", deadline)?;
    let count = answer.get("world_size").and_then(Value::as_u64).filter(|&count| count > 0);
    count.ok_or_else(|| endpoint.error(None, "/get_world_size does not say a number"))
}

pub(super) fn join(
    endpoint: &Endpoint,
    member: &Member,
    deadline: Deadline,
) -> Result<(), EngineError> {
    // What an earlier run left behind.
    set_up(endpoint, "/shutdown_weight_transfer_engine", &json!({}), deadline, |_| true)?;
    let mut info = member.group.rendezvous.clone();
    info.insert("rank_offset".to_owned(), json!(member.rank_offset));
    info.insert("world_size".to_owned(), json!(member.world_size));
    // One broadcast per tensor; packed ones would have to be cut alike on both sides.
    info.insert("packed".to_owned(), json!(false));
    let body = json!({"init_info": info});
    set_up(endpoint, "/init_weight_transfer_engine", &body, deadline, |_| true)
}

pub(super) fn prepare(
    endpoint: &Endpoint,
    label: &str,
    deadline: Deadline,
) -> Result<(), EngineError> {
    pause(endpoint, deadline)?;
    name(endpoint, &unfinished(label), deadline)?;
    control(Kind::Vllm, endpoint, "/start_weight_update", &json!({}), deadline, |_| true)
        .map(|_| ())
}

pub(super) fn receive(
    endpoint: &Endpoint,
    group: &Group,
    deadline: Deadline,
) -> Result<(), EngineError> {
    let body = json!({"update_info": {
        "names": group.names,
        "dtype_names": vec![&group.dtype; group.names.len()],
        "shapes": group.shapes,
    }});
    control(Kind::Vllm, endpoint, "/update_weights", &body, deadline, |_| true).map(|_| ())
}

pub(super) fn finish(
    endpoint: &Endpoint,
    label: &str,
    deadline: Deadline,
) -> Result<(), EngineError> {
    let body = json!({"weight_version": label});
    control(Kind::Vllm, endpoint, "/finish_weight_update", &body, deadline, |_| true)?;
    reset_cache(endpoint, deadline)?;
    resume(endpoint, label, deadline)
}
