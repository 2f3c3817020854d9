//! Reading JSON lines: one at a time, with a bound on their length, past whatever is damaged.

use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, ErrorKind, Read, Seek, SeekFrom};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::{FORMAT, ReadProblem, Versioned};

/// The longest line of `metrics.jsonl` and `timings.jsonl`.
pub const METRICS_LINE_LIMIT: usize = 16 << 20;

/// The longest line of an episode file: 64 turns of 4,096 tokens with two branches stay well below.
pub const EPISODE_LINE_LIMIT: usize = 256 << 20;

/// The largest packed file that is searched for a frame.
const PACKED_LIMIT: u64 = 256 << 20;

/// A raw line: its bytes stay in the reader's buffer, its end is known.
enum Raw {
    Line,
    Unfinished,
    TooLong,
    End,
}

/// Lines of a file, parsed one after another.
pub struct Lines<T> {
    source: Box<dyn BufRead + Send>,
    path: PathBuf,
    line: u64,
    offset: u64,
    limit: usize,
    buffer: Vec<u8>,
    over: bool,
    kind: PhantomData<fn() -> T>,
}

impl<T> Lines<T> {
    /// Lines of a plain file, from its beginning.
    pub fn open(path: &Path) -> Result<Self, ReadProblem> {
        Self::open_at(path, 0, 0)
    }

    /// Lines of a plain file from byte `offset` on, which is the beginning of line `line + 1`: how a growing file is
    /// followed.
    pub fn open_at(path: &Path, offset: u64, line: u64) -> Result<Self, ReadProblem> {
        let problem = |source| ReadProblem::Open { path: path.to_owned(), source };
        let mut file = open_regular(path).map_err(problem)?;
        file.seek(SeekFrom::Start(offset)).map_err(problem)?;
        let mut lines = Self::new(Box::new(BufReader::new(file)), path, METRICS_LINE_LIMIT);
        (lines.offset, lines.line) = (offset, line);
        Ok(lines)
    }

    /// Lines of a zstd file.
    pub fn open_packed(path: &Path) -> Result<Self, ReadProblem> {
        let problem = |source| ReadProblem::Open { path: path.to_owned(), source };
        let file = open_regular(path).map_err(problem)?;
        let unpacked = zstd::Decoder::new(file).map_err(problem)?;
        let source = BufReader::with_capacity(1 << 16, unpacked);
        Ok(Self::new(Box::new(source), path, EPISODE_LINE_LIMIT))
    }

    /// Lines of the zstd frame number `frame` of a file and of what follows it, counted from 0; `None` where the file
    /// has no such frame, is damaged before it, or is larger than a batch of episodes is.
    pub fn open_frame(path: &Path, frame: u64) -> Result<Option<Self>, ReadProblem> {
        let problem = |source| ReadProblem::Open { path: path.to_owned(), source };
        let mut packed = Vec::new();
        let file = open_regular(path).map_err(problem)?;
        file.take(PACKED_LIMIT).read_to_end(&mut packed).map_err(problem)?;
        let mut start = 0;
        for _ in 0..frame {
            match zstd::zstd_safe::find_frame_compressed_size(&packed[start..]) {
                Ok(size) if size > 0 && start + size < packed.len() => start += size,
                _ => return Ok(None),
            }
        }
        let packed = Cursor::new(packed.split_off(start));
        let unpacked = zstd::Decoder::new(packed).map_err(problem)?;
        let source = BufReader::with_capacity(1 << 16, unpacked);
        Ok(Some(Self::new(Box::new(source), path, EPISODE_LINE_LIMIT)))
    }

    /// Lines of any source; `path` is what problems name.
    pub fn new(source: Box<dyn BufRead + Send>, path: &Path, limit: usize) -> Self {
        let path = path.to_owned();
        let (line, offset, buffer, over) = (0, 0, Vec::new(), false);
        Self { source, path, line, offset, limit, buffer, over, kind: PhantomData }
    }

    /// Bytes up to the end of the last whole line, and the number of whole lines: where to go on later.
    pub fn position(&self) -> (u64, u64) {
        (self.offset, self.line)
    }

