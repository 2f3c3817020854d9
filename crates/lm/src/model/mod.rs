//! An immutable model for generating and scoring: packed weights, shared by reference.

mod forward;
mod head;
mod rope;
mod scratch;
mod weights;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::cache::{CacheShape, KvFormat, PagePool};
use crate::checkpoint::TensorSource;
use crate::config::{MAX_POSITION, ModelConfig};
use crate::error::LmError;
use crate::kernels::attention::HeadShape;
use crate::kernels::dispatch::Isa;
use crate::tensor::Parameters;

pub use crate::kernels::weight_format::WeightFormat;
pub(crate) use forward::Segment;
pub(crate) use head::{
    CHUNK, RowSummary, SummaryAndTop, chunk_ids, chunk_stats, keep_leaders, per_chunk,
};
use rope::Rope;
use scratch::ScratchPool;
use weights::Weights;

/// A decoder model ready to generate and score. Cloning is cheap: clones share the weights.
#[derive(Debug, Clone)]
pub struct Model {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) config: ModelConfig,
    pub(crate) kv_format: KvFormat,
    pub(crate) isa: Isa,
    pub(crate) rope: Rope,
    pub(crate) weights: Weights,
    scratch: ScratchPool,
    /// Where the keys and values of sequences lie.
    pub(crate) pages: Arc<PagePool>,
    /// Differs between any two sets of weights of this process.
    pub(crate) identity: u64,
}

fn new_identity() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Model {
    /// Packs `parameters` (Hugging Face names, as [`ModelConfig::parameter_shapes`] lists them) for inference.
    /// Keys and values are cached in f32 with f32 weights and in bf16 otherwise; see [`Model::with_kv_format`].
    pub fn new(
        config: &ModelConfig,
        parameters: &Parameters,
        format: WeightFormat,
    ) -> Result<Self, LmError> {
        weights::check(config, parameters)?;
        Self::build(config, parameters, format)
    }

    /// Like [`Model::new`], but reads a few megabytes at a time, so that only the packed weights are in memory.
    pub fn load(
        config: &ModelConfig,
        source: &dyn TensorSource,
        format: WeightFormat,
    ) -> Result<Self, LmError> {
        weights::check_shapes(config, &|name| source.shape(name))?;
        Self::build(config, source, format)
    }

    fn build(
        config: &ModelConfig,
        source: &dyn TensorSource,
        format: WeightFormat,
    ) -> Result<Self, LmError> {
        check_config(config)?;
        let kv_format = KvFormat::of(format);
        Ok(Self {
            inner: Arc::new(Inner {
                config: config.clone(),
                kv_format,
                isa: Isa::chosen().map_err(LmError::Setting)?,
                rope: Rope::new(config),
                weights: Weights::pack(config, source, format)?,
                scratch: ScratchPool::default(),
                pages: Arc::new(PagePool::new(cache_shape(config, kv_format))),
                identity: new_identity(),
            }),
        })
    }

    /// The same model with another format of cached keys and values. Copies nothing if no clone exists.
    pub fn with_kv_format(self, kv_format: KvFormat) -> Result<Self, LmError> {
        self.changed(|inner| {
            inner.kv_format = kv_format;
            inner.pages = Arc::new(PagePool::new(cache_shape(&inner.config, kv_format)));
            inner.identity = new_identity();
        })
    }

    /// The same model on another instruction set (for tests: the bits do not depend on it).
    pub fn with_isa(self, isa: Isa) -> Result<Self, LmError> {
        self.changed(|inner| inner.isa = isa)
    }

    fn changed(mut self, change: impl FnOnce(&mut Inner)) -> Result<Self, LmError> {
        let inner = Arc::get_mut(&mut self.inner).ok_or_else(|| {
            LmError::Setting("a model is adjusted before it is shared, not after".to_owned())
        })?;
        change(inner);
        Ok(self)
    }

    /// Takes over new values of the same parameters, in the memory already there when no clone is in use;
    /// otherwise the clones keep the old weights until they are dropped.
    pub fn refresh(&mut self, parameters: &Parameters) -> Result<(), LmError> {
        weights::check(&self.inner.config, parameters)?;
        self.refill(parameters)
    }

    fn refill(&mut self, source: &dyn TensorSource) -> Result<(), LmError> {
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            // Before the first value changes: nothing cached of the old weights may serve what an error leaves behind.
            inner.identity = new_identity();
            inner.weights.fill(&inner.config, source)?;
        } else {
            let old = &self.inner;
            self.inner = Arc::new(Inner {
                config: old.config.clone(),
                kv_format: old.kv_format,
                isa: old.isa,
                rope: Rope::new(&old.config),
                weights: Weights::pack(&old.config, source, old.weights.format)?,
                scratch: ScratchPool::default(),
                pages: Arc::clone(&old.pages),
                identity: new_identity(),
            });
        }
        Ok(())
    }

    /// [`Model::refresh`] from weights that are read a few megabytes at a time. After an error in the middle of reading, the
    /// model holds some of the new values and has to be refreshed again before it is used.
    pub fn refresh_from(&mut self, source: &dyn TensorSource) -> Result<(), LmError> {
        weights::check_shapes(&self.inner.config, &|name| source.shape(name))?;
        self.refill(source)
    }

    /// The model's shape.
    pub fn config(&self) -> &ModelConfig {
        &self.inner.config
    }

    /// How the weights are kept.
    pub fn weight_format(&self) -> WeightFormat {
        self.inner.weights.format
    }

    /// How keys and values are kept.
    pub fn kv_format(&self) -> KvFormat {
        self.inner.kv_format
    }

    /// The instruction set in use.
    pub fn isa(&self) -> Isa {
        self.inner.isa
    }

    /// Size of the packed weights.
    pub fn weight_bytes(&self) -> usize {
        self.inner.weights.bytes()
    }

    /// Size of the cached keys and values of one token.
    pub fn kv_bytes_per_token(&self) -> usize {
        self.inner.cache_shape().page_bytes() / crate::kernels::attention::PAGE
    }

    /// Bytes of cached keys and values in use now, of all sequences and prefix caches of this model and its clones.
    pub fn kv_bytes_in_use(&self) -> usize {
        self.inner.pages.bytes_in_use()
    }

    /// Bytes that cached keys and values take from the system now, free room in their slabs included.
    pub fn kv_bytes_held(&self) -> usize {
        self.inner.pages.bytes_held()
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }
}

