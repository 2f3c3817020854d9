//! SGLang, from release 0.5.23 on: tokens in and out through `/generate`.

use serde_json::{Value, json};

use super::dialect::{
    BY_DISK, Caller, Fault, Kind, Member, ScoredRow, ServerInfo, WriteRequest, Written, control,
    decimal, get, ids, release_numbers, set_up, unfinished,
};
use super::scorer::{ScoreRow, Scored, best_first, measured};
use super::transfer::Group;
use crate::deadline::Deadline;
use crate::error::EngineError;
use crate::http::Endpoint;
use crate::policy::FinishReason;

const OLDEST: [u64; 3] = [0, 5, 23];

/// Asked ids are one list for all positions of a request; a row that asks for more is scored in halves.
const MAX_ASKED: usize = 256;

/// All tensors of one call are held at once before they are loaded.
const PIECE_BYTES: u64 = 1_000_000_000;

pub(super) fn write_request(request: &WriteRequest<'_>) -> (&'static str, Value) {
    let sampling = request.sampling;
    let body = json!({
        // Ids are matched by their beginnings when a request is aborted; the delimiter keeps one from hitting another.
        "rid": format!("{};", request.id),
        "input_ids": request.prompt,
        "stream": false,
        "sampling_params": {
            "max_new_tokens": request.max_new_tokens,
            "temperature": decimal(sampling.temperature),
            "top_p": decimal(sampling.top_p),
            "top_k": sampling.top_k.map_or(-1, |k| i64::try_from(k).unwrap_or(i64::MAX)),
            "min_p": decimal(sampling.min_p),
            "stop_token_ids": request.stop,
            "sampling_seed": request.seed,
            "skip_special_tokens": false,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
        },
        "return_logprob": true,
        "logprob_start_len": -1,
        "top_logprobs_num": 0,
    });
    ("/generate", body)
}

pub(super) fn read_written(answer: &Value) -> Result<Written, Fault> {
    let shape = || Fault::broken("an answer of another shape");
    let meta = answer.get("meta_info").ok_or_else(shape)?;
    let finish = match meta.pointer("/finish_reason/type").and_then(Value::as_str) {
        Some("stop") => FinishReason::Stop,
        Some("length") => FinishReason::Length,
        other => {
            return Err(Fault::broken(format!(
                "the response ended by {}",
                other.unwrap_or("nothing")
            )));
        }
    };
    let tokens = ids(answer.get("output_ids")).ok_or_else(shape)?;
    let entries = meta.get("output_token_logprobs").and_then(Value::as_array).ok_or_else(shape)?;
    if entries.len() != tokens.len() {
        return Err(Fault::broken("tokens and log-probabilities do not belong together"));
    }
    let logprobs = entries.iter().map(|entry| measured(entry.get(0)?)).collect();
    Ok(Written { tokens, logprobs, finish, labels: labels(meta) })
}

fn labels(meta: &Value) -> Vec<String> {
    let spans = meta.get("weight_versions").and_then(Value::as_array);
    let spans = spans.into_iter().flatten().filter_map(|span| span.get("version")?.as_str());
    let whole = meta.get("weight_version").and_then(Value::as_str);
    spans.chain(whole).map(str::to_owned).collect()
}

