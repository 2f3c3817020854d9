//! Readers of large JSON files that hold one element at a time.

use std::fmt;
use std::io::Read;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::error::EnvError;

/// Whether to read on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Read the next element.
    More,
    /// Enough was read; the rest of the file is not looked at.
    Enough,
}

/// Reads a JSON array element by element; `each` also gets the element's number, counted from 0.
/// `name` is the file, for messages.
pub(super) fn read_array<T: DeserializeOwned>(
    input: impl Read,
    name: &str,
    mut each: impl FnMut(usize, T) -> Result<Next, EnvError>,
) -> Result<(), EnvError> {
    let mut progress = Progress::default();
    let visitor = Array { progress: &mut progress, each: &mut each, element: PhantomData };
    let mut parser = serde_json::Deserializer::from_reader(input);
    let result = parser.deserialize_seq(visitor).and_then(|()| parser.end());
    progress.outcome(result, name)
}

/// Reads a JSON object entry by entry. `name` is the file, for messages.
pub(super) fn read_object<T: DeserializeOwned>(
    input: impl Read,
    name: &str,
    mut each: impl FnMut(String, T),
) -> Result<(), EnvError> {
    let mut progress = Progress::default();
    let visitor = Object { progress: &mut progress, each: &mut each, element: PhantomData };
    let mut parser = serde_json::Deserializer::from_reader(input);
    let result = parser.deserialize_map(visitor).and_then(|()| parser.end());
    progress.outcome(result, name)
}

/// How far a reader has come, and why it stopped before the end.
#[derive(Default)]
struct Progress {
    read: usize,
    stopped: Option<Result<(), EnvError>>,
}

impl Progress {
    fn outcome(self, result: serde_json::Result<()>, name: &str) -> Result<(), EnvError> {
        if let Some(stopped) = self.stopped {
            return stopped;
        }
        result.map_err(|error| {
            if error.is_io() {
                return EnvError::Read { path: name.into(), source: error.into() };
            }
            EnvError::Malformed {
                path: name.to_owned(),
                line: (error.line() > 0).then_some(error.line()),
                message: format!("after {} good entries: {error}", self.read),
            }
        })
    }
}

struct Array<'a, F, T> {
    progress: &'a mut Progress,
    each: &'a mut F,
    element: PhantomData<T>,
}

impl<'de, F, T> Visitor<'de> for Array<'_, F, T>
where
    F: FnMut(usize, T) -> Result<Next, EnvError>,
    T: DeserializeOwned,
{
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<(), A::Error> {
        while let Some(element) = sequence.next_element()? {
            let stopped = match (self.each)(self.progress.read, element) {
                Ok(Next::More) => None,
                Ok(Next::Enough) => Some(Ok(())),
                Err(error) => Some(Err(error)),
            };
            if stopped.is_some() {
                self.progress.stopped = stopped;
                // The parser has no other way to leave a list early; what the end means is in `progress`.
                return Err(serde::de::Error::custom("stopped"));
            }
            self.progress.read += 1;
        }
        Ok(())
    }
}

struct Object<'a, F, T> {
    progress: &'a mut Progress,
    each: &'a mut F,
    element: PhantomData<T>,
}

impl<'de, F, T> Visitor<'de> for Object<'_, F, T>
where
    F: FnMut(String, T),
    T: DeserializeOwned,
{
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some((key, value)) = map.next_entry()? {
            (self.each)(key, value);
            self.progress.read += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, limit: usize) -> (Vec<u32>, Result<(), EnvError>) {
        let mut numbers = Vec::new();
        let result = read_array(text.as_bytes(), "list.json", |at, number: u32| {
            if at == limit {
                return Ok(Next::Enough);
            }
            numbers.push(number);
            Ok(Next::More)
        });
        (numbers, result)
    }

    #[test]
    fn a_limit_leaves_the_rest_unread() {
        let (numbers, result) = read("[1, 2, 3, not json", 2);
        assert_eq!(numbers, [1, 2]);
        assert!(result.is_ok());
    }

    #[test]
    fn errors_name_the_file_the_line_and_the_entry() {
        let (_, result) = read("[1,\n2,\n\"x\"]", 9);
        assert_eq!(
            result.unwrap_err().to_string(),
            "list.json:3: after 2 good entries: invalid type: string \"x\", expected u32 at line 3 column 3"
        );
        assert!(read("{}", 9).1.is_err());
        assert!(read("[1] [2]", 9).1.is_err());
        assert!(read("", 9).1.is_err());
    }

    #[test]
    fn objects_are_read_in_order() {
        let mut seen = Vec::new();
        read_object(r#"{"b": 1, "a": 2}"#.as_bytes(), "map.json", |key, value: u8| {
            seen.push((key, value));
        })
        .unwrap();
        assert_eq!(seen, [("b".to_owned(), 1), ("a".to_owned(), 2)]);
    }
}
