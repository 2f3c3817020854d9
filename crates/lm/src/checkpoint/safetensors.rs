//! One safetensors file: a checked header, and values widened from a map of the file in pieces.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};

use super::dtype::Dtype;
use crate::error::LmError;
use crate::file::open_regular;
use crate::kernels::map::FileMap;

/// Headers beyond this are refused, as the format's own reader does.
const MAX_HEADER: u64 = 100_000_000;

/// Values one task converts: few enough for the cache.
const PIECE: usize = 1 << 17;

/// One tensor's place in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The stored type, or the header's name of a type we do not read.
    pub dtype: Result<Dtype, String>,
    /// Sizes, outermost first.
    pub shape: Vec<usize>,
    /// First byte, counted from the end of the header.
    pub begin: u64,
    /// One past the last byte.
    pub end: u64,
}

impl Entry {
    /// Number of values. The header check made sure that the product fits.
    pub fn values(&self) -> usize {
        self.shape.iter().product()
    }
}

/// The tensors of a file by name, and where their bytes start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The tensors.
    pub entries: BTreeMap<String, Entry>,
    /// Position of the first tensor byte in the file.
    pub data_start: u64,
}

impl Header {
    /// Reads and checks a header. Nothing is allocated beyond what a file of `file_length` bytes can hold.
    /// `path` is only used in messages.
    pub fn read(path: &Path, source: &mut dyn Read, file_length: u64) -> Result<Self, LmError> {
        let broken = |problem: String| LmError::malformed(path, problem);
        if file_length < 8 {
            return Err(broken(format!(
                "a safetensors file starts with 8 bytes of header length, this one has {file_length} bytes in all"
            )));
        }
        let mut word = [0_u8; 8];
        source.read_exact(&mut word).map_err(LmError::io(path, "read the header length"))?;
        let length = u64::from_le_bytes(word);
        if length > MAX_HEADER || length > file_length - 8 {
            return Err(broken(format!(
                "the header is said to be {length} bytes long, but the file has {} bytes after the length word \
                 and headers end at {MAX_HEADER}; not a safetensors file, or truncated",
                file_length - 8
            )));
        }
        let mut text = vec![0_u8; length as usize];
        source.read_exact(&mut text).map_err(LmError::io(path, "read the header"))?;
        let raw: RawHeader = serde_json::from_slice(&text).map_err(|error| {
            broken(format!("the header is not what safetensors asks for: {error}"))
        })?;
        let data_start = 8 + length;
        let entries = check_entries(path, raw.0, file_length - data_start)?;
        Ok(Self { entries, data_start })
    }
}

/// Entries in the order of the file; duplicated names were refused.
struct RawHeader(BTreeMap<String, RawEntry>);

#[derive(Deserialize)]
struct RawEntry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = BTreeMap<String, RawEntry>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = BTreeMap::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        map.next_value::<BTreeMap<String, String>>()?;
                        continue;
                    }
                    let entry = map
                        .next_value::<RawEntry>()
                        .map_err(|error| A::Error::custom(format!("tensor `{name}`: {error}")))?;
                    if entries.contains_key(&name) {
                        return Err(A::Error::custom(format!("tensor `{name}` is listed twice")));
                    }
                    entries.insert(name, entry);
                }
                Ok(entries)
            }
        }
        deserializer.deserialize_map(Entries).map(Self)
    }
}

/// Checks sizes and offsets against the file, and that the tensors lie side by side without gap or overlap.
fn check_entries(
    path: &Path,
    raw: BTreeMap<String, RawEntry>,
    data_length: u64,
) -> Result<BTreeMap<String, Entry>, LmError> {
    let mut entries = BTreeMap::new();
    for (name, RawEntry { dtype, shape, data_offsets: (begin, end) }) in raw {
        let wrong = |problem: String| LmError::tensor(path, &name, problem);
        if begin > end {
            return Err(wrong(format!("begins at byte {begin} and ends before it, at {end}")));
        }
        if end > data_length {
            return Err(wrong(format!(
                "ends at byte {end} of the data, but the file holds only {data_length}; the file is truncated"
            )));
        }
        let values =
            shape.iter().try_fold(1_u64, |product, &size| product.checked_mul(size)).ok_or_else(
                || wrong(format!("has the shape {shape:?}, more values than can be counted")),
            )?;
        let dtype = Dtype::from_safetensors_name(&dtype).ok_or(dtype);
        if let Ok(known) = &dtype {
            let wanted = values.checked_mul(known.size() as u64);
            if wanted != Some(end - begin) {
                return Err(wrong(format!(
                    "has the shape {shape:?} in {known}, which does not fit the {} bytes it is given",
                    end - begin
                )));
            }
        }
        let shape = shape
            .iter()
            .map(|&size| usize::try_from(size))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| wrong(format!("has the shape {shape:?}, too large for this machine")))?;
        entries.insert(name, Entry { dtype, shape, begin, end });
    }

    let mut order: Vec<(&String, &Entry)> = entries.iter().collect();
    order.sort_by_key(|(_, entry)| (entry.begin, entry.end));
    let mut reached = 0;
    for (name, entry) in order {
        if entry.begin != reached {
            return Err(LmError::tensor(
                path,
                name,
                format!(
                    "begins at byte {}, but the tensor before it ends at {reached}: they overlap or leave a gap",
                    entry.begin
                ),
            ));
        }
        reached = entry.end;
    }
    if reached != data_length {
        return Err(LmError::malformed(
            path,
            format!(
                "the tensors end at byte {reached} of the data, but the file goes on to {data_length}"
            ),
        ));
    }
    Ok(entries)
}

