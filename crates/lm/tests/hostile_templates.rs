//! Chat templates made to exhaust the memory, the stack or the time end in an error; those of real models do not notice.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use lens_lm::chat::{ChatOptions, ChatTemplate, Message};

/// What a template makes of a short conversation; one that stalls fails the test instead of hanging it.
fn render(source: String) -> Result<String, String> {
    let (done, result) = mpsc::channel();
    std::thread::spawn(move || {
        let messages = [Message::system("be brief"), Message::user("aaaa")];
        let text = ChatTemplate::new(Path::new("chat_template.jinja"), &source, BTreeMap::new())
            .and_then(|template| template.render(&messages, &ChatOptions::default()))
            .map_err(|error| error.to_string());
        done.send(text)
    });
    result.recv_timeout(Duration::from_mins(1)).expect("an answer in time")
}

fn refused(source: impl Into<String>, complaint: &str) {
    let source = source.into();
    let shown: String = source.chars().take(120).collect();
    let error = render(source).expect_err(&shown);
    assert!(error.contains("chat_template.jinja"), "{shown}: {error}");
    assert!(error.contains(complaint), "{shown}: {error}");
}

const TOO_LARGE: &str = "a value is larger than 4194304 bytes";

#[test]
fn texts_that_double_are_stopped() {
    let doubling = |step: &str| {
        format!(
            "{{% set n = namespace(x='aaaaaaaa') %}}{{% for i in range(60) %}}{step}{{% endfor %}}"
        )
    };
    refused(doubling("{% set n.x = n.x ~ n.x %}"), TOO_LARGE);
    refused(doubling("{% set n.x = n.x + n.x %}"), TOO_LARGE);
    refused(doubling("{% set n.x = [n.x, n.x] | join %}"), TOO_LARGE);
    refused(doubling("{% set n.x = ''.join([n.x, n.x]) %}"), TOO_LARGE);
    refused(doubling("{% set n.x %}{{ n.x }}{{ n.x }}{% endset %}"), TOO_LARGE);
    refused(doubling("{% set n.x = (n.x, n.x) | string %}"), TOO_LARGE);
    refused(doubling("{% set n.x = n.x | tojson | tojson ~ n.x %}"), TOO_LARGE);
    let straight = "{% set x = 'a' %}".to_owned() + &"{% set x = x ~ x %}".repeat(60);
    refused(straight, TOO_LARGE);
}

#[test]
fn values_that_hold_themselves_twice_are_stopped() {
    let doubling = |step: &str| {
        format!("{{% set n = namespace(x=['a']) %}}{{% for i in range(90) %}}{step}{{% endfor %}}")
    };
    refused(doubling("{% set n.x = n.x + n.x %}"), "a value");
    refused(doubling("{% set n.x = [n.x, n.x] %}"), "a value");
    refused(doubling("{% set n.x = [n.x] %}"), "nested more than 64 deep");
    refused(doubling("{% set n.x = {'a': n.x, 'b': n.x} %}"), "a value");
}

#[test]
fn filters_and_methods_that_multiply_are_stopped() {
    let long = "{% set n = namespace(x='aaaaaaaaaaaaaaaa') %}\
                {% for i in range(16) %}{% set n.x = n.x ~ n.x %}{% endfor %}";
    refused(format!("{long}{{{{ n.x | replace('a', n.x) }}}}"), TOO_LARGE);
    refused(format!("{long}{{{{ n.x.replace('a', n.x) }}}}"), TOO_LARGE);
    refused(format!("{long}{{{{ n.x.replace('', n.x) }}}}"), TOO_LARGE);
    refused(format!("{long}{{{{ [n.x] | map('replace', 'a', n.x) | list }}}}"), TOO_LARGE);
    refused(format!("{long}{{{{ n.x.join(n.x) }}}}"), "a value");
    refused("{{ 'a' | indent(100000000000, true) }}", "wider than 256 columns");
    refused("{{ 'a' | indent(width=100000000000, first=true) }}", "wider than 256 columns");
    refused("{{ '{:>100000000000}'.format(1) }}", "may not use `format`");
    refused("{{ '%100000000000d' | format(1) }}", "format");
    refused("{{ [1] | batch(10000000000, 0) | list }}", "batch");
    refused("{{ 'a' * 100000000 }}", "may not multiply");
    refused("{% if 'a' ** 100000000 %}{% endif %}", "may not multiply");
}

