//! The optimizer's state as safetensors, so that a run continues with the same bytes.

use std::collections::HashMap;
use std::io::Write;

use half::bf16;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Map, Value, json};

use super::layout::Entry;
use super::moments::{BLOCK, Coded, MomentFormat, Moments};
use super::optimizer::Optimizer;
use super::{TrainError, Trainer};

/// Names of the two moments, as PyTorch has them: prefixes of tensors, or of codes and scales.
const MOMENTS: [&str; 2] = ["exp_avg.", "exp_avg_sq."];
/// Metadata keys: the number of steps, and how the moments are kept (f32 where it is missing).
const STEP: &str = "step";
const FORMAT: &str = "moments";

/// A tensor to be written.
struct Part<'a> {
    name: String,
    dtype: &'static str,
    shape: Vec<usize>,
    bytes: &'a [u8],
}

impl Trainer {
    /// Writes the moments and the step count as one safetensors file.
    pub fn write_optimizer_state(&self, out: &mut dyn Write) -> Result<(), TrainError> {
        let format = self.moment_format();
        let mut metadata = Map::new();
        metadata.insert(STEP.to_owned(), json!(self.optimizer.step.to_string()));
        if format != MomentFormat::F32 {
            metadata.insert(FORMAT.to_owned(), json!(format.name()));
        }
        let mut header = Map::new();
        header.insert("__metadata__".to_owned(), Value::Object(metadata));
        let parts = self.parts();
        let mut offset = 0_usize;
        for part in &parts {
            let end = offset + part.bytes.len();
            let entry =
                json!({ "dtype": part.dtype, "shape": part.shape, "data_offsets": [offset, end] });
            header.insert(part.name.clone(), entry);
            offset = end;
        }
        let mut text = Value::Object(header).to_string().into_bytes();
        text.resize(text.len().next_multiple_of(8), b' ');
        out.write_all(&(text.len() as u64).to_le_bytes())?;
        out.write_all(&text)?;
        for part in parts {
            out.write_all(part.bytes)?;
        }
        Ok(())
    }

    /// The tensors of the moments: one per trained tensor, or codes and scales of all of them together, whose blocks
    /// do not end where tensors do.
    fn parts(&self) -> Vec<Part<'_>> {
        let moments = &self.optimizer.moments;
        if moments.len() == 0 {
            return Vec::new();
        }
        let entries = self.trained_entries();
        let mut parts = Vec::new();
        for (index, prefix) in MOMENTS.into_iter().enumerate() {
            let mut named = |dtype| {
                parts.extend(entries.iter().map(|entry| Part {
                    name: format!("{prefix}{}", entry.name),
                    dtype,
                    shape: entry.shape.clone(),
                    bytes: tensor_bytes(moments, index, entry),
                }));
            };
            match moments {
                Moments::F32(_) => named("F32"),
                Moments::Bf16(_) => named("BF16"),
                Moments::Int8(both) => {
                    let Coded { codes, scales } = &both[index];
                    parts.push(Part {
                        name: format!("{prefix}codes"),
                        dtype: "U8",
                        shape: vec![codes.len()],
                        bytes: codes,
                    });
                    parts.push(Part {
                        name: format!("{prefix}scales"),
                        dtype: "F32",
                        shape: vec![scales.len()],
                        bytes: bytemuck::cast_slice(scales),
                    });
                }
            }
        }
        // Values are aligned where the widest lie first.
        parts.sort_by_key(|part| part.dtype == "U8");
        parts
    }

    /// The bytes of [`Self::write_optimizer_state`].
    pub fn optimizer_state(&self) -> Result<Vec<u8>, TrainError> {
        let mut bytes = Vec::new();
        self.write_optimizer_state(&mut bytes)?;
        Ok(bytes)
    }

    /// Takes over a saved state. On an error nothing has changed.
    pub fn load_optimizer_state(&mut self, bytes: &[u8]) -> Result<(), TrainError> {
        let (_, metadata) = SafeTensors::read_metadata(bytes)
            .map_err(|error| fail(format!("not a safetensors file: {error}")))?;
        let tensors = SafeTensors::deserialize(bytes)
            .map_err(|error| fail(format!("not a safetensors file: {error}")))?;
        let metadata: HashMap<String, String> = metadata.metadata().clone().unwrap_or_default();
        let step =
            metadata.get(STEP).ok_or_else(|| fail(format!("the metadata has no `{STEP}`")))?;
        let step: u64 = step
            .parse()
            .map_err(|_| fail(format!("the metadata's `{STEP}` is `{step}`, expected a count")))?;
        let format = self.moment_format();
        let saved = metadata.get(FORMAT).map_or(MomentFormat::F32.name(), String::as_str);
        if saved != format.name() {
            return Err(fail(format!(
                "its moments are kept in {saved}, but this trainer keeps them in {}",
                format.name()
            )));
        }
        let mut moments = Moments::default();
        if !tensors.is_empty() {
            moments = Moments::new(format, self.trained_count());
            read_moments(&tensors, self.trained_entries(), &mut moments)?;
        } else if step > 0 {
            return Err(fail(format!("{step} steps were taken, but the moments are missing")));
        }
        self.optimizer = Optimizer { moments, step };
        Ok(())
    }
}

