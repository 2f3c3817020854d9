//! The upstream files' records, as they are written.

use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};

/// One product of `items_shuffle*.json`. Keys that the engine does not use are skipped.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RawProduct {
    /// The product's number, ten characters.
    pub asin: String,
    /// The listing's title.
    pub name: String,
    /// beauty, electronics, fashion, garden or grocery.
    pub category: String,
    /// The search term under which the product was found.
    pub query: String,
    /// The path in the shop's tree of categories, pieces separated by `›`.
    pub product_category: String,
    /// The long text.
    pub full_description: String,
    /// The bullet points.
    #[serde(deserialize_with = "one_or_many")]
    pub small_description: Vec<String>,
    /// The price text; may be empty or absent.
    #[serde(default)]
    pub pricing: Option<String>,
    /// The options to choose from.
    #[serde(serialize_with = "write_options", deserialize_with = "read_options")]
    pub customization_options: Vec<(String, Vec<String>)>,
    /// Pictures; never shown, but the original engine needs one.
    #[serde(default, deserialize_with = "skip_images")]
    pub images: Vec<String>,
}

/// One product's entry in `items_ins_v2*.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RawInstruction {
    /// The product's attributes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attributes: Option<Vec<String>>,
    /// A synthetic instruction, if the product is a goal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instruction: Option<String>,
    /// The attributes the instruction names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instruction_attributes: Option<Vec<String>>,
}

/// One instruction that a person wrote, from `items_human_ins.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RawHumanInstruction {
    /// The text.
    pub instruction: String,
    /// The attributes it asks for; none means that the instruction is skipped.
    pub instruction_attributes: Vec<String>,
    /// The option values it asks for.
    pub instruction_options: Vec<String>,
}

/// The nouns of a title, from a noun table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RawNouns {
    /// The title.
    pub name: String,
    /// Its nouns and names, lower-cased, repeats kept.
    pub nouns: Vec<String>,
}

fn one_or_many<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a list of strings or one string")]
    enum OneOrMany {
        Many(Vec<String>),
        One(String),
    }
    Ok(match OneOrMany::deserialize(input)? {
        OneOrMany::Many(many) => many,
        OneOrMany::One(one) => vec![one],
    })
}

fn skip_images<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<String>, D::Error> {
    serde::de::IgnoredAny::deserialize(input)?;
    Ok(Vec::new())
}

/// An option value; its picture, price and address are not needed.
#[derive(Serialize, Deserialize)]
struct RawValue {
    value: String,
}

fn write_options<S: Serializer>(
    options: &[(String, Vec<String>)],
    output: S,
) -> Result<S::Ok, S::Error> {
    if options.is_empty() {
        return output.serialize_str("");
    }
    let mut map = output.serialize_map(Some(options.len()))?;
    for (name, values) in options {
        let values: Vec<RawValue> =
            values.iter().map(|value| RawValue { value: value.clone() }).collect();
        map.serialize_entry(name, &values)?;
    }
    map.end()
}

/// Options in their written order; an empty string or null means none, and a name without values is skipped.
fn read_options<'de, D: Deserializer<'de>>(
    input: D,
) -> Result<Vec<(String, Vec<String>)>, D::Error> {
    struct Options;

    impl<'de> Visitor<'de> for Options {
        type Value = Vec<(String, Vec<String>)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object of option lists, or an empty string")
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
            if text.is_empty() {
                Ok(Vec::new())
            } else {
                Err(E::invalid_type(serde::de::Unexpected::Str(text), &self))
            }
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Vec::new())
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut options = Vec::new();
            while let Some((name, values)) = map.next_entry::<String, Option<Vec<RawValue>>>()? {
                if let Some(values) = values {
                    options.push((name, values.into_iter().map(|raw| raw.value).collect()));
                }
            }
            Ok(options)
        }
    }

    input.deserialize_any(Options)
}
