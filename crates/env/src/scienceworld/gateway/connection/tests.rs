//! The client against a gateway of our own making that can be told to misbehave.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::scienceworld::gateway::wire;

/// What the fake gateway does with a request.
enum Reply {
    /// Sends these pieces, each in a packet of its own.
    Send(Vec<Vec<u8>>),
    /// Sends these bytes and closes.
    SendAndClose(Vec<u8>),
    /// Says nothing for a while.
    Silence(Duration),
}

impl Reply {
    fn line(text: &str) -> Self {
        Self::Send(vec![format!("{text}\n").into_bytes()])
    }
}

/// Serves one connection; `answer` gets each request's lines without the closing `e`.
fn serve(mut answer: impl FnMut(&[String]) -> Reply + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let mut request = Vec::new();
        while let Some(Ok(line)) = lines.next() {
            let token = request.first().is_some_and(|first| first == "A");
            if line != "e" {
                request.push(line);
                if !token {
                    continue;
                }
            }
            match answer(&request) {
                Reply::Send(pieces) => {
                    for piece in pieces {
                        if stream.write_all(&piece).is_err() {
                            return;
                        }
                    }
                }
                Reply::SendAndClose(bytes) => {
                    let _ = stream.write_all(&bytes);
                    return;
                }
                Reply::Silence(time) => std::thread::sleep(time),
            }
            request.clear();
        }
    });
    address
}

fn open(address: SocketAddr) -> Connection {
    Connection::open(address, None, Patience::fixed(Duration::from_secs(20))).unwrap()
}

fn some_object() -> Handle {
    Handle::parse("o1").unwrap()
}

/// A gateway that holds one list of strings and answers what is asked about it, counting what it holds.
fn list_gateway(list: Vec<String>) -> impl FnMut(&[String]) -> Reply + Send + 'static {
    let mut held = 0_i32;
    move |request| {
        let request: Vec<&str> = request.iter().map(String::as_str).collect();
        match request.as_slice() {
            ["c", "o1", "list"] => {
                held += 1;
                Reply::line("!ylo2")
            }
            ["c", "z:java.lang.String", "join", separator, "ro2"] => {
                let mut joined = "!ys".to_owned();
                wire::escape(&list.join(&wire::unescape(&separator[1..])), &mut joined);
                Reply::line(&joined)
            }
            ["c", "o2", "isEmpty"] => Reply::line(&format!("!yb{}", list.is_empty())),
            ["m", "d", "o2"] => {
                held -= 1;
                Reply::line("!yv")
            }
            ["c", "o1", "held"] => Reply::line(&format!("!yi{held}")),
            other => panic!("an unknown request: {other:?}"),
        }
    }
}

#[test]
fn requests_look_as_the_gateway_wants_them() {
    let address = serve(|request| {
        let mut answer = "!ys".to_owned();
        wire::escape(&request.join("|"), &mut answer);
        Reply::line(&answer)
    });
    let mut connection = open(address);
    let object = some_object();
    let arguments = [
        Argument::Text("a\\b\nc"),
        Argument::Text(""),
        Argument::Int(-3),
        Argument::Long(1 << 40),
        Argument::Bool(true),
        Argument::Null,
        Argument::Object(&object),
    ];
    let text = connection.text(&object, "load", &arguments).unwrap();
    assert_eq!(text, "c|o1|load|sa\\\\b\\nc|s|i-3|L1099511627776|btrue|n|ro1");
    let call = connection.call_static("java.lang.System", "gc", &[]).unwrap();
    assert_eq!(call, Value::Text("c|z:java.lang.System|gc".to_owned()));
    let refused = connection.construct("java.lang.Object", &[]).unwrap_err();
    assert!(refused.to_string().contains("i|java.lang.Object"), "{refused}");
}

#[test]
fn the_token_comes_first() {
    let answer = |request: &[String]| match request {
        [letter, token] if letter == "A" => {
            Reply::line(if token == "c2VjcmV0" { "!yv" } else { "!zsno such token" })
        }
        _ => Reply::line("!yi7"),
    };
    let patience = Patience::fixed(Duration::from_secs(20));
    let mut connection = Connection::open(serve(answer), Some("c2VjcmV0"), patience).unwrap();
    assert_eq!(connection.call(&some_object(), "seven", &[]).unwrap(), Value::Int(7));
    let refused = Connection::open(serve(answer), Some("wrong"), patience).unwrap_err();
    assert!(matches!(refused, GatewayError::Fatal(_)), "{refused}");
}

#[test]
fn an_exception_becomes_an_error_and_is_released() {
    let mut released = false;
    let address = serve(move |request| {
        let request: Vec<&str> = request.iter().map(String::as_str).collect();
        match request.as_slice() {
            ["c", "o1", "step", ..] => Reply::line("!xro8"),
            ["p", "ro8"] => Reply::line("!ysjava.lang.Boom: deep down\\n\\tat x"),
            ["m", "d", "o8"] => {
                released = true;
                Reply::line("!yv")
            }
            ["c", "o1", "released"] => Reply::line(&format!("!yb{released}")),
            _ => Reply::line("!xspy4j.Py4JException: Method does not exist\\n\\tat y"),
        }
    });
    let mut connection = open(address);
    let thrown = connection.text(&some_object(), "step", &[Argument::Text("x")]).unwrap_err();
    assert_eq!(thrown.to_string(), "step threw java.lang.Boom: deep down");
    assert!(!thrown.is_fatal());
    let refused = connection.call(&some_object(), "stop", &[]).unwrap_err();
    assert!(matches!(refused, GatewayError::Refused { .. }), "{refused}");
    assert_eq!(connection.call(&some_object(), "released", &[]).unwrap(), Value::Bool(true));
}

