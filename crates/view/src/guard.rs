//! Who may ask: browsers on this machine, showing this page.
//!
//! A page elsewhere can make a browser send requests to loopback. Its Origin gives it away; a name that was made to
//! resolve to loopback is given away by Host.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// Nothing but what this server serves: no remote content, no inline script, no frame, no form.
pub(crate) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The hosts a request may name, such as `127.0.0.1:4570`.
#[derive(Debug, Clone)]
pub(crate) struct Hosts(pub(crate) Vec<String>);

impl Hosts {
    fn allow(&self, headers: &HeaderMap) -> bool {
        let text = |name| headers.get(name).map(HeaderValue::to_str);
        let host = match text(header::HOST) {
            Some(Ok(host)) => self.0.iter().any(|known| known.eq_ignore_ascii_case(host)),
            _ => false,
        };
        let origin = match text(header::ORIGIN) {
            None => true,
            Some(Ok(origin)) => origin.strip_prefix("http://").is_some_and(|origin| {
                self.0.iter().any(|known| known.eq_ignore_ascii_case(origin))
            }),
            Some(Err(_)) => false,
        };
        host && origin
    }
}

/// Refuses foreign requests and everything but reading, and sends the page's policy with every answer.
pub(crate) async fn guard(State(hosts): State<Hosts>, request: Request, next: Next) -> Response {
    let refused = if !hosts.allow(request.headers()) {
        Some((StatusCode::FORBIDDEN, "this viewer answers its own page only"))
    } else if !matches!(*request.method(), Method::GET | Method::HEAD) {
        Some((StatusCode::METHOD_NOT_ALLOWED, "this viewer only reads"))
    } else {
        None
    };
    let mut response = match refused {
        Some(refused) => refused.into_response(),
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    response
}
