//! Reading data files that others wrote: regular files only, in lines of bounded length.

use std::fs::File;
use std::io::{BufRead, Read};
use std::path::Path;

use crate::EnvError;

/// The longest line; a recorded episode has about a megabyte. A few kilobytes of zstd can hold gigabytes without a
/// line's end.
const LONGEST_LINE: u64 = 32 << 20;
/// The largest file that is read whole.
const LARGEST_TEXT: u64 = 256 << 20;

/// Opens a regular file. Pipes and devices are refused before they are opened: opening a pipe waits for a writer.
pub(crate) fn open(path: &Path) -> Result<File, EnvError> {
    let failed = |source| EnvError::Read { path: path.to_owned(), source };
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(malformed(
            path,
            None,
            "not a regular file; data are read from files only".to_owned(),
        ));
    }
    File::open(path).map_err(failed)
}

/// The whole text of a regular file.
pub(crate) fn text(path: &Path) -> Result<String, EnvError> {
    let mut text = String::new();
    let read = open(path)?.take(LARGEST_TEXT + 1).read_to_string(&mut text);
    read.map_err(|source| EnvError::Read { path: path.to_owned(), source })?;
    if text.len() as u64 > LARGEST_TEXT {
        let message = format!("larger than {} MiB; not a file of this kind", LARGEST_TEXT >> 20);
        return Err(malformed(path, None, message));
    }
    Ok(text)
}

/// The lines of a reader with their numbers, counted from 1, without their ends. A line that is too long is an error.
pub(crate) fn lines(
    reader: impl BufRead,
    path: &Path,
) -> impl Iterator<Item = Result<(usize, String), EnvError>> {
    lines_up_to(reader, path, LONGEST_LINE)
}

fn lines_up_to(
    mut reader: impl BufRead,
    path: &Path,
    longest: u64,
) -> impl Iterator<Item = Result<(usize, String), EnvError>> {
    let path = path.to_owned();
    let mut number = 0;
    std::iter::from_fn(move || {
        number += 1;
        let mut line = Vec::new();
        match reader.by_ref().take(longest + 1).read_until(b'\n', &mut line) {
            Ok(0) => return None,
            Ok(_) => {}
            Err(source) => return Some(Err(EnvError::Read { path: path.clone(), source })),
        }
        if line.len() as u64 > longest {
            let message = format!("the line is longer than {longest} bytes; the file is damaged");
            return Some(Err(malformed(&path, Some(number), message)));
        }
        while matches!(line.last(), Some(b'\n' | b'\r')) {
            line.pop();
        }
        Some(
            String::from_utf8(line).map(|line| (number, line)).map_err(|_| {
                malformed(&path, Some(number), "the line is not UTF-8 text".to_owned())
            }),
        )
    })
}

fn malformed(path: &Path, line: Option<usize>, message: String) -> EnvError {
    EnvError::Malformed { path: path.display().to_string(), line, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_without_their_ends_and_with_their_numbers() {
        let found: Vec<_> = lines_up_to(&b"one\r\n\nthree"[..], Path::new("a"), 8)
            .collect::<Result<_, _>>()
            .expect("all lines are short");
        let wanted = [(1, "one"), (2, ""), (3, "three")];
        assert_eq!(found, wanted.map(|(number, line)| (number, line.to_owned())));
    }

    #[test]
    fn a_line_without_end_is_refused_after_the_limit() {
        let endless = std::io::BufReader::new(std::io::repeat(b'x'));
        let first = lines_up_to(endless, Path::new("a.jsonl"), 1 << 16).next();
        let error = first.expect("a line").expect_err("it is too long").to_string();
        assert_eq!(error, "a.jsonl:1: the line is longer than 65536 bytes; the file is damaged");
    }
}
