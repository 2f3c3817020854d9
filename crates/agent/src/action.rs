//! Where a response says its action, in tokens.

use std::ops::Range;

use lens_engine::Codec;
use lens_opd::episode::Action;

/// The action of a response with the tokens that spell it.
pub(crate) fn located(
    codec: &dyn Codec,
    tokens: &[u32],
    text: &str,
    action: Option<&str>,
) -> Option<Action> {
    let action = action?;
    // Parsers take the last action, so its last occurrence is the one that counts.
    let found = text.rfind(action).filter(|_| !action.is_empty());
    let tokens = found.map_or(0..0, |start| {
        spelling(&token_ends(codec, tokens, text), start..start + action.len())
    });
    Some(Action { text: action.to_owned(), tokens })
}

/// The place in the text where each token ends, in bytes.
fn token_ends(codec: &dyn Codec, tokens: &[u32], text: &str) -> Vec<usize> {
    let mut end = 0;
    let by_piece: Vec<usize> = tokens
        .iter()
        .map(|&token| {
            if !codec.is_special(token) {
                end += codec.piece(token).len();
            }
            end
        })
        .collect();
    if end == text.len() {
        return by_piece;
    }
    // Pieces that are parts of characters do not add up; the text of every beginning does.
    let length = |count: usize| codec.text(&tokens[..count]).map_or(0, |text| text.len());
    (1..=tokens.len()).map(length).collect()
}

/// The tokens that share a byte with a range of the text.
fn spelling(ends: &[usize], bytes: Range<usize>) -> Range<usize> {
    let first = ends.partition_point(|&end| end <= bytes.start);
    let last = ends.partition_point(|&end| end < bytes.end);
    first..(last + 1).min(ends.len()).max(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lens_engine::scripted::CharCodec;

    #[test]
    fn the_tokens_between_the_tags_spell_the_action() {
        let text = "look? <action>go to desk 1</action>";
        let tokens = CharCodec.response(text).expect("characters");
        let action = located(&CharCodec, &tokens, text, Some("go to desk 1")).expect("an action");
        assert_eq!(action.tokens, 14..26);
        let spelled = CharCodec.text(&tokens[action.tokens]).expect("characters");
        assert_eq!(spelled, "go to desk 1");
        assert_eq!(located(&CharCodec, &tokens, text, None), None);
        let empty = located(&CharCodec, &tokens, text, Some("")).expect("an empty action");
        assert!(empty.tokens.is_empty());
    }

    #[test]
    fn a_token_that_reaches_over_the_edge_belongs_to_the_action() {
        // Tokens of three bytes each; the action is bytes 4 to 8.
        assert_eq!(spelling(&[3, 6, 9, 12], 4..8), 1..3);
        assert_eq!(spelling(&[3, 6, 9, 12], 3..6), 1..2);
        assert_eq!(spelling(&[3, 6, 9, 12], 0..12), 0..4);
    }
}