impl Inner {
    pub(crate) fn head_shape(&self) -> HeadShape {
        head_shape(&self.config)
    }

    pub(crate) fn cache_shape(&self) -> CacheShape {
        cache_shape(&self.config, self.kv_format)
    }
}

fn head_shape(config: &ModelConfig) -> HeadShape {
    HeadShape { heads: config.heads, kv_heads: config.kv_heads, head_dim: config.head_dim }
}

fn cache_shape(config: &ModelConfig, format: KvFormat) -> CacheShape {
    CacheShape { heads: head_shape(config), layers: config.layers, format }
}

fn check_config(config: &ModelConfig) -> Result<(), LmError> {
    let sizes = [
        ("hidden_size", config.hidden_size),
        ("intermediate_size", config.intermediate_size),
        ("layers", config.layers),
        ("heads", config.heads),
        ("kv_heads", config.kv_heads),
        ("head_dim", config.head_dim),
        ("vocab_size", config.vocab_size),
        ("max_position", config.max_position),
    ];
    if let Some((name, _)) = sizes.iter().find(|(_, size)| *size == 0) {
        return Err(LmError::Setting(format!("{name} is 0")));
    }
    // The rotary table has a place for every block of positions, filled or not.
    if config.max_position > MAX_POSITION {
        return Err(LmError::Setting(format!(
            "max_position is {}; at most {MAX_POSITION} positions are supported",
            config.max_position
        )));
    }
    if !config.heads.is_multiple_of(config.kv_heads) {
        return Err(LmError::Setting(format!(
            "{} query heads cannot share {} key heads evenly",
            config.heads, config.kv_heads
        )));
    }
    if !config.head_dim.is_multiple_of(2) {
        return Err(LmError::Setting(format!(
            "head_dim {} is odd; rotary positions turn pairs",
            config.head_dim
        )));
    }
    Ok(())
}
