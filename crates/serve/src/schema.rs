//! What the server says about itself.

use serde_json::{Value, json};

use crate::catalog::Catalog;

/// `/schema`.
pub(crate) fn schema() -> Value {
    let text = json!({"type": "string"});
    let list = json!({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}], "default": null});
    let metadata = json!({"type": "object", "additionalProperties": true});
    let observation = json!({
        "title": "Observation", "type": "object", "additionalProperties": false,
        "properties": {
            "done": {"type": "boolean", "default": false},
            "reward": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": null},
            "metadata": metadata,
            "task": text,
            "text": text,
            "admissible_actions": list,
            "action_templates": list,
            "objects": list,
        },
        "required": ["task", "text"],
    });
    json!({
        "action": {
            "title": "Action", "type": "object", "additionalProperties": false,
            "properties": {"metadata": metadata, "command": {"type": "string", "title": "Command"}},
            "required": ["command"],
        },
        "observation": observation,
        "reset_observation": observation,
        "state": {
            "title": "State", "type": "object", "additionalProperties": true,
            "properties": {
                "episode_id": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": null},
                "step_count": {"type": "integer", "minimum": 0, "default": 0},
                "task_id": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": null},
                "snapshot": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": null},
            },
        },
    })
}

/// `/metadata`: what OpenEnv asks for, and what forks need.
pub(crate) fn metadata(catalog: &Catalog) -> Value {
    let profile = catalog.profile();
    json!({
        "name": profile.name,
        "description": profile.summary,
        "readme_content": null,
        "version": env!("CARGO_PKG_VERSION"),
        "author": null,
        "documentation_url": null,
        "turn_limit": profile.turn_limit,
        "train_split": profile.train_split,
        "eval_splits": profile.eval_splits,
        "capabilities": {"snapshot": {"version": 1}, "set_state": true, "task_api": true},
    })
}

/// `/openapi.json`: the routes, without their bodies.
pub(crate) fn openapi(catalog: &Catalog) -> Value {
    let done = json!({"responses": {"200": {"description": "OK"}}});
    let get = json!({"get": done});
    let post = json!({"post": done});
    let mut paths = serde_json::Map::new();
    for path in ["/health", "/metadata", "/schema", "/state", "/list_environments", "/{env}/splits"]
    {
        paths.insert(path.to_owned(), get.clone());
    }
    let posts = [
        "/reset",
        "/step",
        "/mcp",
        "/{env}/tasks",
        "/{env}/num_tasks",
        "/{env}/task",
        "/{env}/task_range",
    ];
    for path in posts {
        paths.insert(path.to_owned(), post.clone());
    }
    json!({
        "openapi": "3.1.0",
        // The protocol's version, which validators read.
        "info": {"title": catalog.profile().name, "version": "1.0.0"},
        "paths": paths,
    })
}
