//! Reading recipes: files, and those that are part of the program.

use std::path::Path;

use super::Recipe;
use crate::error::LabError;

/// The shipped recipes by benchmark.
const SHIPPED: &[(&str, &str)] = &[
    ("alfworld", include_str!("../../../../configs/lab/alfworld.toml")),
    ("webshop", include_str!("../../../../configs/lab/webshop.toml")),
    ("scienceworld", include_str!("../../../../configs/lab/scienceworld.toml")),
];

impl Recipe {
    /// Reads and checks a recipe.
    pub fn read(path: &Path) -> Result<Self, LabError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| LabError::ReadRecipe { path: path.to_owned(), source })?;
        Self::parse(&text, &path.display().to_string())
    }

    /// The shipped recipe for a benchmark.
    pub fn shipped(benchmark: &str) -> Result<Self, LabError> {
        Self::parse(Self::shipped_text(benchmark)?, &format!("configs/lab/{benchmark}.toml"))
    }

    /// The text of the shipped recipe for a benchmark.
    pub fn shipped_text(benchmark: &str) -> Result<&'static str, LabError> {
        let found = SHIPPED.iter().find(|(name, _)| *name == benchmark);
        found
            .map(|(_, text)| *text)
            .ok_or_else(|| LabError::NoRecipe { benchmark: benchmark.to_owned() })
    }

    /// Parses and checks a recipe; `origin` names it in errors.
    pub fn parse(text: &str, origin: &str) -> Result<Self, LabError> {
        let syntax = |span: Option<std::ops::Range<usize>>, message: String| LabError::Syntax {
            origin: origin.to_owned(),
            line: span.map_or(1, |span| line_of(text, span.start)),
            message,
        };
        let reader = toml::Deserializer::parse(text)
            .map_err(|error| syntax(error.span(), first_line(error.message())))?;
        let recipe: Self = serde_path_to_error::deserialize(reader).map_err(|error| {
            let (key, cause) = (error.path().to_string(), error.inner());
            let message = first_line(cause.message()).replace("unknown field", "unknown key");
            // The path of a missing key at the top is ".".
            let message = if key == "." { message } else { format!("`{key}`: {message}") };
            syntax(cause.span(), message)
        })?;
        recipe.check()?;
        Ok(recipe)
    }
}

fn first_line(message: &str) -> String {
    message.lines().next().unwrap_or(message).trim().to_owned()
}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|&byte| byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: (&str, &str)) -> String {
        let text = Recipe::shipped_text("alfworld").expect("it is shipped");
        assert!(text.contains(change.0), "{} is not in the recipe", change.0);
        let text = text.replacen(change.0, change.1, 1);
        Recipe::parse(&text, "my.toml").expect_err("it is wrong").to_string()
    }

    #[test]
    fn every_shipped_recipe_is_sound_and_names_its_benchmark() {
        for (benchmark, _) in SHIPPED {
            let recipe = Recipe::shipped(benchmark).expect("it is sound");
            assert_eq!(recipe.benchmark, *benchmark);
            lens_env::registry::profile(benchmark).expect("there is such a benchmark");
        }
    }

    #[test]
    fn an_unknown_key_is_refused_by_name_and_line() {
        let message = refused(("[tokenizer]", "[tokenizer]\nvocabsize = 7"));
        assert!(message.contains("`tokenizer.vocabsize`: unknown key"), "{message}");
        let line = message.strip_prefix("my.toml:").and_then(|rest| rest.split_once(':'));
        let line: usize = line.expect("a line").0.parse().expect("a number");
        assert!(line > 1, "{message}");
        let message = refused(("prompt_weight = 0.1", "prompt_wait = 0.1"));
        assert!(message.contains("stage[") && message.contains("`prompt_wait`"), "{message}");
    }

    #[test]
    fn a_missing_key_and_a_wrong_type_are_named() {
        let message = refused(("vocab_size = 3072", ""));
        assert!(message.contains("`tokenizer`") && message.contains("`vocab_size`"), "{message}");
        let message = refused(("vocab_size = 3072", "vocab_size = \"many\""));
        assert!(message.contains("`tokenizer.vocab_size`"), "{message}");
        let message = refused(("[\"exercise\"]", "[\"homework\"]"));
        assert!(message.contains("mixture[0]") && message.contains("homework"), "{message}");
    }

    #[test]
    fn a_benchmark_without_a_recipe_is_named() {
        let error = Recipe::shipped("chess").expect_err("none is shipped");
        assert!(error.to_string().contains("`chess`"), "{error}");
        assert!(error.hint().expect("advice").contains("--recipe"));
    }
}
