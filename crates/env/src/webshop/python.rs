//! Python's ways with strings, where the original engine's answers depend on them.

use std::fmt::Write as _;

use unicode_properties::{GeneralCategory, GeneralCategoryGroup, UnicodeGeneralCategory};

/// Whether `str.strip()` and `str.split()` see a blank: Unicode's white space and the four ASCII separators.
pub fn is_blank(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// `str.strip()`.
pub fn strip(text: &str) -> &str {
    text.trim_matches(is_blank)
}

/// `str.splitlines()`.
pub fn split_lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Some((at, mark)) = rest.char_indices().find(|(_, c)| is_line_end(*c)) else {
            return Some(std::mem::take(&mut rest));
        };
        let line = &rest[..at];
        let length = if rest[at..].starts_with("\r\n") { 2 } else { mark.len_utf8() };
        rest = &rest[at + length..];
        Some(line)
    })
}

fn is_line_end(c: char) -> bool {
    matches!(c, '\n'..='\r' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Whether the regular expression `\w` matches.
pub fn is_word_character(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_alphanumeric() || c == '_';
    }
    matches!(
        c.general_category_group(),
        GeneralCategoryGroup::Letter | GeneralCategoryGroup::Number
    )
}

/// Appends `repr(text)`.
pub fn push_repr(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            _ if c == quote => {
                out.push('\\');
                out.push(c);
            }
            _ if is_printable(c) => out.push(c),
            _ => {
                let code = c as u32;
                // Writing into a string cannot fail.
                let _ = match code {
                    0..=0xff => write!(out, "\\x{code:02x}"),
                    0x100..=0xffff => write!(out, "\\u{code:04x}"),
                    _ => write!(out, "\\U{code:08x}"),
                };
            }
        }
    }
    out.push(quote);
}

/// `repr(text)`.
pub fn repr(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    push_repr(&mut out, text);
    out
}

/// `str.isprintable()` of one character.
fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return (' '..='~').contains(&c);
    }
    !matches!(
        c.general_category(),
        GeneralCategory::Control
            | GeneralCategory::Format
            | GeneralCategory::Surrogate
            | GeneralCategory::PrivateUse
            | GeneralCategory::Unassigned
            | GeneralCategory::LineSeparator
            | GeneralCategory::ParagraphSeparator
            | GeneralCategory::SpaceSeparator
    )
}

/// Appends `json.dumps(text)`: everything outside ASCII as UTF-16 escapes.
pub fn push_json(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            ' '..='\u{7f}' => out.push(c),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
    out.push('"');
}

/// `repr(number)`: the shortest digits that read back, with an exponent below 1e-4 and from 1e16 on.
pub fn float_repr(number: f64) -> String {
    if !number.is_finite() {
        return if number.is_nan() {
            "nan".to_owned()
        } else if number > 0.0 {
            "inf".to_owned()
        } else {
            "-inf".to_owned()
        };
    }
    let size = number.abs();
    if size != 0.0 && !(1e-4..1e16).contains(&size) {
        let short = format!("{number:e}");
        let (digits, exponent) = short.split_once('e').unwrap_or((&short, "0"));
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(exponent) => ('-', exponent),
            None => ('+', exponent),
        };
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    let short = format!("{number}");
    if short.contains('.') { short } else { short + ".0" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repr_chooses_quotes_and_escapes_as_python_does() {
        assert_eq!(repr("blue"), "'blue'");
        assert_eq!(repr("men's"), "\"men's\"");
        assert_eq!(repr("5' 2\""), "'5\\' 2\"'");
        assert_eq!(repr("a\u{a0}b\\\n\u{200b}é★"), "'a\\xa0b\\\\\\n\\u200bé★'");
        assert_eq!(repr("\u{e0001}"), "'\\U000e0001'");
    }

    #[test]
    fn json_escapes_everything_outside_ascii() {
        let mut out = String::new();
        push_json(&mut out, "a\"é👕\u{1}\u{7f}");
        assert_eq!(out, "\"a\\\"\\u00e9\\ud83d\\udc55\\u0001\u{7f}\"");
    }

    #[test]
    fn floats_print_as_python_prints_them() {
        for (number, text) in [
            (27.0, "27.0"),
            (19.99, "19.99"),
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.25e300, "1.25e+300"),
            (0.222_222_222_222_222_2, "0.2222222222222222"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(float_repr(number), text);
        }
    }

    #[test]
    fn lines_end_where_python_ends_them() {
        let lines: Vec<_> = split_lines("a\r\nb\u{b}c\u{2028}d\n\ne\n").collect();
        assert_eq!(lines, ["a", "b", "c", "d", "", "e"]);
        assert_eq!(strip("\u{1c} \u{a0}x\u{1f}"), "x");
    }

    #[test]
    fn words_are_letters_numbers_and_underscores() {
        assert!(['a', '_', '9', 'é', '½', '中'].into_iter().all(is_word_character));
        assert!(!['-', ' ', '★', '\u{301}', '\''].into_iter().any(is_word_character));
    }
}