pub(super) fn score(
    row: &ScoreRow<'_>,
    real_vocab: usize,
    call: Caller<'_>,
) -> Result<ScoredRow, Fault> {
    let mut union: Vec<u32> = row.asked.concat();
    union.sort_unstable();
    union.dedup();
    if union.len() > MAX_ASKED && row.response.len() > 1 {
        return score_halves(row, real_vocab, call);
    }
    let tokens = [row.prompt, row.response].concat();
    let body = json!({
        "input_ids": tokens,
        "stream": false,
        "sampling_params": {"max_new_tokens": 0, "temperature": 1.0},
        "return_logprob": true,
        // Not 0: what is cached of the prompt is used up to here.
        "logprob_start_len": row.prompt.len() - 1,
        "top_logprobs_num": row.top_k,
        "token_ids_logprob": (!union.is_empty()).then_some(&union),
    });
    let answer = call("/generate", &body)?;
    let meta =
        answer.get("meta_info").ok_or_else(|| Fault::broken("an answer of another shape"))?;
    let found = labels(meta);
    // Entry 0 stands for the prompt's last token and is null; the ids in the entries are not always right, positions are.
    let entries = |name: &str| {
        let entries = meta.get(name).and_then(Value::as_array);
        let entries = entries.filter(|entries| entries.len() == row.response.len() + 1);
        entries.ok_or_else(|| Fault::broken(format!("{name} has another length")))
    };
    let mut scored = vec![Scored::default(); row.response.len()];
    for (position, entry) in scored.iter_mut().zip(&entries("input_token_logprobs")?[1..]) {
        position.logprob = entry.get(0).and_then(measured);
    }
    if row.top_k > 0 {
        for (position, entry) in scored.iter_mut().zip(&entries("input_top_logprobs")?[1..]) {
            position.top = best_first(listed(entry), row.top_k, real_vocab);
        }
    }
    if !union.is_empty() {
        let entries = &entries("input_token_ids_logprobs")?[1..];
        for ((position, entry), asked) in scored.iter_mut().zip(entries).zip(&row.asked) {
            let found = listed(entry);
            let of =
                |id: &u32| found.iter().find(|(listed, _)| listed == id).map(|&(_, value)| value);
            position.asked = asked.iter().map(of).collect();
        }
    }
    Ok((scored, found))
}

fn score_halves(
    row: &ScoreRow<'_>,
    real_vocab: usize,
    call: Caller<'_>,
) -> Result<ScoredRow, Fault> {
    let (first, second) = row.response.split_at(row.response.len() / 2);
    let prompt = [row.prompt, first].concat();
    let half = |prompt, response, asked: &[Vec<u32>]| {
        let row = ScoreRow { prompt, response, top_k: row.top_k, asked: asked.to_vec() };
        score(&row, real_vocab, call)
    };
    let (mut scored, mut labels) = half(row.prompt, first, &row.asked[..first.len()])?;
    let (rest, more) = half(&prompt, second, &row.asked[first.len()..])?;
    scored.extend(rest);
    labels.extend(more);
    Ok((scored, labels))
}

/// The triples of log-probability, id and text.
fn listed(entry: &Value) -> Vec<(u32, f32)> {
    let triples = entry.as_array().into_iter().flatten();
    let read = triples.filter_map(|triple| {
        let id = u32::try_from(triple.get(1)?.as_u64()?).ok()?;
        Some((id, measured(triple.get(0)?)?))
    });
    read.collect()
}

pub(super) fn inspect(endpoint: &Endpoint, deadline: Deadline) -> Result<ServerInfo, EngineError> {
    let arguments = get(Kind::SgLang, endpoint, "/server_info", deadline)?;
    let release = arguments.get("version").and_then(Value::as_str).unwrap_or("unknown").to_owned();
    if release_numbers(&release) < OLDEST {
        return Err(endpoint
            .error(None, format!("this is SGLang {release}, and 0.5.23 or later is needed")));
    }
    let is_on = |name: &str| arguments.get(name).and_then(Value::as_bool);
    if is_on("allow_auto_truncate") == Some(true) {
        return Err(endpoint.error(
            None,
            "it cuts long prompts without a word: start it without --allow-auto-truncate",
        ));
    }
    let mut notes = Vec::new();
    if is_on("enable_deterministic_inference") != Some(true) {
        notes.push(
            "seeds are ignored without --enable-deterministic-inference: runs cannot be repeated"
                .to_owned(),
        );
    }
    let info = get(Kind::SgLang, endpoint, "/model_info", deadline)?;
    let models = get(Kind::SgLang, endpoint, "/v1/models", deadline)?;
    let text = |name: &str| info.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let context = models.pointer("/data/0/max_model_len").and_then(Value::as_u64);
    let context =
        context.ok_or_else(|| endpoint.error(None, "/v1/models does not say max_model_len"))?;
    Ok(ServerInfo {
        release,
        model: text("served_model_name"),
        context: context as usize,
        label: text("weight_version"),
        asked_ids: true,
        notes,
    })
}

