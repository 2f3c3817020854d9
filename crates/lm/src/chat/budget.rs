//! What a template may use while it renders: how large a value may grow, and how much all of it may come to. Operators
//! cannot be watched, but what they make is measured where it is bound, printed or passed on ([`super::guard`]), and
//! filters and methods that can multiply a text are measured before they run.

use minijinja::value::{Kwargs, Rest, StringInput, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Output, State, Value, filters};
use minijinja_contrib::pycompat;

use super::python_json;

/// Steps a template may take; a real one needs a few hundred per message.
pub(super) const FUEL: u64 = 4_000_000;
/// Bytes of one value: all texts inside it.
const MAX_BYTES: usize = 4 << 20;
/// Things inside one value.
const MAX_ITEMS: usize = 200_000;
/// Values inside each other.
const MAX_DEPTH: usize = 64;
/// Bytes that one rendering may write, kept or not.
const MAX_WRITTEN: usize = 256 << 20;
/// Calls of macros and loops inside each other.
const MAX_RECURSION: usize = 250;
/// Widest indent.
const MAX_INDENT: usize = 256;

/// Where a rendering keeps what it has written.
const WRITTEN: &str = "lens_written";

/// Filters that no chat template needs and that can make large values of small ones.
const REMOVED: [&str; 8] =
    ["format", "batch", "slice", "pprint", "urlencode", "escape", "e", "groupby"];

/// Puts the limits into an environment.
pub(super) fn limit(environment: &mut Environment<'_>) {
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(MAX_RECURSION);
    for name in REMOVED {
        environment.remove_filter(name);
    }
    environment.add_function("lens_bound", bound);
    environment.add_filter("tojson", tojson);
    environment.add_filter("replace", replace);
    environment.add_filter("join", join);
    environment.add_filter("indent", indent);
    environment.add_filter("string", string);
    environment.set_unknown_method_callback(method);
    environment.set_formatter(|out: &mut Output, state: &mut State, value: &Value| {
        let bytes = measured(value)?;
        charge(state, bytes)?;
        minijinja::escape_formatter(out, state, value)
    });
}

fn too_large(problem: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, problem)
}

/// Counts what is written; the sum is the rendering's.
fn charge(state: &mut State, bytes: usize) -> Result<(), Error> {
    let written = state.get_temp(WRITTEN).and_then(|value| value.as_usize()).unwrap_or(0);
    let written = written.saturating_add(bytes);
    state.set_temp(WRITTEN, Value::from(written));
    if written > MAX_WRITTEN {
        return Err(too_large(format!("the template writes more than {MAX_WRITTEN} bytes")));
    }
    Ok(())
}

/// The bytes of a value, if it is not too large.
fn measured(value: &Value) -> Result<usize, Error> {
    let (mut bytes, mut items) = (0, 0);
    measure(value, 0, &mut bytes, &mut items)?;
    Ok(bytes)
}

fn measure(value: &Value, depth: usize, bytes: &mut usize, items: &mut usize) -> Result<(), Error> {
    *items += 1;
    *bytes += value.as_str().map_or(8, str::len);
    check_size(*bytes)?;
    if *items > MAX_ITEMS || value.len().unwrap_or(0) > MAX_ITEMS && value.as_str().is_none() {
        return Err(too_large(format!("a value has more than {MAX_ITEMS} items")));
    }
    if depth > MAX_DEPTH {
        return Err(too_large(format!("values are nested more than {MAX_DEPTH} deep")));
    }
    match value.kind() {
        ValueKind::Map => {
            for key in value.try_iter()? {
                measure(&value.get_item(&key)?, depth + 1, bytes, items)?;
                measure(&key, depth + 1, bytes, items)?;
            }
        }
        ValueKind::Seq | ValueKind::Iterable => {
            for item in value.try_iter()? {
                measure(&item, depth + 1, bytes, items)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// The mark behind tags: `text` is what the block behind it writes each time.
fn bound(state: &mut State, text: usize, values: Rest<Value>) -> Result<bool, Error> {
    charge(state, text)?;
    for value in values.0 {
        measured(&value)?;
    }
    Ok(true)
}

fn string(state: &mut State, value: &Value) -> Result<Value, Error> {
    charge(state, measured(value)?)?;
    Ok(if value.as_str().is_some() { value.clone() } else { Value::from(value.to_string()) })
}

fn tojson(state: &mut State, value: &Value, options: Kwargs) -> Result<Value, Error> {
    charge(state, measured(value)?)?;
    python_json::tojson(value, options)
}

/// Checks what a replacement would come to.
fn check_replaced(state: &mut State, text: &str, from: &str, to: &str) -> Result<(), Error> {
    let places = if from.is_empty() { text.len() + 1 } else { text.matches(from).count() };
    let bytes = places.saturating_mul(to.len()).saturating_add(text.len());
    check_bytes(state, bytes)
}

fn check_bytes(state: &mut State, bytes: usize) -> Result<(), Error> {
    check_size(bytes)?;
    charge(state, bytes)
}

fn check_size(bytes: usize) -> Result<(), Error> {
    if bytes > MAX_BYTES {
        return Err(too_large(format!("a value is larger than {MAX_BYTES} bytes")));
    }
    Ok(())
}

fn replace(
    state: &mut State,
    value: StringInput<'_>,
    from: StringInput<'_>,
    to: StringInput<'_>,
) -> Result<Value, Error> {
    check_replaced(state, value.as_str(), from.as_str(), to.as_str())?;
    filters::replace(state, value, from, to)
}

fn join(
    state: &mut State,
    value: &Value,
    joiner: Option<StringInput<'_>>,
    attribute: Option<&str>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    check_joined(state, value, joiner.as_ref().map_or(0, |joiner| joiner.as_str().len()))?;
    filters::join(state, value, joiner, attribute, kwargs)
}

fn check_joined(state: &mut State, value: &Value, joiner: usize) -> Result<(), Error> {
    let bytes = measured(value)?;
    let joins = value.len().unwrap_or(MAX_ITEMS);
    check_bytes(state, joins.saturating_mul(joiner).saturating_add(bytes))
}

fn indent(
    value: StringInput<'_>,
    width: Option<usize>,
    first: Option<bool>,
    blank: Option<bool>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let named: Option<usize> = kwargs.peek("width").ok();
    let columns = width.or(named).unwrap_or(4);
    if columns > MAX_INDENT {
        return Err(too_large(format!("an indent is wider than {MAX_INDENT} columns")));
    }
    let lines = value.as_str().lines().count();
    check_size(value.as_str().len() + lines * columns)?;
    filters::indent(value, width, first, blank, kwargs)
}

/// Python's methods, those that can multiply a text measured before.
fn method(
    state: &mut State,
    value: &Value,
    method: &str,
    arguments: &[Value],
) -> Result<Value, Error> {
    let text = |index: usize| arguments.get(index).and_then(Value::as_str).unwrap_or_default();
    match (value.as_str(), method) {
        (Some(_), "format") => {
            return Err(too_large("chat templates may not use `format`".to_owned()));
        }
        (Some(target), "replace") => check_replaced(state, target, text(0), text(1))?,
        (Some(joiner), "join") => {
            let items = arguments.first().cloned().unwrap_or_default();
            check_joined(state, &items, joiner.len())?;
        }
        _ => {}
    }
    pycompat::unknown_method_callback(state, value, method, arguments)
}
