//! The action parser: what a response tells the environment.

use serde_json::{Map, Value, json};

const OPEN: &str = "<action>";
const CLOSE: &str = "</action>";
const OPEN_CALL: &str = "<tool_call>";
const CLOSE_CALL: &str = "</tool_call>";

/// How a response tells its action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ActionParser {
    /// Between the last complete pair of `<action>` tags.
    #[default]
    Tags,
    /// Under the key `action` of the last JSON object. An action that is not text is the JSON itself.
    Json,
    /// The last tool call, as `{"name": ..., "arguments": {...}}`; for environments whose actions are tool calls.
    ToolCall,
    /// The only text among the arguments of the last tool call; for environments whose actions are text.
    ToolText,
}

/// Why a response tells no action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ParseFailure {
    /// There is no complete pair of tags.
    NoTags,
    /// There is no JSON object at all.
    NoJson,
    /// Something begins like a JSON object and is none.
    BrokenJson,
    /// The object has no `action`, or the call no name.
    NoAction,
    /// The arguments of the call are not an object, or have not exactly one text where text is needed.
    BadArguments,
}

impl ParseFailure {
    /// The word in records.
    pub fn word(self) -> &'static str {
        match self {
            Self::NoTags => "no_tags",
            Self::NoJson => "no_json",
            Self::BrokenJson => "broken_json",
            Self::NoAction => "no_action",
            Self::BadArguments => "bad_arguments",
        }
    }
}

impl ActionParser {
    /// The action in a response. Without one the environment gets an empty action.
    pub fn action(self, response: &str) -> Result<String, ParseFailure> {
        match self {
            Self::Tags => action(response).map(str::to_owned).ok_or(ParseFailure::NoTags),
            Self::Json => match last_object(response)?.remove("action") {
                None | Some(Value::Null) => Err(ParseFailure::NoAction),
                Some(Value::String(text)) => Ok(text.trim().to_owned()),
                Some(other) => Ok(other.to_string()),
            },
            Self::ToolCall => {
                let (name, arguments) = tool_call(response)?;
                Ok(json!({"name": name, "arguments": arguments}).to_string())
            }
            Self::ToolText => {
                let (_, arguments) = tool_call(response)?;
                let mut texts = arguments.values().filter_map(Value::as_str);
                match (texts.next(), texts.next()) {
                    (Some(text), None) => Ok(text.trim().to_owned()),
                    _ => Err(ParseFailure::BadArguments),
                }
            }
        }
    }
}

/// The text inside the last complete `<action>...</action>` pair, trimmed. `None` when there is no such pair; the
/// environment then gets an empty action.
pub fn action(response: &str) -> Option<&str> {
    let close = response.rfind(CLOSE)?;
    let open = response[..close].rfind(OPEN)?;
    Some(response[open + OPEN.len()..close].trim())
}

/// Name and arguments of the last tool call: between `<tool_call>` tags (Qwen, Hermes), or a bare object (Llama, Mistral).
/// The arguments may be called `parameters`, be JSON in a text, or stand with the name inside `function` (OpenAI).
fn tool_call(response: &str) -> Result<(String, Map<String, Value>), ParseFailure> {
    let tagged = response.rfind(OPEN_CALL).map(|open| {
        let inner = &response[open + OPEN_CALL.len()..];
        inner.find(CLOSE_CALL).map_or(inner, |close| &inner[..close])
    });
    let mut call = last_object(tagged.unwrap_or(response))?;
    if let Some(Value::Object(function)) = call.remove("function") {
        call = function;
    }
    let Some(Value::String(name)) = call.remove("name") else { return Err(ParseFailure::NoAction) };
    let arguments = match call.remove("arguments").or_else(|| call.remove("parameters")) {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(arguments)) => arguments,
        Some(Value::String(text)) => {
            serde_json::from_str(&text).map_err(|_| ParseFailure::BadArguments)?
        }
        Some(_) => return Err(ParseFailure::BadArguments),
    };
    Ok((name, arguments))
}