#[test]
fn macros_and_loops_that_call_themselves_are_stopped() {
    refused("{% macro m(x) %}{{ m(x ~ x) }}{% endmacro %}{{ m('aaaaaaaa') }}", TOO_LARGE);
    refused("{% macro m(y=1, x='') %}{{ m(x=x ~ x) }}{% endmacro %}{{ m(x='aaaa') }}", TOO_LARGE);
    refused("{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}", "recursion");
    refused("{% for a in ['aaaa'] recursive %}{{ loop([a ~ a]) }}{% endfor %}", "");
    let macros: Vec<String> = (1..60)
        .map(|level| {
            let below = level - 1;
            format!(
                "{{% macro m{level}() %}}{{{{ m{below}() }}}}{{{{ m{below}() }}}}{{% endmacro %}}"
            )
        })
        .collect();
    let macros = macros.concat();
    refused(format!("{{% macro m0() %}}aaaaaaaa{{% endmacro %}}{macros}{{{{ m59() }}}}"), "");
}

#[test]
fn what_is_written_is_bounded() {
    let long = "a".repeat(100_000);
    let nested = format!(
        "{{% set x %}}{{% for i in range(1000) %}}{{% for j in range(1000) %}}{long}{{% endfor %}}\
         {{% endfor %}}{{% endset %}}"
    );
    refused(nested, "writes more than 268435456 bytes");
    let shown = "{% for i in range(99999) %}{% for m in messages %}{{ messages | tojson }}\
                 {% for j in range(999) %}{{ m.content }}{% endfor %}{% endfor %}{% endfor %}";
    refused(shown, "");
    refused(
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "steps",
    );
}

#[test]
fn expressions_that_overflow_the_parser_are_refused() {
    for (part, count) in [("not ", 20_000), ("-", 100_000), ("2**", 20_000), ("(", 50_000)] {
        refused(format!("{{{{ {}1 }}}}", part.repeat(count)), "");
    }
    for part in [" | upper", "[0]", " ~ 'a'", ".x", " if x else 1", " and 1", " + 1", " == 1"] {
        refused(format!("{{{{ x{} }}}}", part.repeat(20_000)), "a tag");
    }
    refused("{% if x %}".repeat(20_000), "more than 32 blocks are nested");
    refused(
        format!("{{% if x %}}{}{{% endif %}}", "{% elif y %}".repeat(15_000)),
        "more than 128 branches",
    );
    refused("a".repeat(300_000), "longer than 262144 bytes");
}

#[test]
fn files_and_other_templates_are_out_of_reach() {
    for tag in ["include 'x'", "import 'x' as y", "from 'x' import y", "extends 'x'"] {
        refused(format!("\n{{% {tag} %}}"), "line 2: chat templates may not use the tag");
    }
}

#[test]
fn a_template_of_a_usual_shape_is_not_hindered() {
    let source = "\
{%- macro show(value, open='<', close='>') -%}
    {{- open ~ value ~ close -}}
{%- endmacro -%}
{%- set ns = namespace(first=true, system='') %}
{%- for message in messages %}
    {%- if message['role'] == 'system' %}
        {%- set ns.system = message.content | trim %}
    {%- elif message.role == 'user' -%}
        {% set text %}
        [{{ message.content.replace('a', 'b') }}]
        {%- endset %}
        {{- show(ns.system ~ '|' ~ text) }}
    {%- endif %}
{%- endfor %}
{% if add_generation_prompt %}
{{- 'go:' }}
{% endif %}
end
";
    let text = render(source.to_owned()).expect("it renders");
    assert_eq!(text, "<be brief|        [bbbb]>go:\nend");
}