pub(super) fn reload(
    endpoint: &Endpoint,
    directory: &str,
    label: &str,
    deadline: Deadline,
) -> Result<(), EngineError> {
    let body = json!({
        "model_path": directory,
        "weight_version": label,
        "flush_cache": true,
        "abort_all_requests": false,
    });
    control(Kind::SgLang, endpoint, "/update_weights_from_disk", &body, deadline, succeeded)?;
    check_label(endpoint, label, deadline)
}

/// Reads the label of its weights back.
pub(super) fn check_label(
    endpoint: &Endpoint,
    label: &str,
    deadline: Deadline,
) -> Result<(), EngineError> {
    let info = get(Kind::SgLang, endpoint, "/model_info", deadline)?;
    let found = info.get("weight_version").and_then(Value::as_str).unwrap_or("nothing");
    if found == label {
        return Ok(());
    }
    let (endpoint, expected) = (endpoint.url().to_owned(), label.to_owned());
    Err(EngineError::Version { endpoint, expected, found: found.to_owned() })
}

fn succeeded(json: &Value) -> bool {
    json.get("success") == Some(&json!(true))
}

pub(super) fn member_count(endpoint: &Endpoint, deadline: Deadline) -> Result<u64, EngineError> {
    let arguments = get(Kind::SgLang, endpoint, "/server_info", deadline)?;
    let size = |name: &str| arguments.get(name).and_then(Value::as_u64).unwrap_or(1);
    for name in ["dp_size", "pp_size"] {
        // Its ranks in a group are those of tensor parallelism; two replicas would claim the same ones.
        if size(name) != 1 {
            let message = format!(
                "{name} is {}, and weights over NCCL need 1: start several servers instead, {BY_DISK}",
                size(name)
            );
            return Err(endpoint.error(None, message));
        }
    }
    Ok(size("tp_size").max(1))
}

pub(super) fn join(
    endpoint: &Endpoint,
    member: &Member,
    deadline: Deadline,
) -> Result<(), EngineError> {
    let Member { group, rank_offset, world_size } = member;
    // What an earlier run left behind; it answers 400 if there is nothing.
    let old = json!({"group_name": group.rendezvous.get("group_name")});
    let path = "/destroy_weights_update_group";
    let left = endpoint.post(path, &old, deadline);
    left.map_err(|reason| endpoint.unanswered(&format!("POST {path}"), &reason))?;
    let mut body = group.rendezvous.clone();
    body.insert("rank_offset".to_owned(), json!(rank_offset));
    body.insert("world_size".to_owned(), json!(world_size));
    body.insert("backend".to_owned(), json!(group.backend));
    let path = "/init_weights_update_group";
    set_up(endpoint, path, &Value::Object(body), deadline, succeeded)
}

pub(super) fn prepare(
    endpoint: &Endpoint,
    label: &str,
    deadline: Deadline,
) -> Result<(), EngineError> {
    let body = json!({"new_version": unfinished(label), "abort_all_requests": false});
    control(Kind::SgLang, endpoint, "/update_weight_version", &body, deadline, succeeded)
        .map(|_| ())
}

pub(super) fn receive(
    endpoint: &Endpoint,
    group: &Group,
    label: &str,
    deadline: Deadline,
) -> Result<(), EngineError> {
    let pieces = group.pieces(PIECE_BYTES);
    for (index, piece) in pieces.iter().enumerate() {
        let last = index + 1 == pieces.len();
        let body = json!({
            "names": group.names[piece.clone()],
            "dtypes": vec![&group.dtype; piece.len()],
            "shapes": group.shapes[piece.clone()],
            "group_name": group.rendezvous.get("group_name"),
            "flush_cache": last,
            "abort_all_requests": false,
            "weight_version": if last { label.to_owned() } else { unfinished(label) },
        });
        let path = "/update_weights_from_distributed";
        control(Kind::SgLang, endpoint, path, &body, deadline, succeeded)?;
    }
    Ok(())
}
