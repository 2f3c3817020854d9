//! From text to index terms, as Lucene's English analyzer cuts and bends it.

use unicode_properties::{GeneralCategory, GeneralCategoryGroup, UnicodeGeneralCategory};
use unicode_segmentation::UnicodeSegmentation;

use super::emoji::{is_flag, is_picture};
use super::porter;

/// Lucene cuts tokens that are longer (in UTF-16 units) into pieces.
const LONGEST_TOKEN: usize = 255;

/// Sorted, so that membership is a binary search.
const STOP_WORDS: [&str; 33] = [
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it",
    "no", "not", "of", "on", "or", "such", "that", "the", "their", "then", "there", "these",
    "they", "this", "to", "was", "will", "with",
];

/// The index terms of `text`, in order.
pub fn terms(text: &str) -> Vec<String> {
    let mut terms = Vec::new();
    for_each_token(text, |token| terms.extend(term_of(token)));
    terms
}

/// The index term of a token, or `None` for a stop word.
pub fn term_of(token: &str) -> Option<String> {
    let mut token = token;
    for possessive in ["'s", "'S", "’s", "’S", "\u{ff07}s", "\u{ff07}S"] {
        if let Some(owner) = token.strip_suffix(possessive) {
            token = owner;
            break;
        }
    }
    // Java lowers one code point at a time, so a letter that lowers to two keeps the first only.
    let mut term: String = token.chars().filter_map(|c| c.to_lowercase().next()).collect();
    if STOP_WORDS.binary_search(&term.as_str()).is_ok() {
        return None;
    }
    porter::stem(&mut term);
    Some(term)
}

/// Cuts `text` at Unicode's word boundaries and gives the pieces that hold a letter, a digit or a picture.
pub fn for_each_token(text: &str, mut give: impl FnMut(&str)) {
    // No token holds a blank, so pieces between blanks can be cut apart from each other, and most are ASCII.
    for piece in text.split(' ') {
        if piece.is_ascii() {
            for_each_ascii_token(piece, &mut give);
        } else {
            for_each_unicode_token(piece, &mut give);
        }
    }
}

fn for_each_unicode_token(piece: &str, give: &mut impl FnMut(&str)) {
    // Scripts without blanks between words stay in one piece, where Unicode's default rules cut at every letter.
    let mut run = 0..0;
    for (at, word) in piece.split_word_bound_indices() {
        if word.chars().next().is_some_and(is_written_without_blanks) {
            run = if run.end == at { run.start } else { at }..at + word.len();
            continue;
        }
        if !run.is_empty() {
            give_in_pieces(&piece[run], give);
        }
        run = 0..0;
        if is_flag(word) || word.chars().any(makes_a_token) {
            give_in_pieces(word, give);
        }
    }
    if !run.is_empty() {
        give_in_pieces(&piece[run], give);
    }
}

/// Letters of Thai, Lao, Burmese, Khmer and their relatives.
fn is_written_without_blanks(c: char) -> bool {
    let of_such_a_script = matches!(c,
        '\u{e01}'..='\u{edf}'
            | '\u{1000}'..='\u{109f}'
            | '\u{1780}'..='\u{17dd}'
            | '\u{1950}'..='\u{19df}'
            | '\u{1a20}'..='\u{1aad}'
            | '\u{a9e0}'..='\u{a9fe}'
            | '\u{aa60}'..='\u{aadf}'
            | '\u{11700}'..='\u{1173f}');
    of_such_a_script
        && (c.is_alphabetic() || c.general_category_group() == GeneralCategoryGroup::Mark)
}

fn makes_a_token(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_alphanumeric();
    }
    let category = c.general_category();
    let extends_the_letter_before = matches!(c, '\u{ff9e}' | '\u{ff9f}')
        || matches!(category, GeneralCategory::NonspacingMark | GeneralCategory::EnclosingMark);
    (c.is_alphabetic() && !extends_the_letter_before)
        || category == GeneralCategory::DecimalNumber
        || is_picture(c)
}

