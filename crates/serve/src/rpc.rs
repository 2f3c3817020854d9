//! JSON-RPC, as far as the protocol has it: the names of MCP's methods for tools, and two of its own for sessions.

use serde_json::{Map, Value, json};

/// The JSON-RPC methods for sessions that outlive their sockets.
pub(crate) const SESSION_CREATE: &str = "openenv/session/create";
pub(crate) const SESSION_CLOSE: &str = "openenv/session/close";

/// An error of JSON-RPC.
#[derive(Debug)]
pub(crate) struct RpcError {
    pub(crate) code: i64,
    pub(crate) message: String,
    pub(crate) data: Value,
}

impl RpcError {
    pub(crate) fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: Value::Null }
    }
}

/// Answers a JSON-RPC request; `more` knows the methods beside those for tools. These environments have no tools, so
/// there is little to say.
pub(crate) fn mcp(
    request: &Map<String, Value>,
    more: impl FnOnce(&str, &Value) -> Option<Result<Value, RpcError>>,
) -> Value {
    let id = request.get("id").cloned().unwrap_or_default();
    let method = request.get("method").and_then(Value::as_str);
    let params = request.get("params").unwrap_or(&Value::Null);
    let answer = match method {
        _ if request.get("jsonrpc") != Some(&json!("2.0")) => {
            Err(RpcError::new(-32600, "Invalid Request"))
        }
        None => Err(RpcError::new(-32600, "Invalid Request")),
        Some(method) => more(method, params).unwrap_or_else(|| match method {
            "tools/list" => Ok(json!({"tools": []})),
            "tools/call" => {
                Err(RpcError::new(-32603, "this environment has no tools; act by `step`"))
            }
            _ => Err(RpcError::new(-32601, "Method not found")),
        }),
    };
    match answer {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(RpcError { code, message, data }) => {
            let error = json!({"code": code, "message": message, "data": data});
            json!({"jsonrpc": "2.0", "id": id, "error": error})
        }
    }
}
