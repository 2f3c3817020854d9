//! What a template is allowed to look like. A template comes with a model from anywhere, and Jinja bounds neither how deep
//! its parser recurses nor how large a value grows, so both are bounded here: tags are counted before they are parsed, and
//! behind every tag that binds a value stands a mark that measures it while rendering ([`super::budget`]).

use std::ops::Range;

/// Longest template; the longest of a known model has 20 kB.
const MAX_SOURCE: usize = 256 << 10;
/// Blocks inside each other.
const MAX_NESTING: usize = 32;
/// Branches of one `if`.
const MAX_BRANCHES: usize = 128;
/// Operators, dots and brackets of one tag: each may be a step of recursion.
const MAX_OPERATORS: usize = 256;
/// Joins (`~` and `+`) of one tag: each may add a value of the largest size.
const MAX_JOINS: usize = 48;

/// Why a template is refused, and on which line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) line: usize,
    pub(super) problem: String,
}

/// The template with its marks, or why it is refused. `{% generation %}`, which marks the assistant's text for training
/// masks in `transformers`, becomes a block that does nothing.
pub(super) fn guarded(source: &str) -> Result<String, Refusal> {
    if source.len() > MAX_SOURCE {
        return Err(Refusal { line: 1, problem: format!("it is longer than {MAX_SOURCE} bytes") });
    }
    let mut guard =
        Guard { source, out: String::with_capacity(source.len() * 2), open: Vec::new() };
    let mut at = 0;
    while let Some(found) = source[at..].find('{').map(|offset| at + offset) {
        guard.text(at..found);
        at = match source.as_bytes().get(found + 1) {
            Some(b'%') => guard.block(found)?,
            Some(b'{') => guard.expression(found)?,
            Some(b'#') => guard.comment(found)?,
            _ => {
                guard.text(found..found + 1);
                found + 1
            }
        };
    }
    guard.text(at..source.len());
    Ok(guard.out)
}

/// A block that has begun.
struct Open {
    word: &'static str,
    /// What it binds, to be measured when it ends: the target of a `set` block.
    bound: String,
    branches: usize,
    /// Where in the output the size of its text is to be written, and the text so far.
    charge: Option<usize>,
    text: usize,
}

struct Guard<'a> {
    source: &'a str,
    out: String,
    open: Vec<Open>,
}

