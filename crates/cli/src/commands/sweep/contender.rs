//! The rows of a sweep: methods, and a method with other settings.

use std::fmt;

use lens_opd::methods::MethodName;

use super::BEFORE;
use crate::commands::config::ConfigArgs;
use crate::failure::Failure;

/// The ablations of the paper's table 3: the row's name and the one setting that differs.
const ABLATIONS: [(&str, &str); 5] = [
    ("fixed-clock", "locate.clock=fixed-f2b"),
    ("last-turn", "locate.proposal=last-turn"),
    ("no-internalization", "refine.internalize=false"),
    ("no-focus", "refine.focus=false"),
    ("reconsideration", "validate.hint_prompt=reconsideration"),
];

/// What is trained in a row of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Contender {
    /// The row's name, also part of its runs' folders.
    name: String,
    pub(super) method: MethodName,
    /// Settings of this row alone, as `--set` takes them.
    settings: Vec<String>,
}

impl Contender {
    pub(super) fn method(method: MethodName) -> Self {
        Self { name: method.to_string(), method, settings: Vec::new() }
    }

    /// The ablations of LENS-OPD.
    pub(super) fn ablations() -> impl Iterator<Item = Self> {
        ABLATIONS.into_iter().map(|(name, setting)| Self {
            name: name.to_owned(),
            method: MethodName::Lens,
            settings: vec![setting.to_owned()],
        })
    }

    /// Reads `NAME:KEY=VALUE[,KEY=VALUE]`; the method is the configuration's unless a setting names another.
    pub(super) fn variant(text: &str, config: &ConfigArgs) -> Result<Self, Failure> {
        let wrong = |reason: &str| {
            Failure::user_with_hint(
                format!("--variant `{text}`: {reason}"),
                "write NAME:KEY=VALUE, such as --variant long:validate.continuation_turns=8",
            )
        };
        let (name, settings) = text.split_once(':').ok_or_else(|| wrong("there is no colon"))?;
        let plain = |one: char| one.is_ascii_alphanumeric() || matches!(one, '-' | '_' | '.');
        if name.is_empty() || !name.chars().all(plain) {
            return Err(wrong("a name has letters, digits, `-`, `_` and `.`"));
        }
        if MethodName::ALL.iter().any(|method| method.to_string() == name) {
            return Err(wrong("that is the name of a method"));
        }
        if name == BEFORE {
            return Err(wrong("that is the name of the row before training"));
        }
        let mut own = Self {
            name: name.to_owned(),
            method: MethodName::Lens,
            settings: split(settings).into_iter().map(str::to_owned).collect(),
        };
        own.method = own.config(config)?.method;
        Ok(own)
    }

    /// Whether this is the method itself, with nothing changed.
    pub(super) fn is(&self, method: MethodName) -> bool {
        self.method == method && self.settings.is_empty()
    }

    /// Whether settings differ from the sweep's.
    pub(super) fn is_variant(&self) -> bool {
        !self.settings.is_empty()
    }

    /// The configuration of the row, before student and seed are chosen.
    pub(super) fn config(&self, args: &ConfigArgs) -> Result<lens_config::Config, Failure> {
        let mut args = args.clone();
        args.overrides.extend(self.settings.iter().cloned());
        Ok(args.resolve()?.config)
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.name)
    }
}

/// Settings, separated by commas; a comma inside brackets or quotes belongs to a value.
fn split(settings: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth, mut quoted) = (Vec::new(), 0, 0_i32, false);
    for (at, one) in settings.char_indices() {
        match one {
            '"' => quoted = !quoted,
            '[' | '{' if !quoted => depth += 1,
            ']' | '}' if !quoted => depth -= 1,
            ',' if !quoted && depth == 0 => {
                parts.push(settings[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(settings[start..].trim());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args() -> ConfigArgs {
        ConfigArgs { files: Vec::new(), overrides: Vec::new() }
    }

    #[test]
    fn every_ablation_changes_exactly_one_key_of_lens() {
        let base = Contender::method(MethodName::Lens).config(&args()).expect("it is sound");
        for ablation in Contender::ablations() {
            let config = ablation.config(&args()).expect("the key exists");
            assert_eq!(lens_config::changes::between(&base, &config).len(), 1, "{ablation}");
            assert!(ablation.is_variant() && !ablation.is(MethodName::Lens));
        }
    }

    #[test]
    fn a_variant_has_a_name_and_settings() {
        let text = "long:validate.pairs=2,task.eval_splits=[\"a\",\"b\"],method=lens-plus";
        let variant = Contender::variant(text, &args()).expect("it can be read");
        assert_eq!((variant.to_string().as_str(), variant.method), ("long", MethodName::LensPlus));
        let config = variant.config(&args()).expect("it is sound");
        assert_eq!(config.methods.validate.pairs, 2);
        assert_eq!(config.task.eval_splits, ["a", "b"]);
        let names = ["a/b:train.steps=1", "lens:train.steps=1", "before:train.steps=1"];
        for bad in names.into_iter().chain(["long", ":train.steps=1", "x:no=1"]) {
            assert!(Contender::variant(bad, &args()).is_err(), "{bad}");
        }
    }
}
