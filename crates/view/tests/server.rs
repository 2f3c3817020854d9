//! The server, asked as browsers and attackers ask.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use lens_view::api::Library;
use lens_view::export::document;
use lens_view::server::Server;
use tokio::runtime::Runtime;

/// Serves `roots` on a free port until the test ends.
fn serve(roots: Vec<PathBuf>) -> (Runtime, SocketAddr) {
    let runtime = Runtime::new().expect("a runtime");
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = runtime.block_on(Server::listen(any, roots, Vec::new())).expect("a free port");
    let address = server.address();
    let address = address.trim_start_matches("http://").trim_end_matches('/').parse();
    runtime.spawn(server.serve(std::future::pending()));
    (runtime, address.expect("an address"))
}

/// Sends a request as it is and gives status, headers and body.
fn ask(address: SocketAddr, request: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    stream.write_all(request.as_bytes()).expect("it can be sent");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("an answer");
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    (status, head.to_lowercase(), body.to_owned())
}

fn get(address: SocketAddr, path: &str) -> (u16, String, String) {
    ask(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"))
}

#[test]
fn pages_and_answers_are_served_with_a_strict_policy() {
    let folder = tempfile::tempdir().expect("a folder");
    common::record(folder.path(), &common::SMALL);
    let (_runtime, address) = serve(vec![folder.path().to_owned()]);
    for path in ["/", "/app.js", "/app.css", "/api/runs", "/api/compare", "/api/run/demo-7"] {
        let (status, head, body) = get(address, path);
        assert_eq!(status, 200, "{path}: {body}");
        assert!(head.contains("content-security-policy: default-src 'none'; script-src 'self'"));
        assert!(head.contains("x-content-type-options: nosniff"));
        assert!(!head.contains("access-control-allow-origin"));
    }
    let (_, _, page) = get(address, "/");
    assert!(
        !page.contains("http://") && !page.contains("https://"),
        "nothing is loaded from elsewhere"
    );
    let (_, _, body) = get(address, "/api/run/demo-7/episode/2/1");
    let line: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(line["forks"][0]["record"]["verdict"]["gain"], common::gain(2, 1));
    let (_, _, body) = get(address, "/api/run/demo-7/episodes");
    let rows: Vec<serde_json::Value> = serde_json::from_str(&body).expect("JSON");
    assert_eq!(rows.len(), 12);
    let (_, _, body) = get(address, "/api/run/demo-7/search?q=CUP%202.");
    let hits: Vec<(u64, u64)> = serde_json::from_str(&body).expect("JSON");
    assert_eq!((hits.len(), hits[0].0), (12, 4), "newest first");
    let (_, _, body) = get(address, "/api/run/demo-7/search?q=nowhere");
    assert_eq!(body, "[]");
}

#[test]
fn foreign_hosts_origins_and_methods_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    common::record(folder.path(), &common::SMALL);
    let (_runtime, address) = serve(vec![folder.path().to_owned()]);
    let port = address.port();
    let with = |headers: &str| {
        ask(address, &format!("GET /api/runs HTTP/1.1\r\n{headers}\r\nConnection: close\r\n\r\n")).0
    };
    assert_eq!(with(&format!("Host: localhost:{port}")), 200);
    assert_eq!(with(&format!("Host: {address}\r\nOrigin: http://{address}")), 200);
    for headers in [
        "Host: evil.example".to_owned(),
        format!("Host: evil.example:{port}"),
        "Host: 127.0.0.1".to_owned(),
        format!("Host: {address}\r\nOrigin: http://evil.example"),
        format!("Host: {address}\r\nOrigin: https://{address}"),
        format!("Host: {address}\r\nOrigin: null"),
        format!("Host: {address}\r\nOrigin: http://{address}.evil.example"),
    ] {
        assert_eq!(with(&headers), 403, "{headers}");
    }
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        let request = format!(
            "{method} /api/runs HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        assert_eq!(ask(address, &request).0, 405, "{method}");
    }
}

