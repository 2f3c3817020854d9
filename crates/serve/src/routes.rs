//! The network side: one WebSocket per session, and plain HTTP for everything that is no episode.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::middleware;
use axum::response::{Html, IntoResponse, Json, Response};
use axum::routing::{get, post};
use serde_json::{Map, Value, json};

use crate::ServeOptions;
use crate::catalog::Catalog;
use crate::guard::{self, Guard};
use crate::schema;
use crate::session::{Reaction, Refusal, Session, error_frame, mcp};

/// The largest message a client may send, as the original has it.
const LARGEST: usize = 16 << 20;

/// What every route needs.
#[derive(Debug, Clone)]
struct App {
    catalog: Arc<Catalog>,
    max_sessions: usize,
    idle: Duration,
}

/// The routes, guarded.
pub(crate) fn app(catalog: Arc<Catalog>, options: &ServeOptions) -> Router {
    let guard = Arc::new(Guard { token: options.token.clone() });
    let app = App { catalog, max_sessions: options.max_sessions, idle: options.idle };
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

async fn socket(State(app): State<App>, upgrade: WebSocketUpgrade) -> Response {
    upgrade
        .max_message_size(LARGEST)
        .max_frame_size(LARGEST)
        .on_upgrade(|socket| converse(socket, app))
}

/// One session from the first message to the last.
async fn converse(mut socket: WebSocket, app: App) {
    let place = match app.catalog.enter(app.max_sessions) {
        Ok(place) => place,
        Err(active) => {
            let mut full = error_frame(
                "CAPACITY_REACHED",
                format!(
                    "Server at capacity: {active}/{} sessions active. Cannot accept new connections.",
                    app.max_sessions
                ),
            );
            full["data"]["active_sessions"] = active.into();
            full["data"]["max_sessions"] = app.max_sessions.into();
            say(&mut socket, &full).await;
            hang_up(socket).await;
            return;
        }
    };
    let mut session = Session::new(Arc::clone(&app.catalog));
    loop {
        let text = match tokio::time::timeout(app.idle, socket.recv()).await {
            Ok(Some(Ok(Message::Text(text)))) => text,
            Ok(Some(Ok(Message::Binary(_)))) => {
                say(&mut socket, &error_frame("SESSION_ERROR", "a message is text")).await;
                break;
            }
            // Pings are answered by the library.
            Ok(Some(Ok(Message::Ping(_) | Message::Pong(_)))) => continue,
            Ok(Some(Ok(Message::Close(_)) | Err(_)) | None) => return,
            Err(_) => {
                say(
                    &mut socket,
                    &error_frame("SESSION_ERROR", "the session was idle for too long"),
                )
                .await;
                break;
            }
        };
        // A step can take long, and other sessions share these threads.
        let worked = tokio::task::spawn_blocking(move || {
            let reaction = session.handle(&text);
            (session, reaction)
        });
        let Ok((kept, reaction)) = worked.await else {
            say(&mut socket, &error_frame("SESSION_ERROR", "the environment failed")).await;
            break;
        };
        session = kept;
        match reaction {
            Reaction::Answer(answer) => {
                if !say(&mut socket, &answer).await {
                    return;
                }
            }
            Reaction::Last(answer) => {
                say(&mut socket, &answer).await;
                break;
            }
            Reaction::Close => break,
        }
    }
    // The place is free before the client hears of the end.
    drop(place);
    hang_up(socket).await;
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
    let worked = tokio::task::spawn_blocking(move || work(&mut Session::new(app.catalog)));
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

async fn json_rpc(body: Bytes) -> Response {
    let request = match serde_json::from_slice(&body) {
        Ok(Value::Object(request)) => request,
        Ok(_) => Map::new(),
        Err(_) => {
            let error = json!({"code": -32700, "message": "Parse error", "data": null});
            return Json(json!({"jsonrpc": "2.0", "id": null, "error": error})).into_response();
        }
    };
    Json(mcp(&request)).into_response()
}