impl Guard<'_> {
    fn text(&mut self, range: Range<usize>) {
        for open in &mut self.open {
            open.text += range.len();
        }
        self.out.push_str(&self.source[range]);
    }

    fn comment(&mut self, start: usize) -> Result<usize, Refusal> {
        let end = self.source[start + 2..].find("#}").map(|offset| start + 2 + offset + 2);
        let end = end.ok_or_else(|| self.refusal(start, "a comment does not end"))?;
        self.out.push_str(&self.source[start..end]);
        Ok(end)
    }

    fn expression(&mut self, start: usize) -> Result<usize, Refusal> {
        let end = self.end_of_tag(start, "}}")?;
        self.out.push_str(&self.source[start..end]);
        Ok(end)
    }

    fn block(&mut self, start: usize) -> Result<usize, Refusal> {
        let end = self.end_of_tag(start, "%}")?;
        let tag = &self.source[start..end];
        let inner = tag[2..tag.len() - 2].trim_matches(['-', '+']).trim();
        let (word, rest) = inner.split_at(inner.find(|c: char| !is_word(c)).unwrap_or(inner.len()));
        let rest = rest.trim();
        // A mark ends as its tag does, so that white space behind it is trimmed in the same way.
        let close = &tag[tag.len() - 3..];
        let close = if close.starts_with(['-', '+']) { close } else { "%}" };
        match word {
            "generation" => {
                self.begin(start, "generation")?;
                self.out.push_str(&tag.replacen("generation", "if true", 1));
            }
            "endgeneration" => {
                self.end(start, "generation")?;
                self.out.push_str(&tag.replacen("endgeneration", "endif", 1));
            }
            "if" => {
                self.begin(start, "if")?;
                self.out.push_str(tag);
            }
            "elif" => {
                self.branch(start)?;
                self.out.push_str(tag);
            }
            "else" | "break" | "continue" => self.out.push_str(tag),
            "set" => self.set(start, tag, rest, close)?,
            "endset" => {
                let bound = self.end(start, "set")?.bound;
                self.out.push_str(tag);
                self.mark(&bound, close);
            }
            "for" => {
                let targets = rest.split(" in ").next().unwrap_or_default();
                self.begin(start, "for")?;
                self.out.push_str(tag);
                self.charging_mark(targets, close);
            }
            "macro" => {
                let parameters = parameters(rest);
                self.begin(start, "macro")?;
                self.out.push_str(tag);
                self.charging_mark(&parameters, close);
            }
            "endif" => self.ending(start, tag, "if")?,
            "endfor" => self.ending(start, tag, "for")?,
            "endmacro" => self.ending(start, tag, "macro")?,
            other => {
                let problem = format!("chat templates may not use the tag `{other}`");
                return Err(self.refusal(start, &problem));
            }
        }
        Ok(end)
    }

    /// `{% set x = ... %}` is measured behind itself, `{% set x %}` behind its end.
    fn set(&mut self, start: usize, tag: &str, rest: &str, close: &str) -> Result<(), Refusal> {
        self.out.push_str(tag);
        let target = &rest[..rest.find(['=', '|']).unwrap_or(rest.len())];
        if rest[target.len()..].starts_with('=') {
            self.mark(target, close);
            return Ok(());
        }
        self.begin(start, "set")?;
        if let Some(open) = self.open.last_mut() {
            open.bound = target.trim().to_owned();
        }
        Ok(())
    }

    fn mark(&mut self, values: &str, close: &str) {
        let values = values.trim();
        self.out.push_str(&format!("{{% if lens_bound(0, {values}) {close}{{% endif {close}"));
    }

    /// A mark that is also charged for the text of its block, which is known when the block ends.
    fn charging_mark(&mut self, values: &str, close: &str) {
        let values = values.trim();
        self.out.push_str("{% if lens_bound(");
        let charge = self.out.len();
        self.out.push_str(&format!(", {values}) {close}{{% endif {close}"));
        if let Some(open) = self.open.last_mut() {
            open.charge = Some(charge);
        }
    }

    fn begin(&mut self, at: usize, word: &'static str) -> Result<(), Refusal> {
        if self.open.len() >= MAX_NESTING {
            let problem = format!("more than {MAX_NESTING} blocks are nested");
            return Err(self.refusal(at, &problem));
        }
        self.open.push(Open { word, bound: String::new(), branches: 0, charge: None, text: 0 });
        Ok(())
    }

    fn branch(&mut self, at: usize) -> Result<(), Refusal> {
        if let Some(open) = self.open.last_mut() {
            open.branches += 1;
            if open.branches > MAX_BRANCHES {
                let problem = format!("an `if` has more than {MAX_BRANCHES} branches");
                return Err(self.refusal(at, &problem));
            }
        }
        Ok(())
    }

    fn ending(&mut self, at: usize, tag: &str, word: &str) -> Result<(), Refusal> {
        let open = self.end(at, word)?;
        if let Some(charge) = open.charge {
            self.insert(charge, &open.text.to_string());
        }
        self.out.push_str(tag);
        Ok(())
    }

    /// Writes into the output before its end; the places that outer blocks remember lie before it and stay right.
    fn insert(&mut self, at: usize, text: &str) {
        self.out.insert_str(at, text);
    }

    fn end(&mut self, at: usize, word: &str) -> Result<Open, Refusal> {
        match self.open.pop() {
            Some(open) if open.word == word => Ok(open),
            _ => Err(self.refusal(at, &format!("`end{word}` ends no block"))),
        }
    }

    /// Where the tag that begins at `start` ends, strings and brackets passed over, its operators counted.
    fn end_of_tag(&self, start: usize, close: &str) -> Result<usize, Refusal> {
        let bytes = self.source.as_bytes();
        let (mut at, mut balance, mut operators, mut joins) = (start + 2, 0_i64, 0, 0);
        while at < bytes.len() {
            if balance <= 0 && self.source.as_bytes()[at..].starts_with(close.as_bytes()) {
                return Ok(at + close.len());
            }
            let letter = bytes[at];
            match letter {
                b'"' | b'\'' => at = self.end_of_string(at)?,
                b'*' => {
                    let problem =
                        "chat templates may not multiply: a product of a text has no bound";
                    return Err(self.refusal(at, problem));
                }
                _ if is_word(letter as char) => {
                    let word = bytes[at..].iter().take_while(|&&byte| is_word(byte as char));
                    let word = &self.source[at..at + word.count()];
                    operators += usize::from(matches!(
                        word,
                        "not" | "and" | "or" | "if" | "else" | "in" | "is"
                    ));
                    at += word.len() - 1;
                }
                _ => {
                    balance += i64::from(matches!(letter, b'(' | b'[' | b'{'));
                    balance -= i64::from(matches!(letter, b')' | b']' | b'}'));
                    joins += usize::from(matches!(letter, b'~' | b'+'));
                    operators += usize::from(letter.is_ascii_punctuation() && letter != b',');
                }
            }
            if operators > MAX_OPERATORS {
                let problem = format!("a tag has more than {MAX_OPERATORS} operators");
                return Err(self.refusal(start, &problem));
            }
            if joins > MAX_JOINS {
                let problem = format!("a tag joins more than {MAX_JOINS} values");
                return Err(self.refusal(start, &problem));
            }
            at += 1;
        }
        Err(self.refusal(start, "a tag does not end"))
    }

    /// Where the string that begins at `start` has its last quote.
    fn end_of_string(&self, start: usize) -> Result<usize, Refusal> {
        let bytes = self.source.as_bytes();
        let mut at = start + 1;
        while at < bytes.len() {
            match bytes[at] {
                b'\\' => at += 1,
                quote if quote == bytes[start] => return Ok(at),
                _ => {}
            }
            at += 1;
        }
        Err(self.refusal(start, "a text in quotes does not end"))
    }

    fn refusal(&self, at: usize, problem: &str) -> Refusal {
        let line = 1 + self.source[..at].matches('\n').count();
        Refusal { line, problem: problem.to_owned() }
    }
}

