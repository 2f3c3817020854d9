//! A GGUF file seen as a Hugging Face model: its shape, its tensors under their usual names, its tokenizer.

use std::collections::BTreeMap;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::blocks::BlockType;
use super::header::{Header, TensorInfo};
use super::metadata::{self, Metadata};
use super::tokenizer;
use crate::checkpoint::{Companions, Dtype, ModelFiles, ModelTokens, TensorSource};
use crate::config::{Family, ModelConfig};
use crate::error::LmError;
use crate::file::open_regular;
use crate::kernels::map::FileMap;

/// Rows compared to tell whether two matrices are one.
const COMPARED_ROWS: usize = 64;
/// Two quantizations of one matrix differ by a few percent, two trained matrices by more than their own size.
const SAME_MATRIX: f64 = 0.25;

/// An open GGUF file whose header was checked against the model it describes.
#[derive(Debug)]
pub struct GgufModel {
    path: PathBuf,
    map: FileMap,
    header: Header,
    config: ModelConfig,
    /// Hugging Face name to name in the file.
    names: BTreeMap<String, String>,
}

impl GgufModel {
    /// Opens a file; reads the header and a few rows, not the weights.
    pub fn open(path: &Path) -> Result<Self, LmError> {
        let (file, length) = open_regular(path)?;
        let header = Header::read(path, &mut BufReader::new(&file), length)?;
        let tied = !header.tensors.contains_key("output.weight");
        let mut model = Self {
            path: path.to_owned(),
            map: FileMap::new(file).map_err(LmError::io(path, "map it"))?,
            config: metadata::config(&Metadata { path, header: &header }, None, tied)?,
            header,
            names: BTreeMap::new(),
        };
        let factors = model.rope_factors()?;
        let tied = tied || model.head_is_embedding()?;
        let metadata = Metadata { path, header: &model.header };
        model.config = metadata::config(&metadata, factors.as_deref(), tied)?;
        model.names = model.match_names()?;
        Ok(model)
    }

    /// The model's shape.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The metadata and the tensors as they are in the file.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The smallest plain type that stores every weight without loss; f32 for quantized files.
    pub fn lossless_dtype(&self) -> Dtype {
        let matrices = || self.header.tensors.values().filter(|tensor| tensor.shape.len() > 1);
        if matrices().all(|tensor| tensor.kind == Ok(BlockType::BF16)) {
            Dtype::Bf16
        } else if matrices().all(|tensor| tensor.kind == Ok(BlockType::F16)) {
            Dtype::F16
        } else {
            Dtype::F32
        }
    }

    /// The small files of the directory this model becomes: configuration, and the tokenizer that is inside.
    pub fn files(&self) -> Result<ModelFiles, LmError> {
        let metadata = Metadata { path: &self.path, header: &self.header };
        let companions = tokenizer::companions(&metadata)?;
        Ok(self.files_with(companions))
    }

    /// The small files with a tokenizer from elsewhere.
    pub fn files_with(&self, companions: Companions) -> ModelFiles {
        let metadata = Metadata { path: &self.path, header: &self.header };
        let id =
            |name: &str| metadata.id(&format!("tokenizer.ggml.{name}_token_id")).ok().flatten();
        let tokens = ModelTokens { bos: id("bos"), eos: id("eos"), pad: id("padding") };
        ModelFiles::new(self.config.clone(), &tokens, companions)
    }

    /// Pairs every parameter of the model with a tensor of the file, and every tensor with a parameter.
    fn match_names(&self) -> Result<BTreeMap<String, String>, LmError> {
        let mut names = BTreeMap::new();
        for (name, shape) in self.config.parameter_shapes() {
            let in_file = self.name_in_file(&name);
            let Some(info) = self.header.tensors.get(&in_file) else {
                return Err(LmError::tensor(
                    &self.path,
                    &in_file,
                    "is missing: the metadata describe a model that has it",
                ));
            };
            if info.shape != shape {
                return Err(LmError::tensor(
                    &self.path,
                    &in_file,
                    format!("has the shape {:?}; the metadata ask for {shape:?}", info.shape),
                ));
            }
            if let Err(number) = info.kind {
                return Err(LmError::tensor(
                    &self.path,
                    &in_file,
                    format!(
                        "is stored in the form number {number}; F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, \
                         Q5_K and Q6_K can be read"
                    ),
                ));
            }
            names.insert(name, in_file);
        }
        let known = |name: &String| {
            names.values().any(|used| used == name)
                || name == "rope_freqs.weight"
                || (self.config.tied_head && name == "token_embd.weight")
        };
        if let Some(stray) = self.header.tensors.keys().find(|name| !known(name)) {
            return Err(LmError::tensor(
                &self.path,
                stray,
                "has no place in the model the metadata describe; leaving it out would change the results",
            ));
        }
        Ok(names)
    }

