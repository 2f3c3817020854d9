//! The optimizer's state as safetensors, so that a run continues with the same bytes.

use std::collections::HashMap;
use std::io::Write;

use safetensors::{Dtype, SafeTensors};
use serde_json::{Map, Value, json};

use super::optimizer::Moments;
use super::{TrainError, Trainer};

/// Prefixes of the two moments' tensors, as PyTorch names them.
const FIRST: &str = "exp_avg.";
const SECOND: &str = "exp_avg_sq.";
/// Metadata key of the number of steps.
const STEP: &str = "step";

impl Trainer {
    /// Writes the moments and the step count as one safetensors file.
    pub fn write_optimizer_state(&self, out: &mut dyn Write) -> Result<(), TrainError> {
        let mut header = Map::new();
        header.insert("__metadata__".to_owned(), json!({ STEP: self.moments.step.to_string() }));
        let halves = [(FIRST, &self.moments.first), (SECOND, &self.moments.second)];
        let mut offset = 0_usize;
        for (prefix, flat) in halves {
            for entry in self.layout().entries.iter().filter(|_| !flat.is_empty()) {
                let end = offset + entry.range.len() * size_of::<f32>();
                let tensor =
                    json!({ "dtype": "F32", "shape": entry.shape, "data_offsets": [offset, end] });
                header.insert(format!("{prefix}{}", entry.name), tensor);
                offset = end;
            }
        }
        let mut text = Value::Object(header).to_string().into_bytes();
        text.resize(text.len().next_multiple_of(8), b' ');
        out.write_all(&(text.len() as u64).to_le_bytes())?;
        out.write_all(&text)?;
        for (_, flat) in halves {
            for chunk in flat.chunks(1 << 16) {
                let bytes: Vec<u8> = chunk.iter().flat_map(|value| value.to_le_bytes()).collect();
                out.write_all(&bytes)?;
            }
        }
        Ok(())
    }

    /// The bytes of [`Self::write_optimizer_state`].
    pub fn optimizer_state(&self) -> Result<Vec<u8>, TrainError> {
        let mut bytes = Vec::new();
        self.write_optimizer_state(&mut bytes)?;
        Ok(bytes)
    }

    /// Takes over a saved state. On an error nothing has changed.
    pub fn load_optimizer_state(&mut self, bytes: &[u8]) -> Result<(), TrainError> {
        let fail = |reason: String| TrainError::State(reason);
        let (_, metadata) = SafeTensors::read_metadata(bytes)
            .map_err(|error| fail(format!("not a safetensors file: {error}")))?;
        let tensors = SafeTensors::deserialize(bytes)
            .map_err(|error| fail(format!("not a safetensors file: {error}")))?;
        let step = metadata
            .metadata()
            .as_ref()
            .and_then(|entries: &HashMap<String, String>| entries.get(STEP))
            .ok_or_else(|| fail(format!("the metadata has no `{STEP}`")))?;
        let step: u64 = step
            .parse()
            .map_err(|_| fail(format!("the metadata's `{STEP}` is `{step}`, expected a count")))?;
        let mut moments = Moments { step, ..Moments::default() };
        let entries = &self.layout().entries;
        if tensors.is_empty() {
            if step > 0 {
                return Err(fail(format!("{step} steps were taken, but the moments are missing")));
            }
        } else {
            moments.allocate(self.layout().total);
            for (prefix, flat) in [(FIRST, &mut moments.first), (SECOND, &mut moments.second)] {
                for entry in entries {
                    let name = format!("{prefix}{}", entry.name);
                    let tensor = tensors
                        .tensor(&name)
                        .map_err(|_| fail(format!("tensor `{name}` is missing")))?;
                    if tensor.dtype() != Dtype::F32 || tensor.shape() != entry.shape {
                        return Err(fail(format!(
                            "tensor `{name}` is {:?} {:?}, expected F32 {:?}",
                            tensor.dtype(),
                            tensor.shape(),
                            entry.shape
                        )));
                    }
                    let (words, _) = tensor.data().as_chunks::<4>();
                    for (value, word) in flat[entry.range.clone()].iter_mut().zip(words) {
                        *value = f32::from_le_bytes(*word);
                        if !value.is_finite() {
                            return Err(fail(format!("tensor `{name}` holds {value}")));
                        }
                    }
                }
            }
            if tensors.len() != 2 * entries.len() {
                return Err(fail(format!(
                    "{} tensors, expected two for each of the {} parameters",
                    tensors.len(),
                    entries.len()
                )));
            }
        }
        self.moments = moments;
        Ok(())
    }
}
