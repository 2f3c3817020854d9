//! Opening a model for inference, from a directory or a GGUF file.

use std::path::Path;

use lens_config::schema::WeightsName;
use lens_lm::checkpoint::{Checkpoint, ModelFiles, TensorSource};
use lens_lm::gguf::GgufModel;
use lens_lm::model::{Model, WeightFormat};
use lens_lm::tokenizer::Tokenizer;

use super::model::is_single_file;
use crate::assemble::weight_format;
use crate::failure::Failure;

/// A model that is open but not loaded yet.
pub(crate) struct OpenModel {
    pub(crate) files: ModelFiles,
    pub(crate) tokenizer: Tokenizer,
    source: Box<dyn TensorSource>,
}

impl OpenModel {
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let (files, source): (ModelFiles, Box<dyn TensorSource>) = if is_single_file(path) {
            let model = GgufModel::open(path)?;
            (model.files()?, Box::new(model))
        } else {
            let checkpoint = Checkpoint::open(path)?;
            (checkpoint.files, Box::new(checkpoint.weights))
        };
        let tokenizer = files.tokenizer()?;
        Ok(Self { files, tokenizer, source })
    }

    /// Reads and packs the weights.
    pub(crate) fn load(&self, weights: WeightsName) -> Result<Model, Failure> {
        self.load_as(weight_format(weights))
    }

    /// The same for a format of the engine.
    pub(crate) fn load_as(&self, format: WeightFormat) -> Result<Model, Failure> {
        Ok(Model::load(&self.files.config, &*self.source, format)?)
    }

    /// A token as a person reads it.
    pub(crate) fn token_text(&self, id: u32) -> Result<String, Failure> {
        let text = self.tokenizer.decode(&[id])?;
        // A token may be part of a letter; its spelling in the vocabulary says more than a replacement mark.
        if text.contains('\u{fffd}') || text.is_empty() {
            return Ok(self.tokenizer.token(id).unwrap_or("?").to_owned());
        }
        Ok(text)
    }
}
