//! A small OpenEnv server for tests: HTTP and WebSocket on one port, faults on request.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{self, Message, WebSocket};

/// What the server does with a request; `None` hangs up.
pub(crate) type Respond = dyn Fn(&mut Session, &Value) -> Option<Message> + Send + Sync;

/// A session's own memory.
#[derive(Default)]
pub(crate) struct Session {
    pub(crate) number: usize,
    pub(crate) room: usize,
    pub(crate) goal: usize,
    pub(crate) steps: usize,
}

pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) open: Arc<AtomicUsize>,
    pub(crate) opened: Arc<AtomicUsize>,
}

/// How the server differs from a friendly one.
#[derive(Clone, Default)]
pub(crate) struct Manner {
    /// The most sessions at a time; 0 means any number.
    pub(crate) capacity: usize,
    /// Extra keys of `/metadata`.
    pub(crate) metadata: Value,
    /// Whether it has a Task API.
    pub(crate) without_tasks: bool,
}

impl Server {
    pub(crate) fn start(manner: Manner, respond: Arc<Respond>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let open = Arc::new(AtomicUsize::new(0));
        let opened = Arc::new(AtomicUsize::new(0));
        let counts = (Arc::clone(&open), Arc::clone(&opened));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (manner, respond, counts) =
                    (manner.clone(), Arc::clone(&respond), counts.clone());
                thread::spawn(move || serve(stream, &manner, &*respond, &counts));
            }
        });
        Self { url, open, opened }
    }
}

fn serve(
    stream: TcpStream,
    manner: &Manner,
    respond: &Respond,
    (open, opened): &(Arc<AtomicUsize>, Arc<AtomicUsize>),
) {
    let mut start = [0; 7];
    if stream.peek(&mut start).is_err() {
        return;
    }
    if !start.starts_with(b"GET /ws") {
        http(stream, manner);
        return;
    }
    let Ok(mut socket) = tungstenite::accept(stream) else { return };
    let active = open.fetch_add(1, Ordering::SeqCst);
    if manner.capacity > 0 && active >= manner.capacity {
        let full = json!({"type": "error", "data": {
            "message": "Server at capacity", "code": "CAPACITY_REACHED",
            "active_sessions": active, "max_sessions": manner.capacity,
        }});
        let _ = socket.send(Message::text(full.to_string()));
        let _ = socket.close(None);
        let _ = socket.flush();
    } else {
        let number = opened.fetch_add(1, Ordering::SeqCst);
        converse(&mut socket, Session { number, ..Session::default() }, respond);
    }
    open.fetch_sub(1, Ordering::SeqCst);
}

fn converse(socket: &mut WebSocket<TcpStream>, mut session: Session, respond: &Respond) {
    while let Ok(message) = socket.read() {
        let Message::Text(text) = message else { continue };
        let request: Value = serde_json::from_str(&text).expect("the client sends JSON");
        if request["type"] == "close" {
            let _ = socket.close(None);
            continue;
        }
        match respond(&mut session, &request) {
            Some(answer) => {
                if socket.send(answer).is_err() {
                    return;
                }
            }
            None => return,
        }
    }
}

fn http(stream: TcpStream, manner: &Manner) {
    let mut reader = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    let _ = reader.read_line(&mut line);
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header).unwrap_or(0) == 0 || header.trim().is_empty() {
            break;
        }
        if let Some(value) = header.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    let _ = reader.read_exact(&mut body);
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let path = line.split(' ').nth(1).unwrap_or_default();
    let (status, answer) = answer(path, &body, manner);
    let text = answer.to_string();
    let mut stream = reader.into_inner();
    let _ = write!(
        stream,
        "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
        text.len()
    );
}

fn answer(path: &str, body: &Value, manner: &Manner) -> (u16, Value) {
    let field = json!({"type": "string"});
    match path {
        "/metadata" => {
            let mut metadata = json!({"name": "rooms", "description": "Walk to a room."});
            if let (Some(all), Some(extra)) =
                (metadata.as_object_mut(), manner.metadata.as_object())
            {
                all.extend(extra.clone());
            }
            (200, metadata)
        }
        "/schema" => (
            200,
            json!({
                "action": {
                    "type": "object", "additionalProperties": false, "required": ["command"],
                    "properties": {"command": field, "metadata": {"type": "object"}},
                },
                "observation": {}, "state": {},
            }),
        ),
        _ if manner.without_tasks => (501, json!({"detail": "not implemented"})),
        "/list_environments" => (200, json!(["rooms"])),
        "/rooms/splits" => {
            (200, json!([{"name": "train", "type": "train"}, {"name": "test", "type": "test"}]))
        }
        // The list is a preview of one; the others come by range.
        "/rooms/tasks" => (200, json!({"tasks": [task(body, 0)], "env_name": "rooms"})),
        "/rooms/num_tasks" => (200, json!({"num_tasks": 3})),
        "/rooms/task_range" => {
            let (start, stop) =
                (body["start"].as_u64().unwrap_or(0), body["stop"].as_u64().unwrap_or(0));
            (
                200,
                json!({"tasks": (start..stop).map(|index| task(body, index)).collect::<Vec<_>>()}),
            )
        }
        _ => (404, json!({"detail": "Not Found"})),
    }
}

