//! How a conversation with the gateway fails.

use std::time::Duration;

use super::wire::Value;

/// A failed call. [`GatewayError::is_fatal`] tells whether the connection can still be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// The socket failed.
    #[error("the connection failed: {0}")]
    Io(#[from] std::io::Error),
    /// The other side closed the connection, in the middle of an answer or before it.
    #[error("the connection was closed")]
    Closed,
    /// No answer within the deadline.
    #[error("no answer within {0:?}")]
    Deadline(Duration),
    /// Something that is not an answer.
    #[error("an answer that is not one: {0:?}")]
    Malformed(String),
    /// An answer of another type than the method has.
    #[error("{method} answered {got} instead of {wanted}")]
    Unexpected {
        /// The method called.
        method: String,
        /// The type it should have answered.
        wanted: &'static str,
        /// What came instead.
        got: String,
    },
    /// The Java code threw an exception.
    #[error("{method} threw {}", trace.lines().next().unwrap_or("an exception without a trace"))]
    Thrown {
        /// The method called.
        method: String,
        /// The stack trace.
        trace: String,
    },
    /// The gateway knows no such class, method or object.
    #[error("the gateway refused {method}: {}", reason.lines().next().unwrap_or("no reason given"))]
    Refused {
        /// The method called.
        method: String,
        /// The gateway's own stack trace.
        reason: String,
    },
    /// The gateway gave up and closes the connection (a bad token, a command it does not know).
    #[error("the gateway gave up: {0}")]
    Fatal(String),
}

impl GatewayError {
    /// How much of a bad answer an error repeats.
    const EXCERPT: usize = 120;

    pub(super) fn malformed(line: &str) -> Self {
        let mut excerpt: String = line.chars().take(Self::EXCERPT).collect();
        if excerpt.len() < line.len() {
            excerpt.push('…');
        }
        Self::Malformed(excerpt)
    }

    /// An answer of the wrong type.
    pub(in super::super) fn unexpected(method: &str, wanted: &'static str, got: &Value) -> Self {
        let got: String = format!("{got:?}").chars().take(Self::EXCERPT).collect();
        Self::Unexpected { method: method.to_owned(), wanted, got }
    }

    /// Whether the connection is lost: the next answer, if one came, could not be trusted to belong to the next request.
    pub fn is_fatal(&self) -> bool {
        match self {
            Self::Io(_)
            | Self::Closed
            | Self::Deadline(_)
            | Self::Malformed(_)
            | Self::Fatal(_) => true,
            Self::Unexpected { .. } | Self::Thrown { .. } | Self::Refused { .. } => false,
        }
    }
}
