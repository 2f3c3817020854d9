//! Where a player's lines come from: a line editor on a terminal, plain lines from a pipe.

use std::io::{BufRead, Write};

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::Validator;
use rustyline::{Context, Editor, Helper};

use crate::failure::Failure;

/// A source of lines.
pub(super) trait Input {
    /// The next line after `prompt`, without its end; `None` at the end of the input. `words` complete a beginning.
    fn line(
        &mut self,
        prompt: &str,
        words: &[String],
        out: &mut dyn Write,
    ) -> Result<Option<String>, Failure>;
}

/// Lines from a pipe, repeated in the output because no terminal shows them.
pub(super) struct Piped<R>(pub(super) R);

impl<R: BufRead> Input for Piped<R> {
    fn line(
        &mut self,
        prompt: &str,
        _words: &[String],
        out: &mut dyn Write,
    ) -> Result<Option<String>, Failure> {
        write!(out, "{prompt}")?;
        out.flush()?;
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            writeln!(out)?;
            return Ok(None);
        }
        let line = line.trim_end_matches(['\n', '\r']).to_owned();
        writeln!(out, "{line}")?;
        Ok(Some(line))
    }
}

/// A line editor with history and completion.
pub(super) struct Typed(Editor<Words, DefaultHistory>);

impl Typed {
    pub(super) fn new() -> Result<Self, Failure> {
        let mut editor = Editor::new().map_err(broken)?;
        editor.set_helper(Some(Words::default()));
        Ok(Self(editor))
    }
}

fn broken(error: ReadlineError) -> Failure {
    match error {
        ReadlineError::Io(error) => error.into(),
        other => Failure::Runtime(anyhow::Error::new(other).context("the terminal failed")),
    }
}

impl Input for Typed {
    fn line(
        &mut self,
        prompt: &str,
        words: &[String],
        out: &mut dyn Write,
    ) -> Result<Option<String>, Failure> {
        out.flush()?;
        if let Some(helper) = self.0.helper_mut() {
            helper.0 = words.to_vec();
        }
        match self.0.readline(prompt) {
            Ok(line) => {
                if !line.trim().is_empty() {
                    self.0.add_history_entry(line.as_str()).map_err(broken)?;
                }
                Ok(Some(line))
            }
            Err(ReadlineError::Eof) => Ok(None),
            Err(ReadlineError::Interrupted) => Err(Failure::Interrupted("interrupted".to_owned())),
            Err(error) => Err(broken(error)),
        }
    }
}

/// What a line can be completed to.
#[derive(Debug, Default)]
struct Words(Vec<String>);

impl Completer for Words {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let typed = line.get(..position).unwrap_or(line);
        Ok((0, self.0.iter().filter(|word| word.starts_with(typed)).cloned().collect()))
    }
}

impl Hinter for Words {
    type Hint = String;
}

impl Highlighter for Words {}
impl Validator for Words {}
impl Helper for Words {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_is_completed_to_what_can_be_typed() {
        let words = Words(["go to shelf 1", "go to desk 1", "undo"].map(str::to_owned).to_vec());
        let history = DefaultHistory::new();
        let (start, found) =
            words.complete("go to s", 7, &Context::new(&history)).expect("it never fails");
        assert_eq!((start, found), (0, vec!["go to shelf 1".to_owned()]));
    }

    #[test]
    fn a_pipe_gives_its_lines_and_then_its_end() {
        let mut input = Piped("one\r\ntwo".as_bytes());
        let mut out = Vec::new();
        let mut next = || input.line("> ", &[], &mut out).ok().flatten();
        assert_eq!((next(), next(), next()), (Some("one".into()), Some("two".into()), None));
    }
}