    /// Passes over one line without parsing it; `false` at the end.
    pub fn skip_line(&mut self) -> Result<bool, ReadProblem> {
        match self.raw()? {
            Raw::Line | Raw::TooLong => Ok(true),
            Raw::Unfinished | Raw::End => Ok(false),
        }
    }

    /// The bytes of the next whole line, its newline left out; `None` at the end.
    pub fn raw_line(&mut self) -> Option<Result<&[u8], ReadProblem>> {
        if self.over {
            return None;
        }
        match self.raw() {
            Err(problem) => Some(Err(problem)),
            Ok(Raw::End) => None,
            Ok(Raw::Line) => Some(Ok(&self.buffer)),
            Ok(Raw::Unfinished) => {
                let (path, line) = (self.path.clone(), self.line + 1);
                Some(Err(ReadProblem::Unfinished { path, line }))
            }
            Ok(Raw::TooLong) => {
                let (path, line, limit) = (self.path.clone(), self.line, self.limit);
                Some(Err(ReadProblem::TooLong { path, line, limit }))
            }
        }
    }

    fn raw(&mut self) -> Result<Raw, ReadProblem> {
        self.buffer.clear();
        let (mut read, mut kept) = (0_u64, true);
        loop {
            let available = match self.source.fill_buf() {
                Ok(available) => available,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(source) => {
                    self.over = true;
                    let (path, line) = (self.path.clone(), self.line);
                    return Err(if source.kind() == ErrorKind::UnexpectedEof {
                        ReadProblem::CutOff { path, line }
                    } else {
                        ReadProblem::Read { path, line, source }
                    });
                }
            };
            if available.is_empty() {
                self.over = true;
                return Ok(if read == 0 { Raw::End } else { Raw::Unfinished });
            }
            let end = available.iter().position(|&byte| byte == b'\n');
            let taken = end.map_or(available.len(), |end| end + 1);
            let text = end.unwrap_or(available.len());
            // A line beyond the limit is passed over without being held.
            if kept && self.buffer.len() + text > self.limit {
                kept = false;
                self.buffer = Vec::new();
            }
            if kept {
                self.buffer.extend_from_slice(&available[..text]);
            }
            self.source.consume(taken);
            read += taken as u64;
            if end.is_some() {
                self.offset += read;
                self.line += 1;
                return Ok(if kept { Raw::Line } else { Raw::TooLong });
            }
        }
    }
}

impl<T: DeserializeOwned + Versioned> Lines<T> {
    /// Parses a line that [`Lines::raw_line`] gave.
    pub fn parse(path: &Path, line: u64, text: &[u8]) -> Result<T, ReadProblem> {
        #[derive(Deserialize)]
        struct Header {
            #[serde(default = "crate::unnumbered")]
            format: u32,
        }
        let newer =
            |found| ReadProblem::Newer { path: path.to_owned(), line, found, supported: FORMAT };
        match serde_json::from_slice::<T>(text) {
            Ok(record) if record.format() > FORMAT => Err(newer(record.format())),
            Ok(record) => Ok(record),
            Err(error) => match serde_json::from_slice::<Header>(text) {
                Ok(header) if header.format > FORMAT => Err(newer(header.format)),
                _ => Err(ReadProblem::Damaged {
                    path: path.to_owned(),
                    line,
                    message: error.to_string(),
                }),
            },
        }
    }
}

impl<T: DeserializeOwned + Versioned> Iterator for Lines<T> {
    type Item = Result<T, ReadProblem>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.raw_line()? {
                Err(problem) => return Some(Err(problem)),
                Ok(text) if text.iter().all(u8::is_ascii_whitespace) => {}
                Ok(_) => return Some(Self::parse(&self.path, self.line, &self.buffer)),
            }
        }
    }
}

/// Opens a regular file. Anything else, a pipe for one, could block a reader forever.
pub(crate) fn open_regular(path: &Path) -> std::io::Result<File> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(std::io::Error::new(ErrorKind::InvalidInput, "not a regular file"));
    }
    File::open(path)
}

/// Reads a small text file whole, up to `limit` bytes.
pub(crate) fn read_text(path: &Path, limit: u64) -> Result<String, ReadProblem> {
    let problem = |source| ReadProblem::Open { path: path.to_owned(), source };
    let file = open_regular(path).map_err(problem)?;
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes).map_err(problem)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
