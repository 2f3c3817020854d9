//! Bodies of the worker's protocol: safetensors with settings in their metadata.

use std::collections::HashMap;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use crate::error::EngineError;

/// A body on its way out.
#[derive(Default)]
pub(super) struct Body {
    tensors: Vec<(&'static str, Dtype, Vec<usize>, Vec<u8>)>,
    metadata: HashMap<String, String>,
}

impl Body {
    pub(super) fn set(&mut self, name: &str, value: impl std::fmt::Display) {
        self.metadata.insert(name.to_owned(), value.to_string());
    }

    pub(super) fn u8s(&mut self, name: &'static str, values: &[u8]) {
        self.tensors.push((name, Dtype::U8, vec![values.len()], values.to_vec()));
    }

    pub(super) fn f32s(&mut self, name: &'static str, values: &[f32]) {
        self.f32_matrix(name, vec![values.len()], values);
    }

    pub(super) fn f32_matrix(&mut self, name: &'static str, shape: Vec<usize>, values: &[f32]) {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.tensors.push((name, Dtype::F32, shape, bytes));
    }

    pub(super) fn i32_matrix(&mut self, name: &'static str, shape: Vec<usize>, values: &[i32]) {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.tensors.push((name, Dtype::I32, shape, bytes));
    }

    pub(super) fn i64s(&mut self, name: &'static str, values: &[i64]) {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.tensors.push((name, Dtype::I64, vec![values.len()], bytes));
    }

    /// Token ids, and where each list begins.
    pub(super) fn ragged<'a>(
        &mut self,
        tokens: &'static str,
        offsets: &'static str,
        lists: impl Iterator<Item = &'a [u32]>,
    ) {
        let (mut all, mut ends) = (Vec::new(), vec![0]);
        for list in lists {
            all.extend(list.iter().map(|&id| id as i32));
            ends.push(all.len() as i64);
        }
        self.i32_matrix(tokens, vec![all.len()], &all);
        self.i64s(offsets, &ends);
    }

    /// Prompts and responses, row after row.
    pub(super) fn rows<'a>(&mut self, rows: impl Iterator<Item = (&'a [u32], &'a [u32])>) {
        let (mut whole, mut starts) = (Vec::new(), Vec::new());
        for (prompt, response) in rows {
            starts.push(prompt.len() as i32);
            whole.push([prompt, response].concat());
        }
        self.ragged("tokens", "row_offsets", whole.iter().map(Vec::as_slice));
        self.i32_matrix("response_start", vec![starts.len()], &starts);
    }

    pub(super) fn bytes(self) -> Result<Vec<u8>, EngineError> {
        let broken = |error: safetensors::SafeTensorError| EngineError::Request(error.to_string());
        let mut views = Vec::with_capacity(self.tensors.len());
        for (name, dtype, shape, bytes) in &self.tensors {
            let view = TensorView::new(*dtype, shape.clone(), bytes).map_err(broken)?;
            views.push((*name, view));
        }
        safetensors::serialize(views, Some(self.metadata)).map_err(broken)
    }
}

/// A body that came back.
pub(super) struct Reply<'a> {
    tensors: SafeTensors<'a>,
    metadata: HashMap<String, String>,
}

impl<'a> Reply<'a> {
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let (_, metadata) = SafeTensors::read_metadata(bytes).ok()?;
        let tensors = SafeTensors::deserialize(bytes).ok()?;
        Some(Self { tensors, metadata: metadata.metadata().clone().unwrap_or_default() })
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.metadata.get(name)?.parse().ok()
    }

    fn words<const N: usize>(
        &self,
        name: &str,
        dtype: Dtype,
        count: usize,
    ) -> Option<Vec<[u8; N]>> {
        let tensor = self.tensors.tensor(name).ok().filter(|tensor| tensor.dtype() == dtype)?;
        let words: Vec<[u8; N]> =
            tensor.data().chunks_exact(N).filter_map(|word| word.try_into().ok()).collect();
        (words.len() == count).then_some(words)
    }

    /// Numbers of which NaN was not measured.
    pub(super) fn f32s(&self, name: &str, count: usize) -> Option<Vec<Option<f32>>> {
        let words = self.words(name, Dtype::F32, count)?;
        let values = words.into_iter().map(f32::from_le_bytes);
        Some(values.map(|value| value.is_finite().then_some(value)).collect())
    }

    pub(super) fn f64s(&self, name: &str, count: usize) -> Option<Vec<f64>> {
        Some(self.words(name, Dtype::F64, count)?.into_iter().map(f64::from_le_bytes).collect())
    }

    pub(super) fn i64s(&self, name: &str, count: usize) -> Option<Vec<i64>> {
        Some(self.words(name, Dtype::I64, count)?.into_iter().map(i64::from_le_bytes).collect())
    }

    /// Ids of which -1 stands for none.
    pub(super) fn ids(&self, name: &str, count: usize) -> Option<Vec<Option<u32>>> {
        let words = self.words(name, Dtype::I32, count)?;
        Some(words.into_iter().map(|word| u32::try_from(i32::from_le_bytes(word)).ok()).collect())
    }

    /// The second size of a matrix.
    pub(super) fn width(&self, name: &str) -> Option<usize> {
        self.tensors.tensor(name).ok()?.shape().get(1).copied()
    }
}