/// Letters beyond ASCII are parts of words to Jinja, and all of their bytes are taken for it.
fn is_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_' || !letter.is_ascii()
}

/// The names of a macro's parameters: `name(a, b=[1, 2])` has `a, b`.
fn parameters(head: &str) -> String {
    let inside = head.split_once('(').map_or("", |(_, rest)| rest);
    let (mut names, mut depth, mut fresh) = (Vec::new(), 0, true);
    let mut letters = inside.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => fresh = true,
            '"' | '\'' => {
                while let Some((_, inner)) = letters.next() {
                    match inner {
                        '\\' => drop(letters.next()),
                        _ if inner == letter => break,
                        _ => {}
                    }
                }
            }
            _ if fresh && depth == 0 && is_word(letter) => {
                let end = inside[at..].find(|c| !is_word(c)).map_or(inside.len(), |end| at + end);
                names.push(&inside[at..end]);
                fresh = false;
            }
            _ => {}
        }
        if depth < 0 {
            break;
        }
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_binds_a_value_is_marked() {
        let marked =
            guarded("{%- for a, b in x -%}ab{% set n.y = b %}{% endfor %}").expect("sound");
        assert_eq!(
            marked,
            "{%- for a, b in x -%}{% if lens_bound(2, a, b) -%}{% endif -%}ab\
             {% set n.y = b %}{% if lens_bound(0, n.y) %}{% endif %}{% endfor %}"
        );
        let marked =
            guarded("{% set y %}t{% endset %}{% macro m(a, b=[',)', 2], c='') %}{% endmacro %}");
        assert_eq!(
            marked.expect("sound"),
            "{% set y %}t{% endset %}{% if lens_bound(0, y) %}{% endif %}\
             {% macro m(a, b=[',)', 2], c='') %}{% if lens_bound(0, a, b, c) %}{% endif %}{% endmacro %}"
        );
    }

    #[test]
    fn the_rest_stays_as_it_is() {
        let source = "a { b {# {% x #} {{ {'}}': {'a': '%}'}}['}}'] }} {% if x['}}'] == \"\\\"%}\" %}{% endif %}";
        assert_eq!(guarded(source).expect("sound"), source);
        let kept = guarded("{%- generation +%}x{% endgeneration -%}").expect("sound");
        assert_eq!(kept, "{%- if true +%}x{% endif -%}");
    }
}
