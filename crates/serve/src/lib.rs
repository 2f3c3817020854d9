//! Our environments as an OpenEnv server.
//!
//! Anything that speaks OpenEnv's protocol gets ALFWorld, WebShop and ScienceWorld from one program without a Python
//! stack, forks included. [`session`] is the protocol itself, without a network: text in, text out. [`routes`] puts it
//! behind a WebSocket and adds the HTTP side (metadata, schema, tasks, a page to play by hand); [`guard`] decides who may
//! come in.
#![forbid(unsafe_code)]

mod catalog;
mod guard;
mod kept;
mod routes;
mod rpc;
mod schema;
mod session;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

pub use catalog::Catalog;
use lens_env::{Benchmark, EnvError};
pub use session::{Reaction, Session};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

/// How to serve.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Where to listen. Addresses that others can reach need a token.
    pub address: SocketAddr,
    /// The most sessions at a time.
    pub max_sessions: usize,
    /// A session that is not used for so long is closed.
    pub idle: Duration,
    /// What clients have to show; `None` lets in everyone on this machine.
    pub token: Option<String>,
    /// Snapshots kept for restoring; the oldest go first.
    pub max_snapshots: usize,
    /// End episodes after so many turns; `None` leaves the counting to the client.
    pub turn_limit: Option<usize>,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], 8000)),
            max_sessions: 512,
            idle: Duration::from_mins(30),
            token: None,
            max_snapshots: 16384,
            turn_limit: None,
        }
    }
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// An open address without a token.
    #[error(
        "{0} can be reached from other machines, so a token is needed; give one or listen on 127.0.0.1"
    )]
    OpenWithoutToken(SocketAddr),
    /// A token that no client could send.
    #[error("the token must have at least 16 visible ASCII characters")]
    WeakToken,
    /// The address cannot be used.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
    /// The benchmark's tasks cannot be listed.
    #[error(transparent)]
    Benchmark(#[from] EnvError),
    /// No threads.
    #[error("cannot start the server's threads")]
    Threads(#[source] std::io::Error),
}

/// A running server; dropping it stops it.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    catalog: Arc<Catalog>,
    stop: Option<oneshot::Sender<()>>,
    runtime: Option<Runtime>,
}

impl Server {
    /// Starts to serve a benchmark in the background.
    pub fn start(
        benchmark: Arc<dyn Benchmark>,
        options: &ServeOptions,
    ) -> Result<Self, ServeError> {
        if let Some(token) = &options.token {
            if token.len() < 16 || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(ServeError::WeakToken);
            }
        } else if !options.address.ip().is_loopback() {
            return Err(ServeError::OpenWithoutToken(options.address));
        }
        let catalog = Arc::new(Catalog::new(benchmark, options.max_snapshots, options.turn_limit)?);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(ServeError::Threads)?;
        let listen = |source| ServeError::Listen { address: options.address, source };
        let listener = runtime.block_on(TcpListener::bind(options.address)).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let (stop, stopped) = oneshot::channel();
        let app = routes::app(Arc::clone(&catalog), options);
        runtime.spawn(async move {
            let until = async {
                // A dropped sender stops the server too.
                let _ = stopped.await;
            };
            // Serving ends with the process or with `stop`; a broken connection ends only itself.
            let _ = axum::serve(listener, app).with_graceful_shutdown(until).await;
        });
        Ok(Self { address, catalog, stop: Some(stop), runtime: Some(runtime) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sessions open now.
    pub fn sessions(&self) -> usize {
        self.catalog.sessions()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // It may have stopped by itself.
            let _ = stop.send(());
        }
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(1));
        }
    }
}
