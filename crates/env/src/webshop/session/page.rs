//! A page as a list of text nodes, and the two ways in which agents see it.

use std::borrow::Cow;

use crate::webshop::python;

/// One piece of text on a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node<'a> {
    /// Text.
    Plain(Cow<'a, str>),
    /// A button.
    Button(&'static str),
    /// An option's value.
    Label(&'a str),
    /// A link to a product, and whether it was followed before.
    Link {
        /// The product's number.
        asin: &'a str,
        /// Whether the product was opened in this session.
        visited: bool,
    },
}

/// How a page is turned into text.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum ObservationMode {
    /// Nodes in one line, separated by `[SEP]`.
    Text,
    /// One node a line, with buttons marked.
    #[default]
    TextRich,
}

impl Node<'_> {
    fn text(&self) -> &str {
        match self {
            Self::Plain(text) => text,
            &Self::Button(text) => text,
            Self::Label(text) => text,
            Self::Link { asin, .. } => asin,
        }
    }

    /// The node's text as a parser of the page would see it: nothing where there is no text or only a line break,
    /// one blank where there are only blanks.
    fn seen(&self) -> Option<&str> {
        let text = self.text();
        if !text.chars().all(|c| matches!(c, ' ' | '\n' | '\t' | '\u{c}' | '\r')) {
            return Some(text);
        }
        (!text.is_empty() && !text.contains('\n')).then_some(" ")
    }
}

/// A page in one line.
pub fn text(nodes: &[Node<'_>]) -> String {
    let mut out = String::new();
    for (at, seen) in nodes.iter().filter_map(Node::seen).enumerate() {
        if at > 0 {
            out.push_str(" [SEP] ");
        }
        out.push_str(python::strip(seen));
    }
    out
}

/// A page with marked buttons. A value counts as clicked if it stands in double quotes in the page's address, which
/// is not the case for values that JSON escapes; each one is announced above everything seen so far.
pub fn text_rich(nodes: &[Node<'_>], address: &str) -> String {
    let mut out = String::new();
    let mut clicked = Vec::new();
    for (node, seen) in nodes.iter().filter_map(|node| Some((node, node.seen()?))) {
        let (before, mark) = match node {
            Node::Plain(_) => ("", None),
            Node::Button(_) => ("", Some("button")),
            Node::Label(_) if is_quoted(seen, address) => {
                clicked.push(seen);
                ("  ", Some("clicked button"))
            }
            Node::Label(_) => ("  ", Some("button")),
            Node::Link { visited: true, .. } => ("\n", Some("clicked button")),
            Node::Link { visited: false, .. } => ("\n", Some("button")),
        };
        out.push_str(before);
        match mark {
            None => out.push_str(seen),
            Some(mark) => {
                for part in ["[", mark, "] ", seen, " [", mark, "_]"] {
                    out.push_str(part);
                }
            }
        }
        out.push('\n');
    }
    if clicked.is_empty() {
        return out;
    }
    let mut announced = String::with_capacity(out.len() + 64 * clicked.len());
    for value in clicked.iter().rev() {
        for part in ["You have clicked ", value, ".\n"] {
            announced.push_str(part);
        }
    }
    announced.push_str(&out);
    announced
}

fn is_quoted(value: &str, address: &str) -> bool {
    address
        .match_indices(value)
        .any(|(at, _)| address[..at].ends_with('"') && address[at + value.len()..].starts_with('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_nodes_vanish_or_become_one_blank() {
        let nodes: Vec<Node<'_>> = ["a", "", " \n ", " \t", "\u{1c}b \u{a0}"]
            .into_iter()
            .map(|text| Node::Plain(text.into()))
            .collect();
        assert_eq!(text(&nodes), "a [SEP]  [SEP] b");
        assert_eq!(text_rich(&nodes, ""), "a\n \n\u{1c}b \u{a0}\n");
    }

    #[test]
    fn clicked_values_are_announced_last_first() {
        let nodes =
            [Node::Label("red"), Node::Label("blue"), Node::Label("x-large"), Node::Button("Go")];
        let address = r#"http://x/{"color": "red", "size": "x-large"}"#;
        assert_eq!(
            text_rich(&nodes, address),
            "You have clicked x-large.\nYou have clicked red.\n  [clicked button] red [clicked button_]\n  \
             [button] blue [button_]\n  [clicked button] x-large [clicked button_]\n[button] Go [button_]\n"
        );
    }
}
