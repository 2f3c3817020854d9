//! Writing a model directory that `transformers` and vLLM load unmodified.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::TensorSource;
use super::dtype::Dtype;
use super::files::ModelFiles;
use super::safetensors::NonFinite;
use super::weights::{INDEX, SINGLE};
use super::write;
use crate::error::LmError;
use crate::tensor::Parameters;

/// Values converted at a time.
const PIECE: usize = 1 << 20;

/// How to write the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SaveOptions {
    /// The stored type.
    pub dtype: Dtype,
    /// Weight files grow up to this many bytes of tensors; more makes several files and an index.
    pub shard_limit: u64,
}

impl SaveOptions {
    /// The given type, and files of up to 5 GB as Hugging Face writes them.
    pub fn new(dtype: Dtype) -> Self {
        Self { dtype, shard_limit: 5_000_000_000 }
    }
}

/// One tensor to be written: name, shape, bytes.
struct Planned {
    name: String,
    shape: Vec<usize>,
    bytes: u64,
}

/// Writes `files` and the tensors of `source` to `directory`. A directory that does not exist yet appears complete or
/// not at all; in an existing one each file is replaced whole and weight files of another layout are removed last.
pub fn save(
    directory: &Path,
    files: &ModelFiles,
    source: &dyn TensorSource,
    options: &SaveOptions,
) -> Result<(), LmError> {
    write::fill_directory(directory, |inside| {
        for (name, bytes) in &files.companions.files {
            write::write_file(&inside.join(name), bytes)?;
        }
        let config = config_json(files, options.dtype);
        write::write_file(&inside.join("config.json"), pretty(&Value::Object(config)).as_bytes())?;
        let written = write_weights(inside, files, source, options)?;
        remove_outdated(inside, &written)
    })
}

/// The model's own `config.json` with the stored type brought up to date.
fn config_json(files: &ModelFiles, dtype: Dtype) -> Map<String, Value> {
    let mut object = files.config_json.clone();
    let key = if object.contains_key("dtype") { "dtype" } else { "torch_dtype" };
    object.insert(key.to_owned(), json!(dtype.torch_name()));
    object
}

fn write_weights(
    directory: &Path,
    files: &ModelFiles,
    source: &dyn TensorSource,
    options: &SaveOptions,
) -> Result<Vec<String>, LmError> {
    let mut shards: Vec<Vec<Planned>> = vec![Vec::new()];
    let (mut in_shard, mut total) = (0_u64, 0_u64);
    for (name, shape) in files.config.parameter_shapes() {
        let given = source.shape(&name);
        if given.as_ref() != Some(&shape) {
            let given =
                given.map_or("is not there".to_owned(), |given| format!("has the shape {given:?}"));
            let problem = format!("{given}; the model's configuration asks for {shape:?}");
            return Err(LmError::tensor(directory, &name, problem));
        }
        let bytes = (shape.iter().product::<usize>() * options.dtype.size()) as u64;
        if in_shard > 0 && in_shard + bytes > options.shard_limit {
            shards.push(Vec::new());
            in_shard = 0;
        }
        in_shard += bytes;
        total += bytes;
        if let Some(shard) = shards.last_mut() {
            shard.push(Planned { name, shape, bytes });
        }
    }
    if let [only] = shards.as_slice() {
        write_shard(&directory.join(SINGLE), only, source, options.dtype)?;
        return Ok(vec![SINGLE.to_owned()]);
    }
    let mut written = Vec::new();
    let mut weight_map = BTreeMap::new();
    for (number, shard) in shards.iter().enumerate() {
        let name = format!("model-{:05}-of-{:05}.safetensors", number + 1, shards.len());
        write_shard(&directory.join(&name), shard, source, options.dtype)?;
        weight_map.extend(shard.iter().map(|tensor| (tensor.name.as_str(), name.clone())));
        written.push(name);
    }
    let index = json!({"metadata": {"total_size": total}, "weight_map": weight_map});
    write::write_file(&directory.join(INDEX), pretty(&index).as_bytes())?;
    written.push(INDEX.to_owned());
    Ok(written)
}

/// Writes all tensors of a map as one file.
pub(super) fn write_tensors(
    path: &Path,
    tensors: &Parameters,
    dtype: Dtype,
) -> Result<(), LmError> {
    let planned: Vec<Planned> = tensors
        .iter()
        .map(|(name, tensor)| Planned {
            name: name.clone(),
            shape: tensor.shape.clone(),
            bytes: (tensor.len() * dtype.size()) as u64,
        })
        .collect();
    write_shard(path, &planned, tensors, dtype)
}

fn write_shard(
    path: &Path,
    tensors: &[Planned],
    source: &dyn TensorSource,
    dtype: Dtype,
) -> Result<(), LmError> {
    let mut header = Map::new();
    // `transformers` refuses files that do not say which framework's layout they follow.
    header.insert("__metadata__".to_owned(), json!({"format": "pt"}));
    let mut offset = 0;
    for tensor in tensors {
        let entry = json!({
            "dtype": dtype.safetensors_name(),
            "shape": tensor.shape,
            "data_offsets": [offset, offset + tensor.bytes],
        });
        header.insert(tensor.name.clone(), entry);
        offset += tensor.bytes;
    }
    let mut header = Value::Object(header).to_string().into_bytes();
    // Readers that map the file want the values aligned.
    header.resize(header.len().next_multiple_of(8), b' ');

    let mut file = write::PartialFile::create(path)?;
    file.write(&(header.len() as u64).to_le_bytes())?;
    file.write(&header)?;
    let mut values = Vec::new();
    let mut bytes = Vec::new();
    for tensor in tensors {
        let count: usize = tensor.shape.iter().product();
        for first in (0..count).step_by(PIECE) {
            values.resize(PIECE.min(count - first), 0.0);
            source.read_values(&tensor.name, first, &mut values)?;
            check_values(path, tensor, first, &values, dtype)?;
            bytes.clear();
            dtype.encode(&values, &mut bytes);
            file.write(&bytes)?;
        }
    }
    file.finish()
}

/// Refuses values that are not finite, or would not be once stored.
fn check_values(
    path: &Path,
    tensor: &Planned,
    first: usize,
    values: &[f32],
    dtype: Dtype,
) -> Result<(), LmError> {
    NonFinite::among(values, first).check(path, &tensor.name, &tensor.shape)?;
    let largest = values.iter().fold(0.0_f32, |most, v| most.max(v.abs()));
    if largest > dtype.largest() {
        return Err(LmError::tensor(
            path,
            &tensor.name,
            format!("holds {largest:e}, which {dtype} cannot store; choose another type"),
        ));
    }
    Ok(())
}

/// Removes weight files of an earlier save with another layout.
fn remove_outdated(directory: &Path, written: &[String]) -> Result<(), LmError> {
    let listing = std::fs::read_dir(directory).map_err(LmError::io(directory, "list it"))?;
    for entry in listing {
        let entry = entry.map_err(LmError::io(directory, "list it"))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let weights = name == SINGLE
            || name == INDEX
            || (name.starts_with("model-") && name.ends_with(".safetensors"));
        if weights && !written.contains(&name) {
            write::remove_stale(&entry.path())?;
        }
    }
    Ok(())
}

/// Two spaces of indentation and a final newline, as Hugging Face writes JSON.
pub(super) fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}
