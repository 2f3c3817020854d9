//! Prompts: a benchmark's style filled in with a turn, and the paper's three messages about hints (appendix C).
//!
//! The paper's templates are files, to the letter: the benchmarks' own beside their code in `lens-env`, the messages
//! about hints under `prompts/`. A past step reads `[Observation 3: '...', Action 3: '...']`, one per line, numbered
//! from 1; the paper leaves that to its lineage.

use lens_env::{Actions, CommandStyle, PromptStyle, Window};
use lens_opd::validate::fork::HintPrompt;

/// What stands in the place of a list where the environment gives none.
const ANY_TEXT: &str = "any text";

const DIAGNOSTIC_CUE: &str = include_str!("prompts/diagnostic_cue.txt");
const FEEDBACK_INCORPORATION: &str = include_str!("prompts/feedback_incorporation.txt");
const RECONSIDERATION: &str = include_str!("prompts/reconsideration.txt");

/// The ordinary message of a turn: what students and teachers see when they act.
pub fn turn_message(style: &PromptStyle, window: &Window) -> String {
    let slots = slots(style, window);
    let values: Vec<(&str, &str)> =
        slots.iter().map(|(name, value)| (*name, value.as_str())).collect();
    fill(&style.template, &values)
}

/// What a turn's message is made of, as text.
pub(crate) fn slots(style: &PromptStyle, window: &Window) -> [(&'static str, String); 10] {
    let (commands, templates, objects) = match &window.actions {
        Actions::Commands(commands) => {
            (command_list(style, commands), String::new(), String::new())
        }
        Actions::Templates { templates, objects } => {
            (templates.join("\n"), templates.join(", "), objects.join(", "))
        }
        Actions::Free => (ANY_TEXT.to_owned(), String::new(), String::new()),
    };
    [
        ("task_description", window.task.clone()),
        ("step_count", window.steps_taken.to_string()),
        ("history_length", window.history.len().to_string()),
        ("action_history", history_text(style, window)),
        ("current_step", (window.steps_taken + 1).to_string()),
        ("current_observation", window.observation.clone()),
        ("admissible_actions", commands.clone()),
        ("available_actions", commands),
        ("action_templates", templates),
        ("objects", objects),
    ]
}

/// The teacher's diagnostic cue: asks for one sentence about the action the student is about to take.
pub fn diagnostic_cue(style: &PromptStyle, window: &Window, student_action: &str) -> String {
    let actions = match &window.actions {
        Actions::Commands(commands) => command_list(style, commands),
        Actions::Templates { templates, objects } => {
            format!("{}\nObjects: {}", templates.join(", "), objects.join(", "))
        }
        Actions::Free => ANY_TEXT.to_owned(),
    };
    fill(
        DIAGNOSTIC_CUE,
        &[
            ("task", &window.task),
            ("observation", &window.observation),
            ("admissible_actions", &actions),
            ("history", &history_text(style, window)),
            ("student_action", student_action),
        ],
    )
}

/// The student's message at the fork turn of the hinted branch: the ordinary one with the teacher's feedback after it.
pub fn hinted_message(
    turn_message: &str,
    student_action: &str,
    hint: &str,
    style: HintPrompt,
) -> String {
    let template = match style {
        HintPrompt::FeedbackIncorporation => FEEDBACK_INCORPORATION,
        HintPrompt::Reconsideration => RECONSIDERATION,
    };
    let feedback = fill(template, &[("student_action", student_action), ("teacher_hint", hint)]);
    format!("{turn_message}\n\n{feedback}")
}

fn history_text(style: &PromptStyle, window: &Window) -> String {
    let items: Vec<String> = window
        .history
        .iter()
        .map(|past| {
            let number = past.step + 1;
            let observation = if style.fold_history {
                past.observation.split_whitespace().collect::<Vec<_>>().join(" ")
            } else {
                past.observation.clone()
            };
            format!("[Observation {number}: '{observation}', Action {number}: '{}']", past.action)
        })
        .collect();
    items.join("\n")
}

/// The commands that a prompt lists.
pub(crate) fn shown_commands<'a>(
    style: &PromptStyle,
    commands: &'a [String],
) -> impl Iterator<Item = &'a String> {
    commands.iter().filter(|command| !style.hidden_commands.contains(&command.as_str().into()))
}

fn command_list(style: &PromptStyle, commands: &[String]) -> String {
    let lines: Vec<String> = shown_commands(style, commands)
        .map(|command| match style.commands {
            CommandStyle::Quoted => format!("'{command}'"),
            CommandStyle::Bare => command.clone(),
        })
        .collect();
    lines.join("\n")
}

