//! Models on the disk: Hugging Face directories, read and written.
//!
//! [`Checkpoint::open`] reads the small files and the headers of the weights and checks that they fit together; weights
//! are read after that, whole ([`Checkpoint::read_parameters`]) or in pieces ([`TensorSource::read_values`]), so that a
//! model that does not fit is refused before memory is spent on it.

mod adapter;
mod companions;
mod dtype;
mod files;
pub mod hf_config;
pub mod safetensors;
mod save;
mod weights;
pub(crate) mod write;

use std::path::{Path, PathBuf};

pub use adapter::{read_adapter, save_adapter};
pub use companions::{Companions, GenerationConfig};
pub use dtype::Dtype;
pub use files::ModelFiles;
pub use hf_config::ModelTokens;
pub use save::{SaveOptions, save};
pub use weights::Weights;

use half::slice::HalfFloatSliceExt;

use crate::error::LmError;
use crate::tensor::{Parameters, Tensor};
use crate::train::OwnedValues;
use safetensors::Entry;

/// Values read at a time where they are kept in 16 bits.
const PIECE: usize = 1 << 22;

/// Something that can hand out a model's tensors under their Hugging Face names, in pieces, as f32.
pub trait TensorSource {
    /// The shape of tensor `name`, if there is such a tensor.
    fn shape(&self, name: &str) -> Option<Vec<usize>>;

    /// Fills `out` with the values of tensor `name` from value `first` on.
    fn read_values(&self, name: &str, first: usize, out: &mut [f32]) -> Result<(), LmError>;
}

impl TensorSource for Parameters {
    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        self.get(name).map(|tensor| tensor.shape.clone())
    }

    fn read_values(&self, name: &str, first: usize, out: &mut [f32]) -> Result<(), LmError> {
        let memory = Path::new("(memory)");
        let tensor =
            self.get(name).ok_or_else(|| LmError::tensor(memory, name, "is not in the model"))?;
        let range = first.checked_add(out.len()).and_then(|end| tensor.data.get(first..end));
        let values = range.ok_or_else(|| {
            LmError::tensor(
                memory,
                name,
                format!(
                    "has {} values; {} from {first} on were asked for",
                    tensor.len(),
                    out.len()
                ),
            )
        })?;
        out.copy_from_slice(values);
        Ok(())
    }
}

/// An open model directory.
#[derive(Debug)]
pub struct Checkpoint {
    /// Where it is.
    pub directory: PathBuf,
    /// The shape and the small files.
    pub files: ModelFiles,
    /// The weight files, headers checked against the shape.
    pub weights: Weights,
}

impl Checkpoint {
    /// Opens a directory. Reads no weights, but knows afterwards that all of them are there with the right shapes.
    pub fn open(directory: &Path) -> Result<Self, LmError> {
        let files = ModelFiles::read(directory)?;
        let weights = Weights::open(directory)?;
        weights.check(&files.config)?;
        Ok(Self { directory: directory.to_owned(), files, weights })
    }

    /// Reads one tensor, widened to f32. Values that are not finite are an error.
    pub fn read_tensor(&self, name: &str) -> Result<Tensor, LmError> {
        let entry = self
            .weights
            .entry(name)
            .ok_or_else(|| LmError::tensor(&self.directory, name, "is not in the weight files"))?;
        let mut tensor = Tensor::zeros(&entry.shape);
        self.weights.read_f32(name, 0, &mut tensor.data)?;
        Ok(tensor)
    }

    /// Reads one matrix for products, in bf16 where it is stored so, which loses nothing, else in f32.
    pub fn read_matrix(&self, name: &str) -> Result<OwnedValues, LmError> {
        let stored = self.weights.entry(name).map(|entry| entry.dtype.clone());
        if stored != Some(Ok(Dtype::Bf16)) {
            return Ok(OwnedValues::F32(self.read_tensor(name)?.data));
        }
        let count = self.weights.entry(name).map_or(0, Entry::values);
        let mut values = vec![half::bf16::ZERO; count];
        let mut piece = vec![0.0; PIECE.min(count)];
        for (index, out) in values.chunks_mut(PIECE).enumerate() {
            let piece = &mut piece[..out.len()];
            self.weights.read_f32(name, index * PIECE, piece)?;
            out.convert_from_f32_slice(piece);
        }
        Ok(OwnedValues::Bf16(values))
    }

    /// Reads every parameter, widened to f32.
    pub fn read_parameters(&self) -> Result<Parameters, LmError> {
        self.files
            .config
            .parameter_shapes()
            .into_keys()
            .map(|name| self.read_tensor(&name).map(|tensor| (name, tensor)))
            .collect()
    }
}