#[derive(Clone, Copy, PartialEq)]
enum Class {
    Letter,
    Digit,
    Underscore,
    /// Joins two letters.
    Colon,
    /// Joins two digits.
    Comma,
    /// Joins two letters or two digits.
    Period,
    Other,
}

fn class(byte: u8) -> Class {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' => Class::Letter,
        b'0'..=b'9' => Class::Digit,
        b'_' => Class::Underscore,
        b':' => Class::Colon,
        b',' | b';' => Class::Comma,
        b'.' | b'\'' => Class::Period,
        _ => Class::Other,
    }
}

/// Unicode's word boundaries for ASCII, where a handful of rules is all there is.
fn for_each_ascii_token(piece: &str, give: &mut impl FnMut(&str)) {
    let bytes = piece.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        let mut has_word = false;
        while at < bytes.len() {
            let joins = |other: Class| {
                at > start
                    && class(bytes[at - 1]) == other
                    && bytes.get(at + 1).is_some_and(|&next| class(next) == other)
            };
            let goes_on = match class(bytes[at]) {
                Class::Letter | Class::Digit => {
                    has_word = true;
                    true
                }
                Class::Underscore => true,
                Class::Colon => joins(Class::Letter),
                Class::Comma => joins(Class::Digit),
                Class::Period => joins(Class::Letter) || joins(Class::Digit),
                Class::Other => false,
            };
            if !goes_on {
                break;
            }
            at += 1;
        }
        if has_word {
            give_in_pieces(&piece[start..at], give);
        }
        at = at.max(start + 1);
    }
}

fn give_in_pieces(word: &str, give: &mut impl FnMut(&str)) {
    if word.len() <= LONGEST_TOKEN {
        give(word);
        return;
    }
    let mut start = 0;
    let mut units = 0;
    for (at, c) in word.char_indices() {
        if units + c.len_utf16() > LONGEST_TOKEN {
            give(&word[start..at]);
            start = at;
            units = 0;
        }
        units += c.len_utf16();
    }
    give(&word[start..]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tokens(text: &str) -> Vec<String> {
        let mut tokens = Vec::new();
        for_each_token(text, |token| tokens.push(token.to_owned()));
        tokens
    }

    #[test]
    fn colons_periods_and_apostrophes_join_letters() {
        assert_eq!(
            tokens("parameters:upper 3.5 a.b 1,000 a,b x_y _ don't 5:3 a:1 end."),
            [
                "parameters:upper",
                "3.5",
                "a.b",
                "1,000",
                "a",
                "b",
                "x_y",
                "don't",
                "5",
                "3",
                "a",
                "1",
                "end"
            ]
        );
    }

    #[test]
    fn pictures_are_tokens_and_fractions_are_not() {
        assert_eq!(tokens("สวัสดี-5"), ["สวัสดี", "5"]);
        assert_eq!(tokens("★★ 5¼ ❤\u{fe0f}love ™ ﾟ ¼"), ["★", "★", "5", "❤\u{fe0f}", "love", "™"]);
    }

    #[test]
    fn possessives_stop_words_and_endings_go() {
        assert_eq!(
            terms("Women's running SHOES with the runner’s İ"),
            ["women", "run", "shoe", "runner", "i"]
        );
        assert!(terms("the of and").is_empty());
    }

    #[test]
    fn tokens_that_are_too_long_are_cut() {
        let lengths: Vec<usize> = tokens(&"x".repeat(600)).iter().map(String::len).collect();
        assert_eq!(lengths, [255, 255, 90]);
        let pictures = "é".repeat(300);
        assert_eq!(tokens(&pictures).len(), 2);
    }

    proptest! {
        #[test]
        fn the_short_way_through_ascii_agrees_with_the_unicode_tables(
            text in "[ab1 _:;,.'\"$&()\\-\t\n]{0,40}"
        ) {
            let by_tables: Vec<&str> = text
                .split_word_bounds()
                .filter(|word| word.chars().any(makes_a_token))
                .collect();
            prop_assert_eq!(tokens(&text), by_tables);
        }
    }
}
