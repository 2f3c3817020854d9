//! The template environment, feature by feature. Parity on real templates is in `parity_chat.rs`.

use std::collections::BTreeMap;
use std::path::Path;

use lens_lm::chat::{ChatOptions, ChatTemplate, Date, Message};
use serde_json::json;

fn template(source: &str) -> ChatTemplate {
    let tokens = BTreeMap::from([("bos_token".to_owned(), "<s>".to_owned())]);
    ChatTemplate::new(Path::new("chat_template.jinja"), source, tokens).expect("compiles")
}

fn render(source: &str) -> Result<String, String> {
    let messages = [Message::system("Be kind."), Message::user(" Hello \n")];
    template(source).render(&messages, &ChatOptions::default()).map_err(|error| error.to_string())
}

fn rendered(source: &str) -> String {
    render(source).expect("renders")
}

#[test]
fn blocks_eat_the_newline_behind_them_and_the_spaces_before_them() {
    let source = "{{ bos_token }}\n{% for message in messages %}\n    {% if true %}\n{{ message.role }}:\n    {% endif %}\n{% endfor %}\n";
    assert_eq!(rendered(source), "<s>\nsystem:\nuser:\n");
}

#[test]
fn python_string_methods_slices_and_namespaces_work() {
    assert_eq!(rendered("{{ messages[-1].content.strip() | upper }}"), "HELLO");
    assert_eq!(rendered("{{ messages[::-1][0].role }}{{ messages[1:] | length }}"), "user1");
    assert_eq!(
        rendered("{{ 'a,b,c'.split(',')[-1] }}{{ '  x'.lstrip() }}{{ 'x.y'.startswith('x') }}"),
        "cxTrue"
    );
    assert_eq!(
        rendered(
            "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}"
        ),
        "2"
    );
    assert_eq!(
        rendered(
            "{% for m in messages %}{% if loop.last %}{% break %}{% endif %}{{ m.role }}{% endfor %}"
        ),
        "system"
    );
    assert_eq!(
        rendered(
            "{{ messages[0].get('tool_calls') is none }}{{ messages[0].tool_calls is defined }}"
        ),
        "TrueFalse"
    );
    assert_eq!(
        rendered(
            "{{ messages[0]['role'] }}{% for k, v in messages[0].items() %}|{{ k }}{% endfor %}"
        ),
        "system|role|content"
    );
}

#[test]
fn json_prints_as_python_prints_it() {
    let print = |filter: &str| {
        let messages = json!([{"role": "user", "content": "", "x": {"b": [1, 2.5, true, null], "a": "<é'\"&>"}}]);
        template(&format!("{{{{ messages[0].x | {filter} }}}}"))
            .render_json(&messages, &ChatOptions::default())
            .expect("renders")
    };
    assert_eq!(print("tojson"), r#"{"b": [1, 2.5, true, null], "a": "<é'\"&>"}"#);
    assert_eq!(
        print("tojson(indent=2)"),
        "{\n  \"b\": [\n    1,\n    2.5,\n    true,\n    null\n  ],\n  \"a\": \"<é'\\\"&>\"\n}"
    );
}

#[test]
fn a_template_can_refuse_and_its_words_are_shown() {
    let error = render("a\n{% if messages[0].role == 'system' %}{{ raise_exception('no system turns') }}{% endif %}")
        .expect_err("refuses");
    assert!(error.contains("chat_template.jinja") && error.contains("line 2"), "{error}");
    assert!(error.contains("no system turns"), "{error}");
}

#[test]
fn today_is_given_or_asking_for_it_fails() {
    let source = "{{ strftime_now('%d %b %Y') }}";
    let error = render(source).expect_err("no date was given");
    assert!(error.contains("today's date"), "{error}");
    let options = ChatOptions { today: Date::new(2024, 7, 26), ..ChatOptions::default() };
    assert_eq!(template(source).render(&[], &options).expect("renders"), "26 Jul 2024");
}

#[test]
fn generation_blocks_are_transparent() {
    let source =
        "{% for m in messages %}{%- generation -%} {{ m.role }} {%- endgeneration -%} {% endfor %}";
    assert_eq!(rendered(source), "systemuser");
}

#[test]
fn thinking_is_passed_only_when_it_is_set() {
    let source = "{{ enable_thinking is defined }} {{ add_generation_prompt }}";
    assert_eq!(rendered(source), "True True");
    let options = ChatOptions { enable_thinking: None, add_generation_prompt: false, today: None };
    assert_eq!(template(source).render(&[], &options).expect("renders"), "False False");
}

#[test]
fn a_template_without_end_is_stopped() {
    let source = "{% macro f(n) %}{% for i in range(9999) %}{% for j in range(9999) %}{{ '' }}{% endfor %}{% endfor %}{% endmacro %}{{ f(1) }}";
    let error = render(source).expect_err("endless");
    assert!(error.contains("does not come to an end"), "{error}");
}

#[test]
fn what_does_not_compile_is_named_with_its_line() {
    let error = ChatTemplate::new(Path::new("t.jinja"), "ok\n\n{% for %}", BTreeMap::new())
        .expect_err("broken")
        .to_string();
    assert!(error.contains("t.jinja") && error.contains("line 3"), "{error}");
}
