//! Templates that users write: how an answer becomes text, and how a turn becomes a prompt. They see what they are given
//! and nothing else: no files, no clock, a bounded number of steps and a bounded output.

use minijinja::value::Serde;
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, Value};

/// How many template instructions one rendering may take.
const FUEL: u64 = 200_000;
/// The longest rendered text.
const LONGEST: usize = 1 << 20;
/// The name under which the one template is kept.
const NAME: &str = "template";

/// A checked template.
#[derive(Debug, Clone)]
pub struct Template {
    environment: Environment<'static>,
}

impl Template {
    /// Checks a template's syntax. What is not there is rendered as nothing.
    pub fn new(source: &str) -> Result<Self, Error> {
        Self::with(source, UndefinedBehavior::Lenient)
    }

    /// The same, but what is not there is an error.
    pub fn strict(source: &str) -> Result<Self, Error> {
        Self::with(source, UndefinedBehavior::Strict)
    }

    fn with(source: &str, undefined: UndefinedBehavior) -> Result<Self, Error> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(undefined);
        environment.set_fuel(Some(FUEL));
        environment.add_filter("tojson", |value: Value| {
            serde_json::to_string(&value)
                .map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))
        });
        environment.add_template_owned(NAME, source.to_owned())?;
        Ok(Self { environment })
    }

    /// The names it reads that it does not define itself.
    pub fn names(&self) -> Result<Vec<String>, Error> {
        let names = self.environment.get_template(NAME)?.undeclared_variables(false);
        let mut names: Vec<String> = names.into_iter().collect();
        names.sort_unstable();
        Ok(names)
    }

    /// The text for `context`.
    pub fn render(&self, context: &serde_json::Value) -> Result<String, Error> {
        let mut text = Capped(Vec::new());
        self.environment.get_template(NAME)?.render_captured_to(Serde(context), &mut text)?;
        String::from_utf8(text.0)
            .map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))
    }
}

/// A text that refuses to grow without bound.
struct Capped(Vec<u8>);

impl std::io::Write for Capped {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + bytes.len() > LONGEST {
            return Err(std::io::Error::other("the text is longer than 1 MiB"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rendered(source: &str) -> Result<String, Error> {
        Template::new(source)?
            .render(&json!({"observation": {"text": "A <b> room.", "exits": ["n", "s"]}}))
    }

    #[test]
    fn answers_are_rendered_as_they_are() {
        let text = rendered("{{ observation.text }} Exits: {{ observation.exits | join(', ') }}.");
        assert_eq!(text.unwrap(), "A <b> room. Exits: n, s.");
        assert_eq!(rendered("{{ observation.exits | tojson }}").unwrap(), r#"["n","s"]"#);
        assert_eq!(rendered("{{ observation.missing }}").unwrap(), "");
    }

    #[test]
    fn a_template_cannot_run_for_ever_or_grow_without_bound() {
        let endless =
            "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}";
        assert!(rendered(endless).unwrap_err().to_string().contains("fuel"));
        let long = "{% for a in range(9999) %}{% for b in range(9) %}{{ observation.text * 99 }}{% endfor %}{% endfor %}";
        assert!(rendered(long).is_err());
    }

    #[test]
    fn a_template_cannot_read_files() {
        for source in ["{% include '/etc/hostname' %}", "{% extends '/etc/hostname' %}"] {
            assert!(rendered(source).is_err(), "{source}");
        }
    }
}
