//! The network side: one WebSocket per session, and plain HTTP for everything that is no episode.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use axum::middleware;
use axum::response::{Html, IntoResponse, Json, Response};
use axum::routing::{get, post};
use serde_json::{Map, Value, json};

use crate::ServeOptions;
use crate::catalog::Catalog;
use crate::guard::{self, Guard};
use crate::kept::{Kept, new_id};
use crate::rpc::{RpcError, SESSION_CLOSE, SESSION_CREATE, mcp};
use crate::schema;
use crate::session::{Reaction, Refusal, Session, error_frame};

/// The largest message a client may send, as the original has it.
const LARGEST: usize = 16 << 20;

/// What every route needs.
#[derive(Clone)]
struct App {
    catalog: Arc<Catalog>,
    kept: Arc<Kept>,
    max_sessions: usize,
    idle: Duration,
}

/// The routes, guarded.
pub(crate) fn app(catalog: Arc<Catalog>, options: &ServeOptions) -> Router {
    let guard = Arc::new(Guard { token: options.token.clone() });
    let kept = Arc::default();
    let app = App { catalog, kept, max_sessions: options.max_sessions, idle: options.idle };
    Router::new()
        .route("/", get(async || Html(include_str!("play.html"))))
        .route("/health", get(async || Json(json!({"status": "healthy"}))))
        .route(
            "/metadata",
            get(async |State(app): State<App>| Json(schema::metadata(&app.catalog))),
        )
        .route("/schema", get(async || Json(schema::schema())))
        .route(
            "/openapi.json",
            get(async |State(app): State<App>| Json(schema::openapi(&app.catalog))),
        )
        .route(
            "/list_environments",
            get(async |State(app): State<App>| Json(json!([app.catalog.profile().name]))),
        )
        .route("/{env}/splits", get(splits))
        .route("/{env}/{question}", post(tasks))
        .route("/reset", post(reset))
        .route("/step", post(step))
        .route("/state", get(state))
        .route("/mcp", post(json_rpc))
        .route("/ws", get(socket))
        .layer(middleware::from_fn_with_state(guard, guard::check))
        .with_state(app)
}

async fn socket(State(app): State<App>, uri: Uri, upgrade: WebSocketUpgrade) -> Response {
    let pairs = uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    let id = pairs.into_iter().find(|(key, _)| *key == "session_id");
    let id = id.map(|(_, id)| id.to_owned());
    upgrade
        .max_message_size(LARGEST)
        .max_frame_size(LARGEST)
        .on_upgrade(|socket| converse(socket, app, id))
}

/// One socket: its own session, or one that was made for it.
async fn converse(mut socket: WebSocket, app: App, id: Option<String>) {
    app.kept.sweep(app.idle);
    if let Some(id) = id {
        match app.kept.attach(&id) {
            Ok(session) => {
                let left = talk(&mut socket, &app, session).await;
                app.kept.detach(&id, left);
            }
            Err(why) => {
                say(&mut socket, &error_frame("SESSION_ERROR", why)).await;
            }
        }
        return hang_up(socket).await;
    }
    let place = match app.catalog.enter(app.max_sessions) {
        Ok(place) => place,
        Err(active) => {
            let mut full = error_frame("CAPACITY_REACHED", at_capacity(&app, active));
            full["data"]["active_sessions"] = active.into();
            full["data"]["max_sessions"] = app.max_sessions.into();
            say(&mut socket, &full).await;
            return hang_up(socket).await;
        }
    };
    let session = Session::new(Arc::clone(&app.catalog), new_id());
    drop(talk(&mut socket, &app, session).await);
    // The place is free before the client hears of the end.
    drop(place);
    hang_up(socket).await;
}

fn at_capacity(app: &App, active: usize) -> String {
    format!(
        "Server at capacity: {active}/{} sessions active. Cannot accept new connections.",
        app.max_sessions
    )
}

