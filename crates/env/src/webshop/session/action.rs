//! Actions, read as the original reads them.

/// An action's name and argument: `click[buy now]` has the name `click` and the argument `buy now`. Neither is empty
/// and neither spans lines; the argument reaches to the last closing bracket, the name to the last opening one that
/// leaves an argument; text after the closing bracket is ignored. Text that does not fit is all name.
pub fn parse(action: &str) -> (&str, Option<&str>) {
    let line = action.split('\n').next().unwrap_or_default();
    let brackets = line.rfind(']').and_then(|close| {
        let mut room = line[..close].chars();
        room.next_back()?;
        let open = room.as_str().rfind('[').filter(|&open| open > 0)?;
        Some((open, close))
    });
    match brackets {
        Some((open, close)) => (&line[..open], Some(&line[open + 1..close])),
        None => (action, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_are_matched_greedily() {
        for (action, name, argument) in [
            ("search[red shoes]", "search", Some("red shoes")),
            ("click[x] trailing", "click", Some("x")),
            ("search[a [b] c]", "search[a ", Some("b] c")),
            ("foo[bar][baz]", "foo[bar]", Some("baz")),
            ("search[x]]", "search", Some("x]")),
            ("a[b][]", "a", Some("b][")),
            ("a[]b]", "a", Some("]b")),
            ("a[[]]", "a[", Some("]")),
            ("[[x]", "[", Some("x")),
            ("a[é]", "a", Some("é")),
            ("click[next >]\n", "click", Some("next >")),
            ("search[]", "search[]", None),
            ("[x]", "[x]", None),
            ("a[b", "a[b", None),
            ("x[a\nb]", "x[a\nb]", None),
            ("", "", None),
        ] {
            assert_eq!(parse(action), (name, argument), "{action:?}");
        }
    }
}
