//! A small writer of GGUF files, for tests that need particular ones.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::path::{Path, PathBuf};

use lens_lm::config::ModelConfig;

/// A metadata value.
#[derive(Clone)]
pub(crate) enum Meta {
    U32(u32),
    F32(f32),
    Text(&'static str),
    Texts(Vec<String>),
    Floats(Vec<f32>),
    Ints(Vec<i32>),
}

/// A file in the making. Tensors are f32.
#[derive(Clone, Default)]
pub(crate) struct Gguf {
    pub(crate) metadata: Vec<(String, Meta)>,
    pub(crate) tensors: Vec<(String, Vec<usize>, Vec<f32>)>,
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

impl Meta {
    fn write(&self, out: &mut Vec<u8>) {
        let array = |out: &mut Vec<u8>, kind: u32, count: usize| {
            out.extend(9_u32.to_le_bytes());
            out.extend(kind.to_le_bytes());
            out.extend((count as u64).to_le_bytes());
        };
        match self {
            Self::U32(value) => {
                out.extend(4_u32.to_le_bytes());
                out.extend(value.to_le_bytes());
            }
            Self::F32(value) => {
                out.extend(6_u32.to_le_bytes());
                out.extend(value.to_le_bytes());
            }
            Self::Text(value) => {
                out.extend(8_u32.to_le_bytes());
                text(out, value);
            }
            Self::Texts(values) => {
                array(out, 8, values.len());
                for value in values {
                    text(out, value);
                }
            }
            Self::Floats(values) => {
                array(out, 6, values.len());
                out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            }
            Self::Ints(values) => {
                array(out, 5, values.len());
                out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            }
        }
    }
}

impl Gguf {
    /// A model of the given shape whose tensor values count upwards from tensor to tensor.
    pub(crate) fn model(architecture: &'static str, config: &ModelConfig) -> Self {
        let mut gguf = Self::default();
        gguf.set("general.architecture", Meta::Text(architecture));
        for (name, value) in [
            ("block_count", config.layers),
            ("context_length", config.max_position),
            ("embedding_length", config.hidden_size),
            ("feed_forward_length", config.intermediate_size),
            ("attention.head_count", config.heads),
            ("attention.head_count_kv", config.kv_heads),
            ("attention.key_length", config.head_dim),
        ] {
            gguf.set(&format!("{architecture}.{name}"), Meta::U32(value as u32));
        }
        gguf.set(
            &format!("{architecture}.attention.layer_norm_rms_epsilon"),
            Meta::F32(config.rms_norm_eps),
        );
        gguf.set(&format!("{architecture}.rope.freq_base"), Meta::F32(config.rope_theta as f32));
        for (number, (name, shape)) in config.parameter_shapes().into_iter().enumerate() {
            let values =
                (0..shape.iter().product()).map(|i| number as f32 + i as f32 / 4096.0).collect();
            gguf.tensors.push((name_in_file(&name), shape, values));
        }
        gguf
    }

    /// Sets or replaces a metadata value.
    pub(crate) fn set(&mut self, key: &str, value: Meta) {
        self.metadata.retain(|(known, _)| known != key);
        self.metadata.push((key.to_owned(), value));
    }

    /// The file.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(3_u32.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            text(&mut out, key);
            value.write(&mut out);
        }
        let mut offset = 0_u64;
        for (name, shape, values) in &self.tensors {
            text(&mut out, name);
            out.extend((shape.len() as u32).to_le_bytes());
            out.extend(shape.iter().rev().flat_map(|&size| (size as u64).to_le_bytes()));
            out.extend(0_u32.to_le_bytes());
            out.extend(offset.to_le_bytes());
            offset += (values.len() as u64 * 4).next_multiple_of(32);
        }
        for (_, _, values) in &self.tensors {
            out.resize(out.len().next_multiple_of(32), 0);
            out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        }
        out.resize(out.len().next_multiple_of(32), 0);
        out
    }

    /// Writes the file into a folder.
    pub(crate) fn write(&self, folder: &Path) -> PathBuf {
        let path = folder.join("model.gguf");
        std::fs::write(&path, self.bytes()).expect("written");
        path
    }
}

fn name_in_file(name: &str) -> String {
    let mut name = name.to_owned();
    for (theirs, ours) in [
        ("model.embed_tokens", "token_embd"),
        ("model.norm", "output_norm"),
        ("lm_head", "output"),
        ("model.layers", "blk"),
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "ffn_norm"),
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