/// Answers messages until either side ends it; the session as it is then, `None` if it was lost.
async fn talk(socket: &mut WebSocket, app: &App, mut session: Session) -> Option<Session> {
    loop {
        let text = match tokio::time::timeout(app.idle, socket.recv()).await {
            Ok(Some(Ok(Message::Text(text)))) => text,
            Ok(Some(Ok(Message::Binary(_)))) => {
                say(socket, &error_frame("SESSION_ERROR", "a message is text")).await;
                return Some(session);
            }
            // Pings are answered by the library.
            Ok(Some(Ok(Message::Ping(_) | Message::Pong(_)))) => continue,
            Ok(Some(Ok(Message::Close(_)) | Err(_)) | None) => return Some(session),
            Err(_) => {
                let idle = error_frame("SESSION_ERROR", "the session was idle for too long");
                say(socket, &idle).await;
                return Some(session);
            }
        };
        // A step can take long, and other sessions share these threads.
        let worked = tokio::task::spawn_blocking(move || {
            let reaction = session.handle(&text);
            (session, reaction)
        });
        let Ok((kept, reaction)) = worked.await else {
            say(socket, &error_frame("SESSION_ERROR", "the environment failed")).await;
            return None;
        };
        session = kept;
        match reaction {
            Reaction::Answer(answer) => {
                if !say(socket, &answer).await {
                    return Some(session);
                }
            }
            Reaction::Last(answer) => {
                say(socket, &answer).await;
                return Some(session);
            }
            Reaction::Close => return Some(session),
        }
    }
}

/// Whether the message went out.
async fn say(socket: &mut WebSocket, message: &Value) -> bool {
    socket.send(Message::text(message.to_string())).await.is_ok()
}

async fn hang_up(mut socket: WebSocket) {
    // A client that has gone cannot be told.
    let _ = socket.send(Message::Close(None)).await;
}

fn detail(status: StatusCode, detail: impl Into<Value>) -> Response {
    (status, Json(json!({"detail": detail.into()}))).into_response()
}

fn unknown(app: &App, env: &str) -> Option<Response> {
    let known = env.eq_ignore_ascii_case(&app.catalog.profile().name);
    (!known).then(|| detail(StatusCode::NOT_FOUND, format!("unknown environment '{env}'")))
}

async fn splits(State(app): State<App>, Path(env): Path<String>) -> Response {
    if let Some(refused) = unknown(&app, &env) {
        return refused;
    }
    let training = &app.catalog.profile().train_split;
    let kind = |name: &str| match name {
        name if name == training || name.contains("train") => "train",
        name if name.contains("test") => "test",
        _ => "validation",
    };
    let listed =
        app.catalog.splits().iter().map(|(name, _)| json!({"name": name, "type": kind(name)}));
    Json(Value::Array(listed.collect())).into_response()
}

/// The Task API's questions about a split.
async fn tasks(
    State(app): State<App>,
    Path((env, question)): Path<(String, String)>,
    body: Bytes,
) -> Response {
    if let Some(refused) = unknown(&app, &env) {
        return refused;
    }
    let body = match object(&body) {
        Ok(body) => body,
        Err(refused) => return *refused,
    };
    let split = body.get("split").and_then(Value::as_str).unwrap_or_default();
    let Some(tasks) = app.catalog.split(split) else {
        return detail(StatusCode::BAD_REQUEST, format!("there is no split {split:?}"));
    };
    let shown = |(index, task): (usize, &lens_env::Task)| json!({"id": task.id, "kind": task.kind, "index": index});
    let number = |key: &str| body.get(key).and_then(Value::as_u64).map(|number| number as usize);
    let all = || tasks.iter().enumerate().map(shown);
    match question.as_str() {
        "tasks" => {
            Json(json!({"tasks": all().collect::<Vec<_>>(), "env_name": env})).into_response()
        }
        "num_tasks" => Json(json!({"num_tasks": tasks.len()})).into_response(),
        "task" => match number("index").and_then(|index| all().nth(index)) {
            Some(task) => Json(json!({"task": task})).into_response(),
            None => detail(StatusCode::BAD_REQUEST, "Invalid task index"),
        },
        "task_range" => {
            let start = number("start").unwrap_or(0);
            let stop = number("stop").unwrap_or(tasks.len());
            let range: Vec<Value> = all().take(stop).skip(start).collect();
            Json(json!({"tasks": range})).into_response()
        }
        _ => detail(StatusCode::NOT_FOUND, "Not Found"),
    }
}

