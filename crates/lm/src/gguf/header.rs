//! Reading and checking a GGUF header: metadata and the places of the tensors.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use super::blocks::BlockType;
use super::value::Value;
use crate::error::LmError;

/// How deep arrays may nest; real files do not nest at all.
const MAX_NESTING: usize = 2;
/// Array elements in all metadata together; the largest vocabularies have half a million tokens and merges.
const MAX_ELEMENTS: u64 = 1 << 23;
/// Where headers end at the latest: a sparse file is as long as it says it is, so its length bounds nothing. The largest
/// vocabularies make headers of about 30 MB.
const MAX_HEADER: u64 = 256 << 20;
/// The longest text; chat templates have a few hundred kilobytes at most.
const MAX_TEXT: u64 = 16 << 20;
/// The longest key or tensor name; the format itself allows 65,535 bytes.
const MAX_NAME: u64 = (1 << 16) - 1;
/// The least bytes a metadata entry and a tensor entry take.
const LEAST_ENTRY: u64 = 8 + 4 + 1;
const LEAST_TENSOR: u64 = 8 + 4 + 4 + 8;

/// One tensor's place in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Sizes, outermost first (the file has them the other way round).
    pub shape: Vec<usize>,
    /// The stored form, or the number of one we do not read.
    pub kind: Result<BlockType, u32>,
    /// First byte, counted from the start of the file.
    pub offset: u64,
}

/// A checked header.
#[derive(Debug, Clone, PartialEq)]
pub struct Header {
    /// Metadata by key.
    pub metadata: BTreeMap<String, Value>,
    /// Tensors by name.
    pub tensors: BTreeMap<String, TensorInfo>,
}

impl Header {
    /// Reads and checks a header. Nothing is allocated beyond what a file of `file_length` bytes can hold.
    /// `path` is only used in messages.
    pub fn read(path: &Path, source: &mut dyn Read, file_length: u64) -> Result<Self, LmError> {
        let mut bytes =
            Bytes { path, source, position: 0, length: file_length, elements_left: MAX_ELEMENTS };
        let broken = |problem: String| LmError::malformed(path, problem);
        if bytes.take(4, "the file's mark")? != *b"GGUF" {
            return Err(broken(
                "not a GGUF file: it does not start with the letters GGUF".to_owned(),
            ));
        }
        match bytes.u32("the version")? {
            2 | 3 => {}
            1 => {
                return Err(broken(
                    "GGUF version 1 is too old; convert the model again".to_owned(),
                ));
            }
            other if other.swap_bytes() <= 3 => {
                return Err(broken("the file is big-endian, which is not supported".to_owned()));
            }
            other => return Err(broken(format!("GGUF version {other} is not known; 2 and 3 are"))),
        }
        let tensor_count = bytes.u64("the number of tensors")?;
        let entry_count = bytes.u64("the number of metadata entries")?;
        let possible =
            |count: u64, least: u64| count.checked_mul(least).is_some_and(|all| all <= file_length);
        if !possible(tensor_count, LEAST_TENSOR) || !possible(entry_count, LEAST_ENTRY) {
            return Err(broken(format!(
                "{tensor_count} tensors and {entry_count} metadata entries do not fit into {file_length} bytes"
            )));
        }
        let mut metadata = BTreeMap::new();
        for _ in 0..entry_count {
            let key = bytes.text("a metadata key", MAX_NAME)?;
            let kind = bytes.u32(&key)?;
            let value = bytes.value(kind, &key, 0)?;
            if metadata.insert(key.clone(), value).is_some() {
                return Err(broken(format!("metadata `{key}` is there twice")));
            }
        }
        let mut tensors = BTreeMap::new();
        for _ in 0..tensor_count {
            let name = bytes.text("a tensor name", MAX_NAME)?;
            let info = bytes.tensor(&name)?;
            if tensors.insert(name.clone(), info).is_some() {
                return Err(LmError::tensor(path, &name, "is listed twice"));
            }
        }
        let alignment = match metadata.get("general.alignment") {
            None => 32,
            Some(value) => {
                value.as_u64().filter(|a| a.is_power_of_two() && *a <= 1 << 20).ok_or_else(
                    || broken(format!("general.alignment is {value:?}, not a power of two")),
                )?
            }
        };
        let data_start = bytes.position.next_multiple_of(alignment);
        place_tensors(path, &mut tensors, data_start, file_length)?;
        Ok(Self { metadata, tensors })
    }
}

/// Makes offsets absolute and checks that every tensor lies inside the file and no two overlap.
fn place_tensors(
    path: &Path,
    tensors: &mut BTreeMap<String, TensorInfo>,
    data_start: u64,
    file_length: u64,
) -> Result<(), LmError> {
    let mut spans = Vec::new();
    for (name, info) in tensors.iter_mut() {
        let wrong = |problem: String| LmError::tensor(path, name, problem);
        let values =
            info.shape.iter().try_fold(1_usize, |product, &size| product.checked_mul(size));
        let values = values.ok_or_else(|| {
            wrong(format!("has the shape {:?}, more values than can be counted", info.shape))
        })?;
        let size = match info.kind {
            // An unknown form is refused when it is asked for; here only its start can be checked.
            Err(_) => 0,
            Ok(kind) => {
                if info.shape.last().is_some_and(|&row| !row.is_multiple_of(kind.values())) {
                    return Err(wrong(format!(
                        "has rows of {} values, which {kind} cannot divide into blocks of {}",
                        info.shape.last().copied().unwrap_or(0),
                        kind.values()
                    )));
                }
                (values / kind.values())
                    .checked_mul(kind.bytes())
                    .ok_or_else(|| wrong(format!("has the shape {:?}, too large", info.shape)))?
            }
        };
        let begin = data_start.checked_add(info.offset);
        let end = begin.and_then(|begin| begin.checked_add(size as u64));
        match (begin, end) {
            (Some(begin), Some(end)) if end <= file_length => {
                info.offset = begin;
                spans.push((begin, end, name.clone()));
            }
            _ => {
                return Err(wrong(format!(
                    "starts {} bytes into the data and needs {size}, but the file has {file_length} bytes in all; \
                     the file is truncated",
                    info.offset
                )));
            }
        }
    }
    spans.sort();
    for pair in spans.windows(2) {
        if pair[0].1 > pair[1].0 {
            return Err(LmError::tensor(path, &pair[1].2, format!("overlaps `{}`", pair[0].2)));
        }
    }
    Ok(())
}