/// An open file with a checked header.
#[derive(Debug)]
pub struct SafetensorsFile {
    path: PathBuf,
    map: FileMap,
    header: Header,
}

impl SafetensorsFile {
    /// Opens a file and checks its header; no tensor is read yet.
    pub fn open(path: &Path) -> Result<Self, LmError> {
        let (mut file, length) = open_regular(path)?;
        let header = Header::read(path, &mut file, length)?;
        let map = FileMap::new(file).map_err(LmError::io(path, "map it"))?;
        Ok(Self { path: path.to_owned(), map, header })
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The tensors by name.
    pub fn entries(&self) -> &BTreeMap<String, Entry> {
        &self.header.entries
    }

    /// Reads `out.len()` values of a tensor from value `first` on, widened to f32, on all threads.
    /// Values that are not finite are an error that names the tensor.
    pub fn read_f32(&self, name: &str, first: usize, out: &mut [f32]) -> Result<(), LmError> {
        let wrong = |problem: String| LmError::tensor(&self.path, name, problem);
        let entry =
            self.header.entries.get(name).ok_or_else(|| wrong("is not in this file".to_owned()))?;
        let dtype = *entry.dtype.as_ref().map_err(|other| {
            wrong(format!("is stored as {other}; only F32, F16 and BF16 can be read"))
        })?;
        if first.checked_add(out.len()).is_none_or(|end| end > entry.values()) {
            return Err(wrong(format!(
                "has {} values; {} from {first} on were asked for",
                entry.values(),
                out.len()
            )));
        }
        let start = self.header.data_start + entry.begin + (first * dtype.size()) as u64;
        let bad = out
            .par_chunks_mut(PIECE)
            .enumerate()
            .map(|(piece, values)| {
                let offset = start + (piece * PIECE * dtype.size()) as u64;
                self.read_piece(dtype, offset, values)?;
                Ok(NonFinite::among(values, first + piece * PIECE))
            })
            .try_reduce(NonFinite::default, |a, b| Ok(a.and(b)));
        self.map.forget();
        bad?.check(&self.path, name, &entry.shape)
    }

    fn read_piece(&self, dtype: Dtype, offset: u64, values: &mut [f32]) -> Result<(), LmError> {
        let start = offset as usize;
        let bytes = self
            .map
            .bytes(start..start + values.len() * dtype.size())
            .map_err(LmError::io(&self.path, "read tensor values"))?;
        dtype.decode(bytes, values);
        Ok(())
    }
}

/// How many values are NaN or infinite, and which is the first.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NonFinite {
    count: usize,
    first: Option<(usize, f32)>,
}

impl NonFinite {
    /// Counts among `values`, whose first has the index `offset` in its tensor.
    pub(crate) fn among(values: &[f32], offset: usize) -> Self {
        // Without the sign bit, bit patterns order like magnitudes, and an integer maximum vectorizes.
        let largest = values.iter().fold(0, |most, v| (v.to_bits() & 0x7fff_ffff).max(most));
        if largest < f32::INFINITY.to_bits() {
            return Self::default();
        }
        let mut bad = values.iter().enumerate().filter(|(_, v)| !v.is_finite());
        let first = bad.next().map(|(index, &value)| (offset + index, value));
        Self { count: usize::from(first.is_some()) + bad.count(), first }
    }

    fn and(self, other: Self) -> Self {
        let first = match (self.first, other.first) {
            (Some(a), Some(b)) => Some(if a.0 <= b.0 { a } else { b }),
            (a, b) => a.or(b),
        };
        Self { count: self.count + other.count, first }
    }

    /// An error when there is any.
    pub(crate) fn check(self, path: &Path, name: &str, shape: &[usize]) -> Result<(), LmError> {
        let Some((index, value)) = self.first else { return Ok(()) };
        let mut place = vec![0; shape.len()];
        let mut rest = index;
        for (at, &size) in place.iter_mut().zip(shape).rev() {
            *at = rest % size.max(1);
            rest /= size.max(1);
        }
        Err(LmError::tensor(
            path,
            name,
            format!(
                "holds {} value(s) that are not finite; the first, {value}, is at {place:?}",
                self.count
            ),
        ))
    }
}