#[test]
fn paths_cannot_leave_the_runs_and_bad_files_are_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = common::record(folder.path(), &common::SMALL);
    std::fs::write(folder.path().join("secret"), "secret").expect("a file");
    let packed = std::fs::read(run.join("episodes/batch-000003.jsonl.zst")).expect("a file");
    std::fs::write(run.join("episodes/batch-000003.jsonl.zst"), &packed[..packed.len() / 2])
        .expect("a file");
    let metrics = run.join("metrics.jsonl");
    let mut text = std::fs::read(&metrics).expect("a file");
    text.extend(b"{\"kind\":\"step\",\"step\":\"x\"}\n{\"kind\":");
    std::fs::write(&metrics, text).expect("a file");
    let (_runtime, address) = serve(vec![folder.path().to_owned()]);
    for path in [
        "/api/run/../secret",
        "/api/run/demo-7/../../secret",
        "/api/run/%2e%2e/config",
        "/api/run/demo-7/episode/..%2f..%2fsecret/0",
        "/api/run/demo-7/episode/-1/0",
        "/api/run/demo-7/episode/99999999999999999999/0",
        "/api/run/demo-7/episode/1/99",
        "/../../etc/passwd",
        "/api/run/nobody",
    ] {
        let (status, _, body) = get(address, path);
        assert!((400..500).contains(&status), "{path} gives {status}");
        assert!(!body.contains("secret\n") && !body.contains("root:"), "{path}");
    }
    assert_eq!(get(address, "/api/run/demo-7/episode/3/0").0, 200, "it lies before the cut");
    let cut = format!("/api/run/demo-7/episode/3/{}", common::SMALL.episodes - 1);
    let (status, _, body) = get(address, &cut);
    assert_eq!(status, 500);
    assert!(body.contains("zstd frame"), "{body}");
    let (status, _, body) = get(address, "/api/run/demo-7");
    let summary: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!((status, summary["problems"].as_array().map(Vec::len)), (200, Some(1)));
}

#[test]
fn news_are_sent_when_a_run_writes() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = common::record(folder.path(), &common::SMALL);
    let (_runtime, address) = serve(vec![folder.path().to_owned()]);
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    let request = format!("GET /events HTTP/1.1\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it can be sent");
    let mut buffer = [0; 4096];
    let read = stream.read(&mut buffer).expect("a head");
    assert!(String::from_utf8_lossy(&buffer[..read]).contains("text/event-stream"));
    let path = run.join("metrics.jsonl");
    let mut file = std::fs::OpenOptions::new().append(true).open(path).expect("it opens");
    file.write_all(&common::batch_lines(5, &common::SMALL)).expect("it can be written");
    let mut seen = String::new();
    while !seen.contains("demo-7") {
        let read = stream.read(&mut buffer).expect("news within the time limit");
        assert!(read > 0, "the stream stays open");
        seen.push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
    let (_, _, body) = get(address, "/api/run/demo-7");
    let summary: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(summary["head"]["batch"], 5);
}

#[test]
fn an_export_is_one_file_that_cannot_run_what_it_shows() {
    let folder = tempfile::tempdir().expect("a folder");
    common::record(folder.path(), &common::SMALL);
    let library = Library::open(vec![folder.path().to_owned()]);
    let page = document(&library, 5).expect("it can be written");
    assert_eq!(page.matches("<script").count(), 2, "the data and the page's own script");
    assert!(!page.contains("<img src=x"), "text of episodes stays text");
    assert!(page.contains("Content-Security-Policy") && page.contains("script-src 'sha256-"));
    assert_eq!(page.matches("\"run/demo-7/episode/").count(), 5);
    let whole = document(&library, 1000).expect("it can be written");
    assert_eq!(whole.matches("\"run/demo-7/episode/").count(), 12);
}
