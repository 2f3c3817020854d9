//! What people see: standard error that may be closed, and the width of the terminal.

use std::io::Write;

/// Columns where there is no terminal.
const NARROW: usize = 100;

/// Writes a line to standard error. A reader that has gone away is no reason to stop a run, so errors are ignored.
pub(crate) fn say(line: &str) {
    let _ = writeln!(anstream::stderr(), "{line}");
}

/// Columns of standard error's terminal; `None` where there is none.
pub(crate) fn error_columns() -> Option<usize> {
    columns(rustix::stdio::stderr())
}

/// Columns of standard output's terminal, or a width that suits a file.
pub(crate) fn output_columns() -> usize {
    columns(rustix::stdio::stdout()).unwrap_or(NARROW)
}

fn columns(stream: impl rustix::fd::AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    (size.ws_col > 0).then(|| usize::from(size.ws_col))
}

/// Breaks lines longer than `width` between words. Words longer than a line stay whole.
pub(crate) fn wrap(text: &str, width: usize) -> String {
    let mut wrapped = String::with_capacity(text.len());
    for (number, line) in text.lines().enumerate() {
        if number > 0 {
            wrapped.push('\n');
        }
        let mut column = 0;
        for word in line.split_inclusive(' ') {
            let length = word.trim_end().chars().count();
            if column > 0 && column + length > width {
                wrapped.truncate(wrapped.trim_end_matches(' ').len());
                wrapped.push('\n');
                column = 0;
            }
            wrapped.push_str(word);
            column += word.chars().count();
        }
    }
    wrapped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_never_split_and_short_lines_stay() {
        assert_eq!(wrap("one two three", 8), "one two\nthree");
        assert_eq!(wrap("short\n\nlines stay", 80), "short\n\nlines stay");
        assert_eq!(wrap("incomprehensibilities a", 5), "incomprehensibilities\na");
        assert!(wrap(&"word ".repeat(50), 30).lines().all(|line| line.chars().count() <= 30));
    }
}
