//! The viewer's server.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::WatchStream;

use crate::api::{Library, answer};
use crate::assets;
use crate::error::ViewError;
use crate::guard::{Hosts, guard};

/// How often running runs are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// Looks between searches for new runs.
const SEARCH_EVERY: u32 = 5;

#[derive(Clone)]
struct Shared {
    library: Arc<RwLock<Library>>,
    changes: watch::Receiver<String>,
}

/// A server that listens and is about to serve.
pub struct Server {
    listener: TcpListener,
    library: Library,
    address: SocketAddr,
    names: Vec<String>,
}

impl Server {
    /// Listens on `address`; port 0 takes any free port. `names` are further host names that requests may use, for a
    /// server that is deliberately reachable from elsewhere.
    pub async fn listen(
        address: SocketAddr,
        roots: Vec<PathBuf>,
        names: Vec<String>,
    ) -> Result<Self, ViewError> {
        let problem = |source| ViewError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(problem)?;
        let bound = listener.local_addr().map_err(problem)?;
        Ok(Self { listener, library: Library::open(roots), address: bound, names })
    }

    /// Where the page is.
    pub fn address(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// How many runs there are.
    pub fn runs(&self) -> usize {
        self.library.runs().len()
    }

    /// Serves until `stop` is done.
    pub async fn serve(
        self,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), ViewError> {
        let port = self.address.port();
        let mut hosts = vec![
            self.address.to_string(),
            format!("localhost:{port}"),
            format!("127.0.0.1:{port}"),
            format!("[::1]:{port}"),
        ];
        hosts.extend(self.names.iter().map(|name| format!("{name}:{port}")));
        let (tell, changes) = watch::channel(String::new());
        let library = Arc::new(RwLock::new(self.library));
        let watcher = tokio::spawn(watch_runs(library.clone(), tell));
        let router = router(Shared { library, changes }, Hosts(hosts));
        let served = axum::serve(self.listener, router).with_graceful_shutdown(stop);
        let result = served.await.map_err(ViewError::Serve);
        watcher.abort();
        result
    }
}

fn router(shared: Shared, hosts: Hosts) -> Router {
    let text = |kind: &'static str, body: String| {
        get(move || async move { ([(header::CONTENT_TYPE, kind)], body) })
    };
    let head = "<link rel=\"stylesheet\" href=\"/app.css\">";
    let page = assets::page(head, "", "<script src=\"/app.js\"></script>");
    Router::new()
        .route("/", text("text/html; charset=utf-8", page))
        .route("/app.js", text("text/javascript; charset=utf-8", assets::script()))
        .route("/app.css", text("text/css; charset=utf-8", assets::STYLE.to_owned()))
        .route("/events", get(events))
        .route("/api/{*path}", get(api))
        .with_state(shared)
        .layer(from_fn_with_state(hosts, guard))
}

/// Looks at the runs again and again, and tells the pages which have changed.
async fn watch_runs(library: Arc<RwLock<Library>>, tell: watch::Sender<String>) {
    let mut round = 0_u32;
    loop {
        tokio::time::sleep(LOOK).await;
        round = round.wrapping_add(1);
        let library = library.clone();
        let look = move || {
            let mut library = library.write().unwrap_or_else(PoisonError::into_inner);
            let found = round.is_multiple_of(SEARCH_EVERY) && library.find();
            let changed = library.refresh();
            (found || !changed.is_empty())
                .then(|| serde_json::json!({ "runs": changed }).to_string())
        };
        if let Ok(Some(news)) = tokio::task::spawn_blocking(look).await {
            // Nobody may be listening.
            let _ = tell.send(format!("{round} {news}"));
        }
    }
}

/// News as server-sent events: which runs have written something.
async fn events(State(shared): State<Shared>) -> Response {
    let news = WatchStream::from_changes(shared.changes).map(|news| {
        let body = news.split_once(' ').map_or("", |(_, body)| body);
        Ok::<_, Infallible>(Event::default().data(body))
    });
    Sse::new(news).keep_alive(KeepAlive::default()).into_response()
}

async fn api(
    State(shared): State<Shared>,
    Path(path): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let query = needle(query.as_deref().unwrap_or_default());
    let work = move || {
        let library = shared.library.read().unwrap_or_else(PoisonError::into_inner);
        let answer = answer(&library, &path, &query)?;
        drop(library);
        answer.finish()
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(json)) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
        Ok(Err(error)) => {
            let status = match &error {
                ViewError::Missing(_) => StatusCode::NOT_FOUND,
                ViewError::Question(_) => StatusCode::BAD_REQUEST,
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            };
            let body = serde_json::json!({ "error": error.to_string() }).to_string();
            (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// The value of `q` in a query, percent-decoded.
fn needle(query: &str) -> String {
    let Some(value) = query.split('&').find_map(|pair| pair.strip_prefix("q=")) else {
        return String::new();
    };
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => match (digit(rest.next()), digit(rest.next())) {
                (Some(high), Some(low)) => bytes.push((high * 16 + low) as u8),
                _ => bytes.push(b'%'),
            },
            other => bytes.push(other),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::needle;

    #[test]
    fn queries_are_decoded_and_nonsense_is_kept_harmless() {
        assert_eq!(needle("q=a%20b+c%C3%A4"), "a b cä");
        assert_eq!(needle("x=1&q=%zz%4"), "%%");
        assert_eq!(needle(""), "");
    }
}