#[test]
fn a_silent_gateway_meets_the_deadline() {
    let address = serve(|_| Reply::Silence(Duration::from_secs(3)));
    let mut connection =
        Connection::open(address, None, Patience::fixed(Duration::from_millis(150))).unwrap();
    let begin = Instant::now();
    let error = connection.call(&some_object(), "look", &[]).unwrap_err();
    assert!(matches!(error, GatewayError::Deadline(_)), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(2));
    // A late answer must not be taken for the answer to the next request.
    assert!(matches!(connection.call(&some_object(), "look", &[]), Err(GatewayError::Closed)));
}

#[test]
fn a_gateway_that_dribbles_meets_the_deadline_too() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        while stream.write_all(b"!ys").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let mut connection =
        Connection::open(address, None, Patience::fixed(Duration::from_millis(150))).unwrap();
    let error = connection.call(&some_object(), "look", &[]).unwrap_err();
    assert!(matches!(error, GatewayError::Deadline(_)), "{error}");
}

#[test]
fn two_answers_to_one_request_end_the_conversation() {
    let address = serve(|_| Reply::Send(vec![b"!yi1\n!yi2\n".to_vec()]));
    let mut connection = open(address);
    let error = connection.call(&some_object(), "one", &[]).unwrap_err();
    assert!(error.is_fatal(), "{error}");
    assert!(matches!(connection.call(&some_object(), "two", &[]), Err(GatewayError::Closed)));
}

#[test]
fn lists_of_integers() {
    let address = serve(|request| match request.last().map(String::as_str) {
        Some("some") => Reply::line("!ylo3"),
        Some("toString") => Reply::line("!ys[0, 1, -2]"),
        Some("other") => Reply::line("!yi3"),
        _ => Reply::line("!yv"),
    });
    let mut connection = open(address);
    assert_eq!(connection.integers(&some_object(), "some").unwrap(), vec![0, 1, -2]);
    let error = connection.integers(&some_object(), "other").unwrap_err();
    assert_eq!(error.to_string(), "other answered Int(3) instead of an object");
    assert_eq!(parse_integers("[]"), Some(vec![]));
    assert_eq!(parse_integers("[1, x]"), None);
    assert_eq!(parse_integers("1"), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn lists_come_whole_and_are_released(list in prop::collection::vec("[^\u{1}]{0,12}", 0..40)) {
        let mut connection = open(serve(list_gateway(list.clone())));
        prop_assert_eq!(connection.texts(&some_object(), "list").unwrap(), list);
        prop_assert_eq!(connection.call(&some_object(), "held", &[]).unwrap(), Value::Int(0));
    }

    #[test]
    fn an_answer_in_pieces_is_one_answer(text in any::<String>(), size in 1_usize..9) {
        let mut line = "!ys".to_owned();
        wire::escape(&text, &mut line);
        line.push('\n');
        let pieces: Vec<Vec<u8>> = line.as_bytes().chunks(size).map(<[u8]>::to_vec).collect();
        let mut pieces = Some(pieces);
        let address = serve(move |_| Reply::Send(pieces.take().unwrap_or_default()));
        prop_assert_eq!(open(address).text(&some_object(), "text", &[]).unwrap(), text);
    }

    #[test]
    fn an_answer_cut_short_is_a_lost_connection(text in "[a-z\\\\]{1,20}", cut in 0_usize..22) {
        let line = format!("!ys{text}");
        let cut = cut.min(line.len());
        let bytes = line.as_bytes()[..cut].to_vec();
        let mut bytes = Some(bytes);
        let address = serve(move |_| Reply::SendAndClose(bytes.take().unwrap_or_default()));
        let error = open(address).text(&some_object(), "text", &[]).unwrap_err();
        prop_assert!(matches!(error, GatewayError::Closed), "{}", error);
    }

    #[test]
    fn noise_is_an_error_or_an_answer_and_never_a_panic(
        noise in prop::collection::vec(any::<u8>(), 0..60),
        prefix in prop::sample::select(vec!["", "!", "!y", "!ys", "!yi", "!x", "!xr", "!z", "!ylo1\n"]),
    ) {
        let mut bytes = prefix.as_bytes().to_vec();
        bytes.extend(noise);
        bytes.push(b'\n');
        let mut connection = open(serve(move |_| Reply::SendAndClose(bytes.clone())));
        let answer = connection.call(&some_object(), "noise", &[]);
        if answer.as_ref().is_err_and(GatewayError::is_fatal) {
            prop_assert!(matches!(
                connection.call(&some_object(), "again", &[]),
                Err(GatewayError::Closed)
            ));
        }
    }
}