/// A body that is a JSON object; nothing counts as an empty one.
fn object(body: &Bytes) -> Result<Map<String, Value>, Box<Response>> {
    if body.is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_slice(body) {
        Ok(Value::Object(object)) => Ok(object),
        _ => Err(Box::new(detail(
            StatusCode::UNPROCESSABLE_ENTITY,
            json!([{"msg": "a JSON object is expected"}]),
        ))),
    }
}

/// Works in a session of its own: these routes have no memory, as in the original.
async fn once(
    app: App,
    work: impl FnOnce(&mut Session) -> Result<Value, Refusal> + Send + 'static,
) -> Response {
    let worked =
        tokio::task::spawn_blocking(move || work(&mut Session::new(app.catalog, new_id())));
    match worked.await {
        Ok(Ok(data)) => Json(data).into_response(),
        Ok(Err(refusal)) => match refusal.details() {
            Some(errors) => detail(StatusCode::UNPROCESSABLE_ENTITY, errors.to_vec()),
            None => detail(StatusCode::INTERNAL_SERVER_ERROR, refusal.message()),
        },
        Err(_) => detail(StatusCode::INTERNAL_SERVER_ERROR, "the environment failed"),
    }
}

async fn reset(State(app): State<App>, body: Bytes) -> Response {
    match object(&body) {
        Ok(body) => once(app, move |session| session.reset_data(&body)).await,
        Err(refused) => *refused,
    }
}

async fn step(State(app): State<App>, body: Bytes) -> Response {
    let body = match object(&body) {
        Ok(body) => body,
        Err(refused) => return *refused,
    };
    once(app, move |session| match body.get("action") {
        Some(Value::Object(action)) => session.step_data(action),
        other => Err(Refusal::invalid(
            "dict_type",
            "action",
            "Field required",
            other.unwrap_or(&Value::Null),
        )),
    })
    .await
}

async fn state(State(app): State<App>) -> Response {
    once(app, Session::state_data).await
}

async fn json_rpc(State(app): State<App>, body: Bytes) -> Response {
    let request = match serde_json::from_slice(&body) {
        Ok(Value::Object(request)) => request,
        Ok(_) => Map::new(),
        Err(_) => {
            let error = json!({"code": -32700, "message": "Parse error", "data": null});
            return Json(json!({"jsonrpc": "2.0", "id": null, "error": error})).into_response();
        }
    };
    Json(mcp(&request, |method, params| rpc(&app, method, params))).into_response()
}

/// The methods for sessions that outlive their sockets.
fn rpc(app: &App, method: &str, params: &Value) -> Option<Result<Value, RpcError>> {
    let id = params["session_id"].as_str();
    let unknown = |id: &str| RpcError::new(-32602, format!("Unknown session_id: {id}"));
    match method {
        SESSION_CREATE => {
            app.kept.sweep(app.idle);
            let made = app.kept.create(&app.catalog, app.max_sessions);
            Some(made.map(|id| json!({"session_id": id})).map_err(|active| RpcError {
                data: json!({"active_sessions": active, "max_sessions": app.max_sessions}),
                ..RpcError::new(-32000, at_capacity(app, active))
            }))
        }
        SESSION_CLOSE => Some(match id {
            None => Err(RpcError::new(-32602, "params.session_id is missing")),
            Some(id) => match app.kept.close(id) {
                Some(true) => Ok(json!({"session_id": id, "closed": true})),
                Some(false) => Ok(json!({"session_id": id, "closed": false, "closing": true})),
                None => Err(unknown(id)),
            },
        }),
        _ => id.filter(|id| !app.kept.knows(id)).map(|id| Err(unknown(id))),
    }
}
