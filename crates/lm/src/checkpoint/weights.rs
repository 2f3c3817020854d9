//! The weights of a Hugging Face directory: one file or several with an index, checked against the model's shape.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::TensorSource;
use super::companions::MAX_FILE;
use super::dtype::Dtype;
use super::safetensors::{Entry, SafetensorsFile};
use crate::config::ModelConfig;
use crate::error::LmError;
use crate::file::read_limited;

/// The file name of unsharded weights.
pub(crate) const SINGLE: &str = "model.safetensors";
/// The file name of the index of sharded weights.
pub(crate) const INDEX: &str = "model.safetensors.index.json";

/// Open weight files and where each tensor is.
#[derive(Debug)]
pub struct Weights {
    directory: PathBuf,
    files: Vec<SafetensorsFile>,
    place: BTreeMap<String, usize>,
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl Weights {
    /// Opens the weight files of a directory and checks their headers; no tensor is read yet.
    pub fn open(directory: &Path) -> Result<Self, LmError> {
        let single = directory.join(SINGLE);
        if single.is_file() {
            let file = SafetensorsFile::open(&single)?;
            let place = file.entries().keys().map(|name| (name.clone(), 0)).collect();
            return Ok(Self { directory: directory.to_owned(), files: vec![file], place });
        }
        let index = directory.join(INDEX);
        if index.is_file() {
            return Self::open_sharded(directory, &index);
        }
        let pickled = ["pytorch_model.bin", "pytorch_model.bin.index.json"]
            .iter()
            .any(|name| directory.join(name).is_file());
        let hint = if pickled {
            "there are only pickled PyTorch weights here, which can run code when loaded; save the model again with \
             `save_pretrained(..., safe_serialization=True)`"
        } else {
            "a model directory holds model.safetensors, or model.safetensors.index.json with its shards"
        };
        Err(LmError::Missing { path: single, hint: hint.to_owned() })
    }

    fn open_sharded(directory: &Path, index_path: &Path) -> Result<Self, LmError> {
        let text = read_limited(index_path, MAX_FILE)?;
        let Index { weight_map } = serde_json::from_slice(&text).map_err(|error| {
            LmError::malformed(index_path, format!("not an index of weights: {error}"))
        })?;
        let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
        let mut files = Vec::new();
        for name in weight_map.values() {
            if numbers.contains_key(name.as_str()) {
                continue;
            }
            if Path::new(name).file_name() != Some(name.as_ref()) {
                return Err(LmError::malformed(
                    index_path,
                    format!(
                        "names the shard `{name}`; shards are plain file names beside the index"
                    ),
                ));
            }
            numbers.insert(name, files.len());
            files.push(SafetensorsFile::open(&directory.join(name))?);
        }
        let mut place = BTreeMap::new();
        for (tensor, shard) in &weight_map {
            let number = numbers[shard.as_str()];
            if !files[number].entries().contains_key(tensor) {
                return Err(LmError::tensor(
                    files[number].path(),
                    tensor,
                    format!("is not in this file, although {INDEX} says so"),
                ));
            }
            place.insert(tensor.clone(), number);
        }
        for (number, file) in files.iter().enumerate() {
            if let Some(stray) =
                file.entries().keys().find(|name| place.get(*name) != Some(&number))
            {
                return Err(LmError::tensor(
                    file.path(),
                    stray,
                    format!("is in this file, but {INDEX} places it elsewhere or not at all"),
                ));
            }
        }
        Ok(Self { directory: directory.to_owned(), files, place })
    }

    /// The tensors in the order of their names: name, stored form, file.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &Entry, &Path)> {
        self.place.iter().map(|(name, &number)| {
            let file = &self.files[number];
            (name.as_str(), &file.entries()[name], file.path())
        })
    }

    /// The number of weight files.
    pub fn file_count(&self) -> usize {
        self.files.len()
    }

    /// The stored form of one tensor.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.place.get(name).map(|&number| &self.files[number].entries()[name])
    }

    /// The type most of the model's bytes are stored in.
    pub fn main_dtype(&self) -> Dtype {
        let mut bytes: BTreeMap<Dtype, u64> = BTreeMap::new();
        for (_, entry, _) in self.tensors() {
            if let Ok(dtype) = entry.dtype {
                *bytes.entry(dtype).or_default() += entry.end - entry.begin;
            }
        }
        bytes.into_iter().max_by_key(|&(_, bytes)| bytes).map_or(Dtype::F32, |(dtype, _)| dtype)
    }

    /// Checks that the files hold exactly the tensors `config` asks for, each with its shape and a type we read.
    pub fn check(&self, config: &ModelConfig) -> Result<(), LmError> {
        let shapes = config.parameter_shapes();
        for (name, shape) in &shapes {
            let Some(&number) = self.place.get(name) else {
                return Err(LmError::tensor(
                    &self.directory,
                    name,
                    "is missing: config.json describes a model that has it",
                ));
            };
            let file = &self.files[number];
            let entry = &file.entries()[name];
            if &entry.shape != shape {
                return Err(LmError::tensor(
                    file.path(),
                    name,
                    format!("has the shape {:?}; config.json asks for {shape:?}", entry.shape),
                ));
            }
            if let Err(other) = &entry.dtype {
                return Err(LmError::tensor(
                    file.path(),
                    name,
                    format!("is stored as {other}; only F32, F16 and BF16 can be read"),
                ));
            }
        }
        for (name, _, path) in self.tensors() {
            if !shapes.contains_key(name) && !is_redundant(name, config) {
                return Err(LmError::tensor(
                    path,
                    name,
                    "has no place in the model config.json describes; leaving it out would change the results",
                ));
            }
        }
        Ok(())
    }

    /// Reads `out.len()` values of a tensor from value `first` on, widened to f32.
    pub fn read_f32(&self, name: &str, first: usize, out: &mut [f32]) -> Result<(), LmError> {
        let Some(&number) = self.place.get(name) else {
            return Err(LmError::tensor(&self.directory, name, "is not in the weight files"));
        };
        self.files[number].read_f32(name, first, out)
    }
}

impl TensorSource for Weights {
    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        self.entry(name).map(|entry| entry.shape.clone())
    }

    fn read_values(&self, name: &str, first: usize, out: &mut [f32]) -> Result<(), LmError> {
        self.read_f32(name, first, out)
    }
}

/// Tensors that some writers store although they follow from the rest.
fn is_redundant(name: &str, config: &ModelConfig) -> bool {
    name.ends_with(".rotary_emb.inv_freq") || (config.tied_head && name == "lm_head.weight")
}