    fn name_in_file(&self, name: &str) -> String {
        let whole = match name {
            // A tied matrix that is stored twice is stored better as the head.
            "model.embed_tokens.weight"
                if self.config.tied_head && self.header.tensors.contains_key("output.weight") =>
            {
                "output.weight"
            }
            "model.embed_tokens.weight" => "token_embd.weight",
            "model.norm.weight" => "output_norm.weight",
            "lm_head.weight" => "output.weight",
            _ => "",
        };
        if !whole.is_empty() {
            return whole.to_owned();
        }
        let mut name = name.replacen("model.layers.", "blk.", 1);
        for (theirs, ours) in [
            ("post_attention_layernorm", "ffn_norm"),
            ("input_layernorm", "attn_norm"),
            ("self_attn.q_proj", "attn_q"),
            ("self_attn.k_proj", "attn_k"),
            ("self_attn.v_proj", "attn_v"),
            ("self_attn.o_proj", "attn_output"),
            ("self_attn.q_norm", "attn_q_norm"),
            ("self_attn.k_norm", "attn_k_norm"),
            ("mlp.gate_proj", "ffn_gate"),
            ("mlp.up_proj", "ffn_up"),
            ("mlp.down_proj", "ffn_down"),
        ] {
            name = name.replacen(theirs, ours, 1);
        }
        name
    }

    fn rope_factors(&self) -> Result<Option<Vec<f32>>, LmError> {
        let name = "rope_freqs.weight";
        let Some(info) = self.header.tensors.get(name) else { return Ok(None) };
        if info.shape != [self.config.head_dim / 2] {
            return Err(LmError::tensor(
                &self.path,
                name,
                format!("has the shape {:?}", info.shape),
            ));
        }
        let mut factors = vec![0.0; self.config.head_dim / 2];
        self.read_stored(name, info, 0, &mut factors)?;
        Ok(Some(factors))
    }

    /// Whether `output.weight` and `token_embd.weight` are two quantizations of one matrix.
    fn head_is_embedding(&self) -> Result<bool, LmError> {
        let tensors = &self.header.tensors;
        let (Some(head), Some(embedding)) =
            (tensors.get("output.weight"), tensors.get("token_embd.weight"))
        else {
            return Ok(false);
        };
        let [rows, width] = head.shape[..] else { return Ok(false) };
        if embedding.shape != head.shape {
            return Ok(false);
        }
        let (mut left, mut right) = (vec![0.0; width], vec![0.0; width]);
        let (mut difference, mut size) = (0.0, 0.0);
        for row in (0..rows).step_by(rows.div_ceil(COMPARED_ROWS).max(1)) {
            self.read_stored("output.weight", head, row * width, &mut left)?;
            self.read_stored("token_embd.weight", embedding, row * width, &mut right)?;
            for (&a, &b) in left.iter().zip(&right) {
                difference += f64::from(a - b).powi(2);
                size += f64::from(a).powi(2);
            }
        }
        Ok(difference <= size * SAME_MATRIX.powi(2))
    }

    /// Reads values as they are in the file, from value `first` on.
    fn read_stored(
        &self,
        name: &str,
        info: &TensorInfo,
        first: usize,
        out: &mut [f32],
    ) -> Result<(), LmError> {
        let kind = info.kind.map_err(|number| {
            LmError::tensor(
                &self.path,
                name,
                format!("is stored in the unknown form number {number}"),
            )
        })?;
        let count: usize = info.shape.iter().product();
        let Some(end) = first.checked_add(out.len()).filter(|&end| end <= count) else {
            let problem =
                format!("has {count} values; {} from {first} on were asked for", out.len());
            return Err(LmError::tensor(&self.path, name, problem));
        };
        let blocks = first / kind.values()..end.div_ceil(kind.values());
        let start = info.offset as usize + blocks.start * kind.bytes();
        let skip = first - blocks.start * kind.values();
        let bytes = self
            .map
            .bytes(start..start + blocks.len() * kind.bytes())
            .map_err(LmError::io(&self.path, "read tensor values"))?;
        if skip == 0 && blocks.len() * kind.values() == out.len() {
            kind.decode(bytes, out);
        } else {
            let mut whole = vec![0.0; blocks.len() * kind.values()];
            kind.decode(bytes, &mut whole);
            out.copy_from_slice(&whole[skip..skip + out.len()]);
        }
        Ok(())
    }

    /// Llama files keep the two rotary halves of a head interleaved: which row of the file is row `row` of the model.
    fn stored_row(&self, row: usize) -> usize {
        let (head, inside) = (row / self.config.head_dim, row % self.config.head_dim);
        let half = self.config.head_dim / 2;
        head * self.config.head_dim + 2 * (inside % half) + inside / half
    }
}

impl TensorSource for GgufModel {
    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        self.names.get(name).map(|in_file| self.header.tensors[in_file].shape.clone())
    }

    fn read_values(&self, name: &str, first: usize, out: &mut [f32]) -> Result<(), LmError> {
        let Some(in_file) = self.names.get(name) else {
            return Err(LmError::tensor(&self.path, name, "is not in this file"));
        };
        let info = &self.header.tensors[in_file];
        let interleaved = self.config.family == Family::Llama
            && (name.ends_with("q_proj.weight") || name.ends_with("k_proj.weight"));
        let width = info.shape.last().copied().unwrap_or(1).max(1);
        // Pieces end where rows end, so each is inside one row.
        let mut pieces = Vec::new();
        let (mut rest, mut at) = (out, first);
        while !rest.is_empty() {
            let (row, column) = (at / width, at % width);
            let (piece, behind) = rest.split_at_mut((width - column).min(rest.len()));
            let row = if interleaved { self.stored_row(row) } else { row };
            at += piece.len();
            pieces.push((row * width + column, piece));
            rest = behind;
        }
        let read = pieces
            .into_par_iter()
            .with_min_len((1 << 16) / width + 1)
            .try_for_each(|(start, piece)| self.read_stored(in_file, info, start, piece));
        self.map.forget();
        read
    }
}
