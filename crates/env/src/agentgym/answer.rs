//! What AgentGym's servers answer, made the same.

use serde_json::{Map, Value, json};

use crate::environment::Actions;

/// The key under which an answer lists actions itself (alfworld).
pub(super) const LISTED: &str = "available_actions";

/// An environment's number, under the name its server gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Id {
    /// `{"id": 3}` (alfworld, sciworld, textcraft and most others).
    Named(u64),
    /// A bare number, which is `env_idx` in every later message (webshop).
    Bare(u64),
}

impl Id {
    pub(super) fn read(answer: &Value) -> Option<Self> {
        match answer {
            Value::Number(number) => number.as_u64().map(Self::Bare),
            answer => answer["id"].as_u64().map(Self::Named),
        }
    }

    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Named(_) => "id",
            Self::Bare(_) => "env_idx",
        }
    }

    pub(super) fn number(self) -> u64 {
        let (Self::Named(number) | Self::Bare(number)) = self;
        number
    }
}

/// Where a server lists actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hints {
    /// No reset has shown it yet.
    Unknown = 0,
    /// In every answer (alfworld).
    Answer = 1,
    /// At a route of its own (webshop).
    AvailableActions = 2,
    /// As templates and objects, at another (sciworld).
    ActionHint = 3,
    /// Nowhere: any text (textcraft, babyai).
    None = 4,
}

impl From<u8> for Hints {
    fn from(number: u8) -> Self {
        [Self::Unknown, Self::Answer, Self::AvailableActions, Self::ActionHint]
            .into_iter()
            .find(|hints| *hints as u8 == number)
            .unwrap_or(Self::None)
    }
}

impl Hints {
    pub(super) fn route(self) -> Option<&'static str> {
        match self {
            Self::AvailableActions => Some("/available_actions"),
            Self::ActionHint => Some("/action_hint"),
            Self::Unknown | Self::Answer | Self::None => None,
        }
    }
}

/// An answer to a reset or a step as one object with `observation`, `reward`, `done` and the server's own keys.
pub(super) fn normal(answer: Value) -> Option<Value> {
    let mut data = match answer {
        Value::Object(data) => data,
        // webshop: [observation, null]
        Value::Array(mut parts) if !parts.is_empty() => {
            Map::from_iter([("observation".to_owned(), parts.swap_remove(0))])
        }
        _ => return None,
    };
    if !data.contains_key("observation") {
        // webshop's step calls it `state`.
        let state = data.remove("state")?;
        data.insert("observation".to_owned(), state);
    }
    if let Some(score) = data.get("score").filter(|score| score.is_number()).cloned() {
        data.insert("metadata".to_owned(), json!({"score": score}));
    }
    if let Some(list) = data.get(LISTED).filter(|list| list.is_array()).cloned() {
        // The reader looks inside the observation.
        let text = data.remove("observation").unwrap_or_default();
        data.insert("observation".to_owned(), json!({"text": text, "admissible_actions": list}));
    }
    Some(Value::Object(data))
}

/// What a route for actions answers; `None` where it is no list of actions.
pub(super) fn actions(answer: &Value) -> Option<Actions> {
    let texts = |value: &Value| -> Option<Vec<String>> {
        value.as_array()?.iter().map(|item| item.as_str().map(str::to_owned)).collect()
    };
    if let Some(commands) = texts(answer) {
        return Some(Actions::Commands(commands));
    }
    if let Some(clickables) = texts(&answer["clickables"]) {
        let search = (answer["has_search_bar"] == true).then(|| "search[<query>]".to_owned());
        let clicks = clickables.into_iter().map(|name| format!("click[{name}]"));
        return Some(Actions::Commands(search.into_iter().chain(clicks).collect()));
    }
    let templates = texts(&answer["possible_actions"])?;
    let objects = texts(&answer["possible_objects"])?;
    Some(Actions::Templates { templates, objects })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_id_are_read() {
        assert_eq!(Id::read(&json!({"id": 3})), Some(Id::Named(3)));
        assert_eq!(Id::read(&json!(48_950_076)), Some(Id::Bare(48_950_076)));
        assert_eq!((Id::Named(3).key(), Id::Bare(3).key()), ("id", "env_idx"));
        for nothing in [json!({"error": "full"}), json!(-1), json!("3"), json!(null)] {
            assert_eq!(Id::read(&nothing), None, "{nothing}");
        }
    }

    #[test]
    fn answers_of_all_three_benchmarks_become_the_same() {
        let alfworld = normal(
            json!({"observation": "A room.", "reward": 0.0, "available_actions": ["look"], "done": false}),
        );
        assert_eq!(
            alfworld.unwrap()["observation"],
            json!({"text": "A room.", "admissible_actions": ["look"]})
        );
        assert_eq!(normal(json!(["A shop.", null])).unwrap()["observation"], "A shop.");
        let step =
            normal(json!({"state": "A shop.", "reward": 0.5, "done": true, "info": null})).unwrap();
        assert_eq!((&step["observation"], &step["done"]), (&json!("A shop."), &json!(true)));
        let science =
            normal(json!({"observation": "A lab.", "reward": 3, "score": 8, "done": false}));
        assert_eq!(science.unwrap()["metadata"]["score"], 8);
        for nothing in [json!(null), json!([]), json!({"reward": 1}), json!(true)] {
            assert_eq!(normal(nothing.clone()), None, "{nothing}");
        }
    }

    #[test]
    fn routes_for_actions_are_read() {
        let shop = actions(&json!({"has_search_bar": true, "clickables": ["back"]}));
        let wanted = vec!["search[<query>]".to_owned(), "click[back]".to_owned()];
        assert_eq!(shop, Some(Actions::Commands(wanted)));
        let science =
            actions(&json!({"possible_actions": ["open OBJ"], "possible_objects": ["door"]}));
        assert!(matches!(science, Some(Actions::Templates { .. })));
        assert_eq!(actions(&json!({"error": "has finished"})), None);
    }
}