/// Replaces every `{slot}` of `template`, each looked up once: a value that itself contains braces is left alone.
fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut text = String::with_capacity(template.len() * 2);
    let mut rest = template.trim_end_matches('\n');
    while let Some(open) = rest.find('{') {
        text.push_str(&rest[..open]);
        let after = &rest[open + 1..];
        let slot = after.find('}').and_then(|close| {
            let name = &after[..close];
            values.iter().find(|(slot, _)| *slot == name).map(|(_, value)| (close, *value))
        });
        if let Some((close, value)) = slot {
            text.push_str(value);
            rest = &after[close + 1..];
        } else {
            text.push('{');
            rest = after;
        }
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use lens_env::{PastStep, alfworld, scienceworld, webshop};

    use super::*;

    fn window(actions: Actions) -> Window {
        Window {
            task: "put a clean mug in coffeemachine.".to_owned(),
            history: vec![
                PastStep {
                    step: 3,
                    observation: "You see\na {mug}.".to_owned(),
                    action: "look".to_owned(),
                },
                PastStep {
                    step: 4,
                    observation: "Nothing happens.".to_owned(),
                    action: String::new(),
                },
            ],
            steps_taken: 5,
            observation: "You arrive at sinkbasin 1.".to_owned(),
            actions,
        }
    }

    fn commands(list: &[&str]) -> Actions {
        Actions::Commands(list.iter().map(|&command| command.to_owned()).collect())
    }

    #[test]
    fn every_slot_of_every_template_is_filled() {
        let templates = Actions::Templates {
            templates: vec!["open OBJ".to_owned(), "look around".to_owned()],
            objects: vec!["door".to_owned()],
        };
        let mut plain = window(commands(&["go to cabinet 1", "help"]));
        plain.history[0].observation = "a mug".to_owned();
        for (style, window) in [
            (alfworld::PROFILE.prompt, plain.clone()),
            (webshop::PROFILE.prompt, plain.clone()),
            (scienceworld::PROFILE.prompt, Window { actions: templates, ..plain.clone() }),
            (alfworld::PROFILE.prompt, Window { actions: Actions::Free, ..plain }),
        ] {
            for text in [turn_message(&style, &window), diagnostic_cue(&style, &window, "look")] {
                assert!(!text.contains('{'), "{text}");
                assert!(text.contains(&window.task) && text.contains(&window.observation));
            }
        }
    }

    #[test]
    fn alfworld_reads_as_in_the_paper() {
        let text = turn_message(
            &alfworld::PROFILE.prompt,
            &window(commands(&["go to cabinet 1", "help", "look"])),
        );
        assert!(text.starts_with(
            "You are an expert agent operating in the ALFRED Embodied Environment. Your task is to: put a clean mug in coffeemachine.\n\
             Prior to this step, you have already taken 5 step(s). Below are the most recent 2 observations and the corresponding actions you took: \
             [Observation 4: 'You see\na {mug}.', Action 4: 'look']\n[Observation 5: 'Nothing happens.', Action 5: '']\n\
             You are now at step 6 and your current observation is: You arrive at sinkbasin 1.\n\
             Your admissible actions of the current situation are: ['go to cabinet 1'\n'look'].\n\nNow it's your turn"
        ), "{text}");
        assert!(text.ends_with("present it within <action> </action> tags."));
    }

    #[test]
    fn webshop_history_is_folded_and_its_commands_stand_bare() {
        let text = turn_message(
            &webshop::PROFILE.prompt,
            &window(commands(&["search[<query>]", "click[search]"])),
        );
        assert!(text.contains("'You see a {mug}.'"));
        assert!(text.contains("are: \n[\nsearch[<query>]\nclick[search]\n]."), "{text}");
    }

    #[test]
    fn the_two_ways_to_put_a_hint_differ_only_in_the_last_instruction() {
        let incorporate = hinted_message("M", "look", "Go.", HintPrompt::FeedbackIncorporation);
        let reconsider = hinted_message("M", "look", "Go.", HintPrompt::Reconsideration);
        let shared = "M\n\nYou proposed the following action earlier:\n\nlook\n\nTeacher feedback:\n\nGo.\n\n";
        assert_eq!(
            incorporate.strip_prefix(shared),
            Some("Take the teacher's feedback into account and produce the next action\nyourself.")
        );
        assert_eq!(
            reconsider.strip_prefix(shared),
            Some("Reconsider your decision and produce the next action yourself.")
        );
    }
}
