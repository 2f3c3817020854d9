//! Who may come in.
//!
//! A server on this machine alone answers only requests that were meant for it: a web page elsewhere can make a browser
//! send requests to 127.0.0.1, but not with that in the `Host` header (after a rebound name) or without its own
//! `Origin`. With a token, whoever shows it may come from anywhere.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// The rules of a server.
#[derive(Debug)]
pub(crate) struct Guard {
    pub(crate) token: Option<String>,
}

impl Guard {
    fn admits(&self, headers: &HeaderMap, uri: &Uri) -> Result<(), (StatusCode, &'static str)> {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let host = text(header::HOST).unwrap_or_default();
        if let Some(origin) = text(header::ORIGIN)
            && origin.split_once("://").map(|(_, origin)| origin) != Some(host)
        {
            return Err((StatusCode::FORBIDDEN, "requests of other sites' pages are refused"));
        }
        let Some(token) = &self.token else {
            let loopback = is_loopback(host);
            return if loopback {
                Ok(())
            } else {
                Err((StatusCode::FORBIDDEN, "the Host is not this machine"))
            };
        };
        let shown = text(header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
        let in_query = || {
            let pairs = uri.query().unwrap_or_default().split('&');
            pairs
                .filter_map(|pair| pair.split_once('='))
                .find(|(key, _)| *key == "token")
                .map(|(_, value)| value)
        };
        match shown.or_else(in_query) {
            Some(shown) if same(shown, token) => Ok(()),
            _ => Err((StatusCode::UNAUTHORIZED, "show the token: Authorization: Bearer TOKEN")),
        }
    }
}

/// Compares without telling by its time how much is right.
fn same(shown: &str, token: &str) -> bool {
    let differences = shown.bytes().zip(token.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
    shown.len() == token.len() && differences == 0
}

/// Whether a Host header names this machine.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name == "localhost"
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Refuses who may not come in.
pub(crate) async fn check(
    State(guard): State<Arc<Guard>>,
    request: Request,
    next: Next,
) -> Response {
    match guard.admits(request.headers(), request.uri()) {
        Ok(()) => next.run(request).await,
        Err(refused) => refused.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admits(
        token: Option<&str>,
        headers: &[(header::HeaderName, &str)],
        uri: &'static str,
    ) -> bool {
        let guard = Guard { token: token.map(str::to_owned) };
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| (name.clone(), value.parse().expect("a header")))
            .collect();
        guard.admits(&headers, &Uri::from_static(uri)).is_ok()
    }

    #[test]
    fn without_a_token_only_this_machine_is_meant() {
        for host in ["127.0.0.1:8000", "localhost", "[::1]:8000", "127.8.8.8"] {
            assert!(admits(None, &[(header::HOST, host)], "/ws"), "{host}");
        }
        for host in ["evil.example:8000", "127.0.0.1.evil.example", "10.0.0.1", ""] {
            assert!(!admits(None, &[(header::HOST, host)], "/ws"), "{host}");
        }
        let (host, other) =
            ((header::HOST, "127.0.0.1:8000"), (header::ORIGIN, "http://evil.example"));
        assert!(!admits(None, &[host.clone(), other], "/ws"));
        assert!(admits(None, &[host, (header::ORIGIN, "http://127.0.0.1:8000")], "/ws"));
    }

    #[test]
    fn with_a_token_the_token_counts() {
        let token = Some("0123456789abcdef");
        let bearer = |value| (header::AUTHORIZATION, value);
        assert!(admits(token, &[bearer("Bearer 0123456789abcdef")], "/ws"));
        assert!(admits(token, &[], "/ws?token=0123456789abcdef"));
        for wrong in ["Bearer 0123456789abcdeg", "Bearer 0123456789abcde", "0123456789abcdef", ""] {
            assert!(
                !admits(token, &[bearer(wrong), (header::HOST, "127.0.0.1")], "/ws"),
                "{wrong}"
            );
        }
        assert!(!admits(token, &[], "/ws"));
    }
}
