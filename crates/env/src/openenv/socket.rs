//! A WebSocket that is asked one message and answers one message, with a deadline.
//!
//! Servers ping their clients and hang up on those that do not answer, also while a model is thinking. So every socket
//! has a task of its own on one background thread that reads all the time; the caller's side is blocking.

use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};

use super::PROTOCOL;
use crate::error::EnvError;
use crate::remote::failed;

/// Answers that may wait to be taken. There is one answer per request, so a server that fills this is confused.
const WAITING: usize = 8;
/// What is said before hanging up.
const CLOSE: &str = r#"{"type":"close"}"#;
/// How long the goodbye may take.
const GOODBYE: Duration = Duration::from_secs(2);

type Stream = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// What comes from the server.
#[derive(Debug)]
enum Event {
    Text(String),
    /// The end, with its reason.
    Closed(String),
}

/// An open socket. Dropping it says goodbye.
#[derive(Debug)]
pub(super) struct Socket {
    requests: mpsc::Sender<String>,
    events: Receiver<Event>,
}

fn runtime() -> Result<&'static Runtime, EnvError> {
    static RUNTIME: OnceLock<std::io::Result<Runtime>> = OnceLock::new();
    let start = || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("openenv-sockets")
            .enable_all()
            .build()
    };
    let started = RUNTIME.get_or_init(start).as_ref();
    started.map_err(|error| failed(PROTOCOL, format!("no thread for its sockets: {error}")))
}

impl Socket {
    /// Connects to a `ws` or `wss` address.
    pub(super) fn connect(
        address: &str,
        token: Option<&str>,
        patience: Duration,
        longest: usize,
    ) -> Result<Self, EnvError> {
        let wrong = |why: String| failed(PROTOCOL, format!("cannot connect to {address}: {why}"));
        let mut request =
            address.into_client_request().map_err(|error| wrong(error.to_string()))?;
        if let Some(token) = token {
            let value = format!("Bearer {token}")
                .parse()
                .map_err(|_| wrong("the token has characters that no header takes".to_owned()))?;
            request.headers_mut().insert("Authorization", value);
        }
        let config = WebSocketConfig::default()
            .max_message_size(Some(longest))
            .max_frame_size(Some(longest));
        let (send, connected) = sync_channel(1);
        let runtime = runtime()?;
        runtime.spawn(async move {
            let connecting = connect_async_with_config(request, Some(config), true);
            let outcome = match tokio::time::timeout(patience, connecting).await {
                Ok(Ok((stream, _))) => Ok(stream),
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err(format!(
                    "no answer within {} s (environment.connect_seconds)",
                    patience.as_secs_f64()
                )),
            };
            // The caller may have given up.
            let _ = send.send(outcome);
        });
        let stream = connected
            .recv_timeout(patience + GOODBYE)
            .map_err(|_| wrong("no answer".to_owned()))?
            .map_err(wrong)?;
        let (requests, outgoing) = mpsc::channel(1);
        let (incoming, events) = sync_channel(WAITING);
        runtime.spawn(converse(stream, outgoing, incoming));
        Ok(Self { requests, events })
    }

    /// Sends a message and waits for its answer.
    pub(super) fn ask(&mut self, request: String, patience: Duration) -> Result<String, EnvError> {
        // What came unasked is the reason for a hang-up, or shifts every later answer by one.
        match self.events.try_recv() {
            Ok(Event::Text(text)) => return Ok(text),
            Ok(Event::Closed(why)) => return Err(failed(PROTOCOL, why)),
            Err(TryRecvError::Disconnected) => {
                return Err(failed(PROTOCOL, "the socket is closed"));
            }
            Err(TryRecvError::Empty) => {}
        }
        // A socket that is closing does not take it, but the reason can still be read.
        let _ = self.requests.try_send(request);
        match self.events.recv_timeout(patience) {
            Ok(Event::Text(text)) => Ok(text),
            Ok(Event::Closed(why)) => Err(failed(PROTOCOL, why)),
            Err(RecvTimeoutError::Timeout) => Err(failed(
                PROTOCOL,
                format!(
                    "the server did not answer within {} s (environment.answer_seconds)",
                    patience.as_secs_f64()
                ),
            )),
            Err(RecvTimeoutError::Disconnected) => Err(failed(PROTOCOL, "the socket is closed")),
        }
    }
}

/// Reads and writes until either side hangs up.
async fn converse(
    mut stream: Stream,
    mut outgoing: mpsc::Receiver<String>,
    incoming: SyncSender<Event>,
) {
    loop {
        tokio::select! {
            request = outgoing.recv() => {
                let Some(text) = request else { return say_goodbye(stream).await };
                // A failed send shows in the next read, with its reason.
                let _ = stream.send(Message::text(text)).await;
            }
            frame = stream.next() => {
                let event = match frame {
                    Some(Ok(Message::Text(text))) => Event::Text(text.to_string()),
                    Some(Ok(Message::Binary(bytes))) => match String::from_utf8(bytes.to_vec()) {
                        Ok(text) => Event::Text(text),
                        Err(_) => Event::Closed("the server sent bytes that are no text".to_owned()),
                    },
                    Some(Ok(Message::Close(frame))) => Event::Closed(match frame {
                        Some(frame) => format!(
                            "the server closed the socket ({} {})", u16::from(frame.code), frame.reason
                        ),
                        None => "the server closed the socket".to_owned(),
                    }),
                    // Pings are answered by the library while it reads.
                    Some(Ok(_)) => continue,
                    Some(Err(error)) => Event::Closed(format!("the socket broke: {error}")),
                    None => Event::Closed("the server closed the socket".to_owned()),
                };
                let closed = matches!(event, Event::Closed(_));
                if incoming.try_send(event).is_err() || closed {
                    return;
                }
            }
        }
    }
}

/// Tells the server that the session is over, so that its place is free at once.
async fn say_goodbye(mut stream: Stream) {
    let goodbye = async {
        let _ = stream.send(Message::text(CLOSE)).await;
        let _ = stream.close(None).await;
    };
    let _ = tokio::time::timeout(GOODBYE, goodbye).await;
}
