//! The action parser: what a response tells the environment.

const OPEN: &str = "<action>";
const CLOSE: &str = "</action>";

/// The text inside the last complete `<action>...</action>` pair, trimmed. `None` when there is no such pair; the
/// environment then gets an empty action.
pub fn action(response: &str) -> Option<&str> {
    let close = response.rfind(CLOSE)?;
    let open = response[..close].rfind(OPEN)?;
    Some(response[open + OPEN.len()..close].trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_complete_pair_counts() {
        let cases = [
            ("Look around. <action> go to desk 1 </action>", Some("go to desk 1")),
            ("<action>a</action> no, <action>b</action> <action>c", Some("b")),
            ("<action>one <action>two</action>", Some("two")),
            ("<action></action>", Some("")),
            ("go to desk 1", None),
            ("</action> <action>", None),
            ("<action>unfinished", None),
            ("", None),
        ];
        for (response, expected) in cases {
            assert_eq!(action(response), expected, "{response:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in ".{0,120}") {
            let _ = action(&text);
        }

        #[test]
        fn a_tagged_action_is_found_whatever_surrounds_it(before in "[^<]{0,40}", word in "[a-z ]{1,20}", after in "[^<]{0,40}") {
            let response = format!("{before}<action>{word}</action>{after}");
            proptest::prop_assert_eq!(action(&response), Some(word.trim()));
        }
    }
}
