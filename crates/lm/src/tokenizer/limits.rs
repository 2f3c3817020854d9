//! Limits on what a `tokenizer.json` may do to a text. Its normalizers and decoders run one after the other, each on the
//! result of the one before: six that multiply a text by a hundred exhaust any memory. How much each can add is known
//! from the file, so a chain that adds too much is refused when it is loaded.

use serde::Deserialize;
use serde_json::Value;

/// Steps in one chain, and how deep sequences may lie in sequences; real files have up to eight steps in one sequence.
const MOST_STEPS: usize = 32;
const MOST_NESTING: usize = 4;
/// How many times longer than its text the result of a chain may be. Spaces to `▁` make it three times as long, a
/// compatibility form eleven times.
const MOST_GROWTH: u64 = 128;
/// The longest text that is put before another; it is put before every piece between special tokens.
const LONGEST_PREFIX: usize = 64;

/// The parts of the file that are chains of steps; the rest is not looked at.
#[derive(Deserialize)]
struct Chains {
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
    #[serde(default)]
    decoder: Value,
}

/// Refuses a file whose chains are too long or can make too much of a text. The error says which chain, and why.
pub(super) fn check(json: &[u8]) -> Result<(), String> {
    let chains: Chains =
        serde_json::from_slice(json).map_err(|error| format!("not a tokenizer.json: {error}"))?;
    for (name, chain) in [
        ("normalizer", &chains.normalizer),
        ("pre_tokenizer", &chains.pre_tokenizer),
        ("post_processor", &chains.post_processor),
        ("decoder", &chains.decoder),
    ] {
        let mut steps = Vec::new();
        collect(chain, 0, &mut steps).map_err(|problem| format!("its {name} {problem}"))?;
        let mut growth = 1_u64;
        for step in steps {
            let factor = growth_of(step).map_err(|problem| format!("its {name} {problem}"))?;
            growth = growth.saturating_mul(factor);
        }
        if growth > MOST_GROWTH {
            return Err(format!(
                "its {name} can make a text {growth} times as long; at most {MOST_GROWTH} times is allowed"
            ));
        }
    }
    Ok(())
}

/// The steps of a chain in order, sequences opened.
fn collect<'a>(step: &'a Value, depth: usize, steps: &mut Vec<&'a Value>) -> Result<(), String> {
    if depth > MOST_NESTING {
        return Err(format!("has sequences nested more than {MOST_NESTING} deep"));
    }
    let inner = ["normalizers", "pretokenizers", "processors", "decoders"]
        .iter()
        .find_map(|key| step.get(key).and_then(Value::as_array));
    match inner {
        Some(inner) => inner.iter().try_for_each(|step| collect(step, depth + 1, steps))?,
        None if step.is_null() => {}
        None => steps.push(step),
    }
    if steps.len() > MOST_STEPS {
        return Err(format!("has more than {MOST_STEPS} steps"));
    }
    Ok(())
}

/// How many times longer one step can make a text, in bytes. Steps are told apart by their fields, because old files
/// leave the type out.
fn growth_of(step: &Value) -> Result<u64, String> {
    if step.get("precompiled_charsmap").is_some() {
        return Err("is a precompiled character map, which is not supported: what it does to a \
                    text cannot be bounded"
            .to_owned());
    }
    for key in ["prepend", "prefix"] {
        let prefix = step.get(key).and_then(Value::as_str).unwrap_or_default();
        if prefix.len() > LONGEST_PREFIX {
            return Err(format!(
                "puts {} bytes before a text; at most {LONGEST_PREFIX} are allowed",
                prefix.len()
            ));
        }
    }
    if let (Some(pattern), Some(content)) = (step.get("pattern"), step.get("content")) {
        let content = content.as_str().map_or(0, str::len) as u64;
        return Ok(match pattern.get("String").and_then(Value::as_str).unwrap_or_default() {
            // An expression, and an empty text, match between any two letters as well.
            "" => content + 1,
            text => content.div_ceil(text.len() as u64).max(1),
        });
    }
    Ok(match step.get("type").and_then(Value::as_str).unwrap_or_default() {
        "NFD" | "NFC" => 3,
        "NFKD" | "NFKC" => 11,
        "BertNormalizer" => 12,
        "Lowercase" | "ByteLevel" => 2,
        _ => 1,
    })
}