/// The last JSON object that is not inside another one.
fn last_object(text: &str) -> Result<Map<String, Value>, ParseFailure> {
    let (mut found, mut begun, mut rest) = (None, false, text);
    while let Some(open) = rest.find('{') {
        begun = true;
        let mut objects =
            serde_json::Deserializer::from_str(&rest[open..]).into_iter::<Map<String, Value>>();
        if let Some(Ok(object)) = objects.next() {
            found = Some(object);
            rest = &rest[open + objects.byte_offset()..];
        } else {
            rest = &rest[open + 1..];
        }
    }
    found.ok_or(if begun { ParseFailure::BrokenJson } else { ParseFailure::NoJson })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_complete_pair_counts() {
        let cases = [
            ("Look around. <action> go to desk 1 </action>", Some("go to desk 1")),
            ("<action>a</action> no, <action>b</action> <action>c", Some("b")),
            ("<action>one <action>two</action>", Some("two")),
            ("<action></action>", Some("")),
            ("go to desk 1", None),
            ("</action> <action>", None),
            ("<action>unfinished", None),
            ("", None),
        ];
        for (response, expected) in cases {
            assert_eq!(action(response), expected, "{response:?}");
            let parsed = ActionParser::Tags.action(response);
            assert_eq!(parsed, expected.map(str::to_owned).ok_or(ParseFailure::NoTags));
        }
    }

    #[test]
    fn the_last_json_object_counts() {
        let cases = [
            (r#"I think {so}. {"thought": "east", "action": " go east "}"#, Ok("go east")),
            (r#"{"action": "a"} {"action": "b"} {"act"#, Ok("b")),
            (
                r#"```json {"action": {"room": 2, "deep": {"action": "x"}}}```"#,
                Ok(r#"{"room":2,"deep":{"action":"x"}}"#),
            ),
            (r#"{"action": null}"#, Err(ParseFailure::NoAction)),
            (r#"{"move": "east"}"#, Err(ParseFailure::NoAction)),
            (r#"{"action": "east""#, Err(ParseFailure::BrokenJson)),
            ("go east", Err(ParseFailure::NoJson)),
        ];
        for (response, expected) in cases {
            let read = ActionParser::Json.action(response);
            assert_eq!(read, expected.map(str::to_owned), "{response:?}");
        }
    }

    #[test]
    fn tool_calls_are_read_in_the_formats_models_write() {
        let wanted = r#"{"name":"move","arguments":{"to":"east"}}"#;
        for response in [
            r#"East. <tool_call> {"name": "move", "arguments": {"to": "east"}} </tool_call>"#,
            r#"<tool_call>{"name":"look"}</tool_call><tool_call>{"name":"move","arguments":{"to":"east"}}"#,
            r#"{"name": "move", "parameters": {"to": "east"}}"#,
            r#"[TOOL_CALLS][{"name": "move", "arguments": {"to": "east"}}]"#,
            r#"{"type": "function", "function": {"name": "move", "arguments": "{\"to\": \"east\"}"}}"#,
        ] {
            assert_eq!(
                ActionParser::ToolCall.action(response).as_deref(),
                Ok(wanted),
                "{response}"
            );
            assert_eq!(
                ActionParser::ToolText.action(response).as_deref(),
                Ok("east"),
                "{response}"
            );
        }
        for (response, failure) in [
            ("move east", ParseFailure::NoJson),
            ("<tool_call>{\"name\": </tool_call>", ParseFailure::BrokenJson),
            (r#"{"tool": "move"}"#, ParseFailure::NoAction),
            (r#"{"name": "move", "arguments": [1]}"#, ParseFailure::BadArguments),
            (r#"{"name": "move", "arguments": "east"}"#, ParseFailure::BadArguments),
        ] {
            assert_eq!(ActionParser::ToolCall.action(response), Err(failure), "{response}");
        }
        let two = r#"{"name": "move", "arguments": {"to": "east", "how": "fast"}}"#;
        assert_eq!(ActionParser::ToolText.action(two), Err(ParseFailure::BadArguments));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in ".{0,120}") {
            for parser in [ActionParser::Tags, ActionParser::Json, ActionParser::ToolCall, ActionParser::ToolText] {
                let _ = parser.action(&text);
                let _ = parser.action(&format!("{{{text}}}"));
            }
        }

        #[test]
        fn a_tagged_action_is_found_whatever_surrounds_it(before in "[^<]{0,40}", word in "[a-z ]{1,20}", after in "[^<]{0,40}") {
            let response = format!("{before}<action>{word}</action>{after}");
            proptest::prop_assert_eq!(action(&response), Some(word.trim()));
        }
    }
}
