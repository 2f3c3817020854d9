//! Prompts of the user's own: a template, the system's words and another action parser, in episodes and in forks.

use std::path::Path;

use lens_agent::parse::{ActionParser, ParseFailure};
use lens_agent::{Context, Prompting, RolloutConfig};
use lens_engine::scripted::{Reply, ScriptedPolicy};
use lens_env::PromptTemplate;
use lens_opd::episode::EpisodeEnd;

use crate::corridor::Fault;
use crate::support::{config, plan, played};

const TEMPLATE: &str = "{{ task_description }} {% for past in history %}{{ past.step }}:{{ past.action }} {% endfor %}\
                        now {{ current_observation }} {{ commands | join('|') }}\n";

fn prompting(template: &str, parser: ActionParser) -> Prompting {
    let template = PromptTemplate::new(Path::new("mine.jinja"), template).expect("it is sound");
    Prompting { template: Some(template), system: Some("Walk.".to_owned()), parser }
}

#[test]
fn a_template_and_the_systems_words_are_what_the_model_sees() {
    let student = ScriptedPolicy::saying(r#"{"action": "right"}"#);
    let mine =
        RolloutConfig { prompting: prompting(TEMPLATE, ActionParser::Json), ..config(Fault::None) };
    let episodes = played(&mine, &student, vec![plan(0, 3)]);
    assert_eq!((episodes[0].end, episodes[0].success), (EpisodeEnd::Completed, true));
    let prompts = student.prompts();
    assert_eq!(
        prompts[1],
        "system: Walk.\nuser: Walk 3 steps. 1:right now place 1. left|right|jump\n"
    );

    let student = ScriptedPolicy::saying(r#"{"action": "right"}"#);
    let chat = RolloutConfig { context: Context::Chat, ..mine };
    played(&chat, &student, vec![plan(0, 3)]);
    let last = &student.prompts()[2];
    assert_eq!(last.matches("system: Walk.").count(), 1, "{last}");
    assert!(last.contains("assistant: {\"action\": \"right\"}\nuser: Walk 3 steps. 1:right now"));
}

#[test]
fn a_response_without_an_action_keeps_its_reason() {
    let replies = ["right", r#"{"action": "#, r#"{"go": "right"}"#, r#"{"action": "right"}"#];
    let student = ScriptedPolicy::new(replies.map(Reply::from), |_| "".into());
    let mine = RolloutConfig {
        prompting: prompting(TEMPLATE, ActionParser::Json),
        turn_limit: 4,
        ..config(Fault::None)
    };
    let episodes = played(&mine, &student, vec![plan(0, 9)]);
    let reasons: Vec<_> = episodes[0].turns.iter().map(|turn| turn.unparsed).collect();
    let wanted = [
        Some(ParseFailure::NoJson),
        Some(ParseFailure::BrokenJson),
        Some(ParseFailure::NoAction),
        None,
    ];
    assert_eq!(reasons, wanted);
}

#[test]
fn a_prompt_that_cannot_be_rendered_ends_its_episode_in_words() {
    // Sound for what the check shows it, endless for what the corridor shows.
    let endless = "{% if commands | length > 2 %}{% for a in range(9999) %}{% for b in range(9999) %}\
                   {% endfor %}{% endfor %}{% endif %}";
    let mine =
        RolloutConfig { prompting: prompting(endless, ActionParser::Tags), ..config(Fault::None) };
    let episodes = played(&mine, &ScriptedPolicy::saying("right"), vec![plan(0, 3)]);
    assert_eq!((episodes[0].end, episodes[0].turns.len()), (EpisodeEnd::Failed, 0));
    let failure = episodes[0].failure.as_deref().unwrap_or_default();
    assert!(
        failure.starts_with("prompt.template: mine.jinja:1: engine ran out of fuel"),
        "{failure}"
    );
}
