//! What can keep a page from being shown.

use std::net::SocketAddr;

/// A server that cannot start, or an answer that cannot be given.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// The address is taken or not allowed.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address asked for.
        address: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// The server stopped.
    #[error("the server stopped")]
    Serve(#[source] std::io::Error),
    /// There is no such run, batch, episode or page.
    #[error("{0}")]
    Missing(String),
    /// The question makes no sense.
    #[error("{0}")]
    Question(String),
    /// A file of the run cannot be read.
    #[error(transparent)]
    Records(#[from] lens_records::ReadProblem),
    /// An answer cannot be written as JSON.
    #[error("an answer cannot be written as JSON")]
    Json(#[from] serde_json::Error),
}
