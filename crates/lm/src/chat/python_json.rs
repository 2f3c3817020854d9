//! `tojson` as `transformers` defines it: Python's `json.dumps(value, ensure_ascii=False)`, which puts spaces behind
//! commas and colons and escapes no HTML.

use std::io::{self, Write};

use minijinja::value::Kwargs;
use minijinja::{Error, ErrorKind, Value};
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::{Formatter, PrettyFormatter};

/// Deeper than any conversation; keeps a nested value from exhausting the stack.
const MAX_DEPTH: usize = 64;

/// The filter. `indent` works as in Python; other keyword arguments are refused rather than ignored.
#[expect(
    clippy::needless_pass_by_value,
    reason = "filters receive their keyword arguments by value"
)]
pub(super) fn tojson(value: &Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let _ascii: Option<bool> = options.get("ensure_ascii")?;
    options.assert_all_used()?;
    check_depth(value, 0)?;
    let mut text = Vec::new();
    let done = match indent {
        None => value.serialize(&mut Serializer::with_formatter(&mut text, OneLine)),
        Some(width) => {
            let spaces = vec![b' '; width.min(MAX_DEPTH)];
            let formatter = PrettyFormatter::with_indent(&spaces);
            value.serialize(&mut Serializer::with_formatter(&mut text, formatter))
        }
    };
    let broken = |error: String| Error::new(ErrorKind::BadSerialization, error);
    done.map_err(|error| broken(error.to_string()))?;
    let text = String::from_utf8(text).map_err(|error| broken(error.to_string()))?;
    Ok(Value::from_safe_string(text))
}

fn check_depth(value: &Value, depth: usize) -> Result<(), Error> {
    use minijinja::value::ValueKind;
    if depth > MAX_DEPTH {
        return Err(Error::new(ErrorKind::BadSerialization, "the value is nested too deeply"));
    }
    if matches!(value.kind(), ValueKind::Seq | ValueKind::Map) {
        for item in value.try_iter()? {
            if value.kind() == ValueKind::Map {
                check_depth(&value.get_item(&item)?, depth + 1)?;
            } else {
                check_depth(&item, depth + 1)?;
            }
        }
    }
    Ok(())
}

/// Python's default separators.
struct OneLine;

impl Formatter for OneLine {
    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }
}
