//! Words on the command line, each read by the type that owns it.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use lens_config::schema::{MomentsName, RecomputeName, WeightsName};
use lens_opd::methods::MethodName;

/// How weights are held: f32, bf16, bf16-dot or int8.
pub(crate) fn weights() -> impl TypedValueParser<Value = WeightsName> {
    PossibleValuesParser::new(WeightsName::WORDS).try_map(|word| word.parse::<WeightsName>())
}

/// How moments are held: f32, bf16 or int8.
pub(crate) fn moments() -> impl TypedValueParser<Value = MomentsName> {
    PossibleValuesParser::new(MomentsName::WORDS).try_map(|word| word.parse::<MomentsName>())
}

/// Whether activations are computed again: auto, always or never.
pub(crate) fn recompute() -> impl TypedValueParser<Value = RecomputeName> {
    PossibleValuesParser::new(RecomputeName::WORDS).try_map(|word| word.parse::<RecomputeName>())
}

/// A method's name.
pub(crate) fn method() -> impl TypedValueParser<Value = MethodName> {
    let words = MethodName::ALL.iter().map(|method| method.as_str());
    PossibleValuesParser::new(words).try_map(|word| word.parse::<MethodName>())
}

/// A count of at least 1.
pub(crate) fn at_least_one(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| "expected a whole number, 1 or more".to_owned())
}
