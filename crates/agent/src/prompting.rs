//! What a configuration says about messages and actions: the turn's template, the system's words, the action parser.

use lens_engine::Message;
use lens_env::{Actions, EnvError, PromptStyle, PromptTemplate, Window};
use serde_json::{Value, json};

use crate::parse::ActionParser;
use crate::prompts::{self, shown_commands};

/// How turns become messages and responses become actions. The default is the benchmark's own prompt and tagged actions.
#[derive(Debug, Clone, Default)]
pub struct Prompting {
    /// The template of a turn's message; `None` means the benchmark's own prompt.
    pub template: Option<PromptTemplate>,
    /// What every conversation begins with.
    pub system: Option<String>,
    /// How a response tells its action.
    pub parser: ActionParser,
}

impl Prompting {
    /// The ordinary message of a turn: what students and teachers see when they act.
    pub fn turn_message(&self, style: &PromptStyle, window: &Window) -> Result<String, EnvError> {
        match &self.template {
            None => Ok(prompts::turn_message(style, window)),
            Some(template) => template.render(&values(style, window)),
        }
    }

    /// The conversation with `message` as its latest word.
    pub fn messages(&self, earlier: &[Message], message: &str) -> Vec<Message> {
        let system = self.system.as_deref().map(Message::system);
        let latest = Message::user(message);
        system.into_iter().chain(earlier.iter().cloned()).chain([latest]).collect()
    }
}

/// What a template sees: the slots of the built-in prompts, and the same things as lists.
fn values(style: &PromptStyle, window: &Window) -> Value {
    let mut values: serde_json::Map<String, Value> = prompts::slots(style, window)
        .into_iter()
        .map(|(name, text)| (name.to_owned(), text.into()))
        .collect();
    let history: Vec<Value> = window
        .history
        .iter()
        .map(|past| json!({"step": past.step + 1, "observation": past.observation, "action": past.action}))
        .collect();
    let empty: &[String] = &[];
    let (commands, templates, objects) = match &window.actions {
        Actions::Commands(commands) => (&commands[..], empty, empty),
        Actions::Templates { templates, objects } => (empty, &templates[..], &objects[..]),
        Actions::Free => (empty, empty, empty),
    };
    values.insert("step_count".to_owned(), window.steps_taken.into());
    values.insert("history_length".to_owned(), window.history.len().into());
    values.insert("current_step".to_owned(), (window.steps_taken + 1).into());
    values.insert("history".to_owned(), history.into());
    values.insert("commands".to_owned(), shown_commands(style, commands).cloned().collect());
    values.insert("templates".to_owned(), templates.into());
    values.insert("object_list".to_owned(), objects.into());
    Value::Object(values)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use lens_env::{PastStep, alfworld, scienceworld, webshop};

    use super::*;

    fn shipped(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/prompts").join(name)
    }

    fn with(name: &str) -> Prompting {
        let template = PromptTemplate::read(&shipped(name)).expect("it is sound");
        Prompting { template: Some(template), ..Prompting::default() }
    }

    fn windows() -> Vec<Window> {
        let past = |step: usize, observation: &str, action: &str| PastStep {
            step,
            observation: observation.to_owned(),
            action: action.to_owned(),
        };
        let words = |list: &[&str]| list.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let actions = [
            Actions::Commands(words(&["go to desk 1", "help", "click[< prev]", "{{ 7 }}"])),
            Actions::Templates {
                templates: words(&["open OBJ", "look around"]),
                objects: words(&["door", "a 'b'"]),
            },
            Actions::Free,
            Actions::Commands(Vec::new()),
        ];
        let pasts = [
            Vec::new(),
            vec![
                past(3, "You see\n\n a {mug} <b>&amp;.", "look"),
                past(4, "{{ task_description }}\n", ""),
            ],
        ];
        let mut windows = Vec::new();
        for actions in actions {
            for history in &pasts {
                windows.push(Window {
                    task: "put a clean mug in {coffeemachine}.\n".to_owned(),
                    history: history.clone(),
                    steps_taken: 5,
                    observation: "You arrive at\nsinkbasin 1. {% raw %}\n".to_owned(),
                    actions: actions.clone(),
                });
            }
        }
        windows
    }

    #[test]
    fn the_papers_prompts_as_templates_are_the_built_in_ones_byte_for_byte() {
        for (name, style) in [
            ("alfworld.jinja", alfworld::PROFILE.prompt),
            ("webshop.jinja", webshop::PROFILE.prompt),
            ("scienceworld.jinja", scienceworld::PROFILE.prompt),
        ] {
            let (template, built_in) = (with(name), Prompting::default());
            for window in windows() {
                let wanted = built_in.turn_message(&style, &window).expect("it cannot fail");
                assert_eq!(
                    template.turn_message(&style, &window).expect("it renders"),
                    wanted,
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn a_template_can_write_lists_its_own_way() {
        let window = &windows()[1];
        let text = with("tool-call.jinja")
            .turn_message(&alfworld::PROFILE.prompt, window)
            .expect("it renders");
        assert!(text.contains("Step 4: You see\n\n a {mug} <b>&amp;. -> look\nStep 5:"), "{text}");
        assert!(text.contains("Commands: go to desk 1; click[< prev]; {{ 7 }}\nThink"), "{text}");
        let call = text.lines().last().expect("a line");
        assert_eq!(ActionParser::ToolText.action(call).as_deref(), Ok("go to desk 1"));
    }

    #[test]
    fn what_every_template_sees_is_what_the_check_was_made_with() {
        let template = "{{ [task_description, step_count, history_length, action_history, current_step, \
                        current_observation, admissible_actions, available_actions, action_templates, objects, \
                        history, commands, templates, object_list] | length }}";
        let template =
            PromptTemplate::new(Path::new("all"), template).expect("the check knows all of them");
        for window in windows() {
            let text = template.render(&values(&webshop::PROFILE.prompt, &window));
            assert_eq!(text.expect("all are there"), "14");
        }
    }

    #[test]
    fn the_systems_words_come_first() {
        let prompting = Prompting { system: Some("Be brief.".to_owned()), ..Prompting::default() };
        let earlier = [Message::user("One."), Message::assistant("Two.")];
        let messages = prompting.messages(&earlier, "Three.");
        assert_eq!(messages[0], Message::system("Be brief."));
        assert_eq!(messages[1..3], earlier);
        assert_eq!(messages[3], Message::user("Three."));
        assert_eq!(Prompting::default().messages(&[], "Three."), [Message::user("Three.")]);
    }
}