fn task(body: &Value, index: u64) -> Value {
    json!({"id": index, "goal": format!("walk to room {}", index + 1), "split": body["split"]})
}

fn observation(session: &Session, text: &str, metadata: Value) -> Message {
    let done = session.steps > 0 && session.room == session.goal;
    let reward = if session.steps == 0 { Value::Null } else { json!(f64::from(u8::from(done))) };
    let mut data = json!({
        "observation": {
            "metadata": metadata, "text": text, "goal": format!("walk to room {}", session.goal),
            "legal": ["east", "west"],
        },
        "reward": reward,
        "done": done,
    });
    if metadata.as_object().is_some_and(|metadata| !metadata.is_empty()) {
        data["metadata"] = metadata;
    }
    Message::text(json!({"type": "observation", "data": data}).to_string())
}

fn error(code: &str, message: &str) -> Message {
    Message::text(json!({"type": "error", "data": {"message": message, "code": code}}).to_string())
}

/// A game of rooms in a row, as a friendly server plays it.
pub(crate) fn rooms(session: &mut Session, request: &Value) -> Option<Message> {
    Some(match request["type"].as_str().unwrap_or_default() {
        "reset" => {
            let data = &request["data"];
            let goal = data["index"].as_u64().unwrap_or(0) as usize + 1;
            *session = Session { number: session.number, room: 0, goal, steps: 0 };
            observation(session, "Room 0.", json!({}))
        }
        "state" => {
            let state =
                json!({"episode_id": null, "step_count": session.steps, "room": session.room});
            Message::text(json!({"type": "state", "data": state}).to_string())
        }
        "step" => {
            session.steps += 1;
            match request["data"]["command"].as_str() {
                Some("east") => session.room += 1,
                Some("west") => session.room = session.room.saturating_sub(1),
                Some("boom") => return Some(error("EXECUTION_ERROR", "boom")),
                _ => {}
            }
            let text = format!("Room {}.", session.room);
            observation(session, &text, json!({}))
        }
        other => error("UNKNOWN_TYPE", &format!("Unknown message type: {other}")),
    })
}

/// The same with `snapshot` and `restore` messages.
pub(crate) fn rooms_with_snapshots(session: &mut Session, request: &Value) -> Option<Message> {
    match request["type"].as_str().unwrap_or_default() {
        "snapshot" => {
            let id = format!("{},{},{}", session.room, session.goal, session.steps);
            Some(Message::text(json!({"type": "snapshot", "data": {"id": id}}).to_string()))
        }
        "restore" => {
            let id = request["data"]["id"].as_str().unwrap_or_default().to_owned();
            let mut parts = id.split(',').map(|part| part.parse().unwrap_or(0));
            let mut next = || parts.next().unwrap_or(0);
            (session.room, session.goal, session.steps) = (next(), next(), next());
            Some(observation(session, &format!("Room {}.", session.room), json!({})))
        }
        _ => rooms(session, request),
    }
}

/// The same by standard messages alone: a token in the state that `reset` takes back.
pub(crate) fn rooms_with_injection(session: &mut Session, request: &Value) -> Option<Message> {
    let token = request["data"]["injected_state"].as_array();
    match (request["type"].as_str().unwrap_or_default(), token) {
        ("state", _) => {
            let token = json!([session.room, session.goal, session.steps]);
            let state = json!({"episode_id": null, "step_count": session.steps, "snapshot": token});
            Some(Message::text(json!({"type": "state", "data": state}).to_string()))
        }
        ("reset", Some(token)) => {
            let part = |index: usize| token[index].as_u64().unwrap_or(0) as usize;
            (session.room, session.goal, session.steps) = (part(0), part(1), part(2));
            let text = format!("Room {}.", session.room);
            Some(observation(session, &text, json!({"restored": true})))
        }
        _ => rooms(session, request),
    }
}