/// A reader that knows how much there can be.
struct Bytes<'a> {
    path: &'a Path,
    source: &'a mut dyn Read,
    position: u64,
    length: u64,
    elements_left: u64,
}

impl Bytes<'_> {
    /// Reads `count` bytes after checking that the file has them.
    fn take(&mut self, count: u64, what: &str) -> Result<Vec<u8>, LmError> {
        if count > self.length - self.position {
            return Err(LmError::malformed(
                self.path,
                format!(
                    "{what} needs {count} bytes at position {}, but the file ends at {}; truncated or damaged",
                    self.position, self.length
                ),
            ));
        }
        if count > MAX_HEADER - self.position {
            return Err(LmError::malformed(
                self.path,
                format!(
                    "{what} needs {count} bytes at position {}, but headers end at {MAX_HEADER}; not a model's file",
                    self.position
                ),
            ));
        }
        let mut bytes = vec![0; count as usize];
        self.source.read_exact(&mut bytes).map_err(LmError::io(self.path, "read the header"))?;
        self.position += count;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], LmError> {
        let mut fixed = [0; N];
        fixed.copy_from_slice(&self.take(N as u64, what)?);
        Ok(fixed)
    }

    fn u32(&mut self, what: &str) -> Result<u32, LmError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    fn u64(&mut self, what: &str) -> Result<u64, LmError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    fn text(&mut self, what: &str, longest: u64) -> Result<String, LmError> {
        let length = self.u64(what)?;
        if length > longest {
            return Err(LmError::malformed(
                self.path,
                format!("{what} is said to be {length} bytes long; at most {longest} are allowed"),
            ));
        }
        String::from_utf8(self.take(length, what)?)
            .map_err(|_| LmError::malformed(self.path, format!("{what} is not UTF-8 text")))
    }

    fn value(&mut self, kind: u32, key: &str, depth: usize) -> Result<Value, LmError> {
        Ok(match kind {
            0 => Value::Unsigned(u64::from(self.array::<1>(key)?[0])),
            1 => Value::signed(i64::from(i8::from_le_bytes(self.array(key)?))),
            2 => Value::Unsigned(u64::from(u16::from_le_bytes(self.array(key)?))),
            3 => Value::signed(i64::from(i16::from_le_bytes(self.array(key)?))),
            4 => Value::Unsigned(u64::from(self.u32(key)?)),
            5 => Value::signed(i64::from(i32::from_le_bytes(self.array(key)?))),
            6 => Value::Float(f64::from(f32::from_le_bytes(self.array(key)?))),
            7 => Value::Bool(self.array::<1>(key)?[0] != 0),
            8 => Value::Text(self.text(key, MAX_TEXT)?),
            9 => {
                let inner = self.u32(key)?;
                let count = self.u64(key)?;
                let least = match inner {
                    0 | 1 | 7 => 1,
                    2 | 3 => 2,
                    4..=6 => 4,
                    9 => 12,
                    _ => 8,
                };
                let fits =
                    count.checked_mul(least).is_some_and(|b| b <= self.length - self.position);
                if !fits || count > self.elements_left || depth >= MAX_NESTING {
                    return Err(LmError::malformed(
                        self.path,
                        format!(
                            "metadata `{key}` is said to hold {count} values, more than a model's file can"
                        ),
                    ));
                }
                self.elements_left -= count;
                (0..count)
                    .map(|_| self.value(inner, key, depth + 1))
                    .collect::<Result<_, _>>()
                    .map(Value::Array)?
            }
            10 => Value::Unsigned(self.u64(key)?),
            11 => Value::signed(i64::from_le_bytes(self.array(key)?)),
            12 => Value::Float(f64::from_le_bytes(self.array(key)?)),
            other => {
                return Err(LmError::malformed(
                    self.path,
                    format!("metadata `{key}` has the unknown type {other}; the header is damaged"),
                ));
            }
        })
    }

    fn tensor(&mut self, name: &str) -> Result<TensorInfo, LmError> {
        let dimensions = self.u32(name)?;
        if dimensions > 4 {
            return Err(LmError::tensor(self.path, name, format!("has {dimensions} dimensions")));
        }
        let mut shape = (0..dimensions)
            .map(|_| {
                let size = self.u64(name)?;
                usize::try_from(size)
                    .map_err(|_| LmError::tensor(self.path, name, format!("is {size} wide")))
            })
            .collect::<Result<Vec<_>, _>>()?;
        shape.reverse();
        let kind = self.u32(name)?;
        let kind = BlockType::from_number(kind).ok_or(kind);
        Ok(TensorInfo { shape, kind, offset: self.u64(name)? })
    }
}