fn fail(reason: String) -> TrainError {
    TrainError::State(reason)
}

/// The bytes of one tensor's moment.
fn tensor_bytes<'a>(moments: &'a Moments, index: usize, entry: &Entry) -> &'a [u8] {
    match moments {
        Moments::F32(both) => bytemuck::cast_slice(&both[index][entry.range.clone()]),
        Moments::Bf16(both) => bytemuck::cast_slice(&both[index][entry.range.clone()]),
        Moments::Int8(_) => &[],
    }
}

/// Fills moments of the right size.
fn read_moments(
    tensors: &SafeTensors<'_>,
    entries: &[Entry],
    moments: &mut Moments,
) -> Result<(), TrainError> {
    let mut expected = 2 * entries.len();
    for (index, prefix) in MOMENTS.into_iter().enumerate() {
        match moments {
            Moments::F32(both) => {
                for entry in entries {
                    let name = format!("{prefix}{}", entry.name);
                    let data = tensor(tensors, &name, Dtype::F32, &entry.shape)?;
                    read_f32(&name, data, &mut both[index][entry.range.clone()])?;
                }
            }
            Moments::Bf16(both) => {
                for entry in entries {
                    let name = format!("{prefix}{}", entry.name);
                    let data = tensor(tensors, &name, Dtype::BF16, &entry.shape)?;
                    let (words, _) = data.as_chunks::<2>();
                    for (value, word) in both[index][entry.range.clone()].iter_mut().zip(words) {
                        *value = bf16::from_le_bytes(*word);
                        finite(&name, value.to_f32())?;
                    }
                }
            }
            Moments::Int8(both) => {
                expected = 4;
                let Coded { codes, scales } = &mut both[index];
                let (name, shape) = (format!("{prefix}codes"), [codes.len()]);
                codes.copy_from_slice(tensor(tensors, &name, Dtype::U8, &shape)?);
                let (name, shape) = (format!("{prefix}scales"), [codes.len().div_ceil(BLOCK)]);
                read_f32(&name, tensor(tensors, &name, Dtype::F32, &shape)?, scales)?;
            }
        }
    }
    if tensors.len() != expected {
        return Err(fail(format!(
            "{} tensors, expected {expected} for the {} that are trained",
            tensors.len(),
            entries.len()
        )));
    }
    Ok(())
}

/// The bytes of a tensor of the given type and shape.
fn tensor<'a>(
    tensors: &SafeTensors<'a>,
    name: &str,
    dtype: Dtype,
    shape: &[usize],
) -> Result<&'a [u8], TrainError> {
    let tensor = tensors.tensor(name).map_err(|_| fail(format!("tensor `{name}` is missing")))?;
    if tensor.dtype() != dtype || tensor.shape() != shape {
        return Err(fail(format!(
            "tensor `{name}` is {:?} {:?}, expected {dtype:?} {shape:?}",
            tensor.dtype(),
            tensor.shape(),
        )));
    }
    Ok(tensor.data())
}

fn read_f32(name: &str, data: &[u8], out: &mut [f32]) -> Result<(), TrainError> {
    let (words, _) = data.as_chunks::<4>();
    for (value, word) in out.iter_mut().zip(words) {
        *value = f32::from_le_bytes(*word);
        finite(name, *value)?;
    }
    Ok(())
}

fn finite(name: &str, value: f32) -> Result<(), TrainError> {
    if value.is_finite() { Ok(()) } else { Err(fail(format!("tensor `{name}` holds {value}"))) }
}
