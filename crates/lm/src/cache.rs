//! Cached keys and values in pages of sixteen positions, shared between sequences that begin alike.
//!
//! A page's contents are a function of the tokens up to its end (see [`crate::kernels`]: no result depends
//! on how it was batched), so a page computed for one sequence serves any other with the same beginning,
//! bit for bit.

use std::collections::HashMap;
use std::sync::Arc;

use crate::kernels::attention::{HeadShape, PAGE};
use crate::kernels::pool::{Piece, Pool};
use crate::kernels::tile::Element;
use crate::kernels::weight_format::WeightFormat;
use crate::model::Model;
use crate::states::{States, Written};
use half::bf16;

/// How keys and values are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KvFormat {
    /// As computed.
    F32,
    /// Rounded to bfloat16: half the memory, and half the traffic in decoding.
    Bf16,
}

impl KvFormat {
    /// The form that goes with weights: nothing is rounded beside weights that are not.
    pub fn of(weights: WeightFormat) -> Self {
        match weights {
            WeightFormat::F32 => Self::F32,
            WeightFormat::Bf16 | WeightFormat::Bf16Dot | WeightFormat::Int8 => Self::Bf16,
        }
    }

    /// Bytes of a cached number.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }
}

/// What a model's pages look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CacheShape {
    pub(crate) heads: HeadShape,
    pub(crate) layers: usize,
    pub(crate) format: KvFormat,
}

impl CacheShape {
    fn page_len(self) -> usize {
        self.layers * self.heads.kv_heads * self.heads.block_len()
    }

    /// Bytes of one page.
    pub(crate) fn page_bytes(self) -> usize {
        self.page_len() * self.format.bytes()
    }
}

/// Where a model's pages come from and what they look like.
#[derive(Debug)]
pub(crate) struct PagePool {
    shape: CacheShape,
    pool: Arc<Pool>,
}

impl PagePool {
    pub(crate) fn new(shape: CacheShape) -> Self {
        Self { shape, pool: Arc::new(Pool::new(shape.page_bytes())) }
    }

    /// Bytes of the pages in use, by sequences and prefix caches together; a shared page counts once.
    pub(crate) fn bytes_in_use(&self) -> usize {
        self.pool.bytes_in_use()
    }

    /// Bytes taken from the system.
    pub(crate) fn bytes_held(&self) -> usize {
        self.pool.bytes_held()
    }
}

/// The keys and values of sixteen positions, all layers.
#[derive(Debug, Clone)]
struct Page(Piece);

impl Page {
    fn values<E: Element>(&self, shape: CacheShape) -> &[E] {
        &bytemuck::cast_slice(self.0.bytes())[..shape.page_len()]
    }

    fn write(&mut self, shape: CacheShape, start: usize, slot: usize, key: &[f32], value: &[f32]) {
        let (heads, bytes) = (shape.heads, self.0.bytes_mut());
        match shape.format {
            KvFormat::F32 => {
                let data: &mut [f32] = bytemuck::cast_slice_mut(bytes);
                scatter(&mut data[start..], heads, slot, key, value, |x| x);
            }
            KvFormat::Bf16 => {
                let data: &mut [u16] = bytemuck::cast_slice_mut(bytes);
                let round = |x| bf16::from_f32(x).to_bits();
                scatter(&mut data[start..], heads, slot, key, value, round);
            }
        }
    }
}

fn scatter<E: Element>(
    block: &mut [E],
    heads: HeadShape,
    slot: usize,
    key: &[f32],
    value: &[f32],
    store: impl Fn(f32) -> E,
) {
    let (keys, values) = block.split_at_mut(PAGE * heads.head_dim);
    for (step, &x) in keys.chunks_exact_mut(PAGE).zip(key) {
        step[E::slot(slot)] = store(x);
    }
    let row = &mut values[slot * heads.value_width()..][..heads.value_width()];
    for (panel, x) in row.chunks_exact_mut(PAGE).zip(value.chunks(PAGE)) {
        for (column, &x) in x.iter().enumerate() {
            panel[E::slot(column)] = store(x);
        }
    }
}

/// The keys and values of one sequence. Cloning shares every page; a page is copied only when a clone writes to it.
#[derive(Debug, Clone)]
pub(crate) struct SequenceCache {
    pool: Arc<PagePool>,
    pages: Vec<Arc<Page>>,
    tokens: Vec<u32>,
}

/// A sequence's pages in the format they are stored in.
pub(crate) enum PageSlices<'a> {
    F32(Vec<&'a [f32]>),
    Bf16(Vec<&'a [u16]>),
}

impl SequenceCache {
    pub(crate) fn new(pool: &Arc<PagePool>) -> Self {
        Self { pool: Arc::clone(pool), pages: Vec::new(), tokens: Vec::new() }
    }

    /// Positions filled so far.
    pub(crate) fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Makes room for more tokens; their keys and values are to be written next.
    pub(crate) fn extend(&mut self, tokens: &[u32]) {
        let first = self.tokens.len();
        self.tokens.extend_from_slice(tokens);
        let pages = self.tokens.len().div_ceil(PAGE);
        self.pages.resize_with(pages, || Arc::new(Page(self.pool.pool.take())));
        for page in &mut self.pages[first / PAGE..] {
            Arc::make_mut(page);
        }
    }

    /// Stores one position of one layer: all key heads side by side, all value heads side by side.
    pub(crate) fn write(&mut self, layer: usize, position: usize, keys: &[f32], values: &[f32]) {
        let shape = self.pool.shape;
        let heads = shape.heads;
        let page = Arc::make_mut(&mut self.pages[position / PAGE]);
        for (kv_head, (key, value)) in
            keys.chunks_exact(heads.head_dim).zip(values.chunks_exact(heads.head_dim)).enumerate()
        {
            page.write(shape, heads.block_start(layer, kv_head), position % PAGE, key, value);
        }
    }

    /// The pages, for attention.
    pub(crate) fn pages(&self) -> PageSlices<'_> {
        let shape = self.pool.shape;
        let pages = self.pages.iter();
        match shape.format {
            KvFormat::F32 => PageSlices::F32(pages.map(|page| page.values(shape)).collect()),
            KvFormat::Bf16 => PageSlices::Bf16(pages.map(|page| page.values(shape)).collect()),
        }
    }
}

/// Name of a page: the page before it (which stands for everything earlier) and its own tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PageKey {
    parent: u64,
    tokens: [u32; PAGE],
}

#[derive(Debug)]
struct Node {
    id: u64,
    depth: usize,
    used: u64,
    page: Arc<Page>,
}

/// Finished pages by the tokens they were computed from. Keep one beside a model and pass it to several calls
/// to share the beginnings of prompts between them: the turns of an episode, the two branches of a fork. It also keeps what
/// the model computed while it wrote its latest responses, so that judging one of them computes nothing again.
///
/// Its budget covers the pages it keeps and those of the sequences in flight in the calls it is passed to: what is kept
/// makes room for what runs. It notices when it is used with other weights and forgets everything, so it can never serve
/// stale values.
#[derive(Debug)]
pub struct PrefixCache {
    budget_bytes: usize,
    weights: Option<u64>,
    /// Where the pages lie, and with them those of sequences in flight.
    pool: Option<Arc<PagePool>>,
    nodes: HashMap<PageKey, Node>,
    written: Written,
    clock: u64,
    next_id: u64,
    tokens_reused: u64,
}

/// The root's name as a parent.
const ROOT: u64 = 0;

impl PrefixCache {
    /// A cache with a budget for all pages of the calls it is passed to, kept and in flight; see [`shares`].
    pub fn new(budget_bytes: usize) -> Self {
        Self {
            budget_bytes,
            weights: None,
            pool: None,
            nodes: HashMap::new(),
            written: Written::default(),
            clock: 0,
            next_id: ROOT + 1,
            tokens_reused: 0,
        }
    }

    /// Tokens that did not have to be computed because an earlier sequence began alike.
    pub fn tokens_reused(&self) -> u64 {
        self.tokens_reused
    }

    /// The budget it was made with.
    pub fn budget_bytes(&self) -> usize {
        self.budget_bytes
    }

    /// Bytes of the pages kept.
    pub fn bytes(&self) -> usize {
        self.pool.as_ref().map_or(0, |pool| pool.shape.page_bytes() * self.nodes.len())
    }

    /// Forgets everything that belongs to other weights.
    pub(crate) fn bind(&mut self, weights: u64, pool: &Arc<PagePool>) {
        if self.weights != Some(weights) {
            self.nodes.clear();
            self.written.clear();
            self.weights = Some(weights);
            self.pool = Some(Arc::clone(pool));
        }
    }

    /// The longest known beginning of `tokens` (whole pages, at most `limit` tokens), and the name of the page
    /// that would come next, if `tokens` fills one.
    pub(crate) fn longest(
        &mut self,
        pool: &Arc<PagePool>,
        tokens: &[u32],
        limit: usize,
    ) -> (SequenceCache, Option<PageKey>) {
        self.clock += 1;
        let mut sequence = SequenceCache::new(pool);
        let mut parent = ROOT;
        for chunk in tokens[..limit.min(tokens.len())].as_chunks::<PAGE>().0 {
            let key = PageKey { parent, tokens: *chunk };
            let Some(node) = self.nodes.get_mut(&key) else {
                return (sequence, Some(key));
            };
            node.used = self.clock;
            parent = node.id;
            sequence.pages.push(Arc::clone(&node.page));
            sequence.tokens.extend_from_slice(chunk);
        }
        (sequence, None)
    }

    /// Keeps what the model computed while it wrote `response`.
    pub(crate) fn keep_states(&mut self, prompt: &[u32], response: &[u32], states: States) {
        self.written.keep(prompt, response, states, self.budget_bytes);
    }

    /// What the model computed while it wrote `response` after `prompt`, if that is still known.
    pub(crate) fn states(&self, prompt: &[u32], response: &[u32]) -> Option<Arc<States>> {
        self.written.find(prompt, response)
    }

    /// Counts tokens taken over from the cache.
    pub(crate) fn note_reuse(&mut self, tokens: usize) {
        self.tokens_reused += tokens as u64;
    }

    /// Makes a sequence's full pages known, then drops the pages used longest ago beyond the budget.
    pub(crate) fn publish(&mut self, sequence: &SequenceCache) {
        self.clock += 1;
        let mut parent = ROOT;
        for (depth, (chunk, page)) in
            sequence.tokens.as_chunks::<PAGE>().0.iter().zip(&sequence.pages).enumerate()
        {
            let key = PageKey { parent, tokens: *chunk };
            let node = self.nodes.entry(key).or_insert_with(|| {
                let id = self.next_id;
                self.next_id += 1;
                Node { id, depth, used: 0, page: Arc::clone(page) }
            });
            node.used = self.clock;
            parent = node.id;
        }
        self.make_room(0);
    }

    /// Drops the pages used longest ago until `needed` more bytes fit into the budget, or until all that is left belongs
    /// to sequences in flight: a sequence has to run whatever its length.
    pub(crate) fn make_room(&mut self, needed: usize) {
        let Some(pool) = &self.pool else { return };
        let wanted = pool.bytes_in_use() + self.written.bytes() + needed;
        if wanted <= self.budget_bytes {
            return;
        }
        // A page is used no later than the pages before it, so dropping the oldest and, among equals, the deepest
        // never leaves a page whose beginning is gone. Dropping a page of a sequence in flight would free nothing; the
        // pages before it belong to that sequence too. A tenth more than needed keeps this rare.
        let page_bytes = pool.shape.page_bytes().max(1);
        let drop = (wanted - self.budget_bytes + self.budget_bytes / 10).div_ceil(page_bytes);
        let mut oldest: Vec<_> = self
            .nodes
            .iter()
            .filter(|(_, node)| Arc::strong_count(&node.page) == 1)
            .map(|(key, node)| (node.used, usize::MAX - node.depth, node.id, *key))
            .collect();
        oldest.sort_unstable_by_key(|&(used, depth, id, _)| (used, depth, id));
        for (_, _, _, key) in oldest.into_iter().take(drop) {
            self.nodes.remove(&key);
        }
    }
}

/// Splits one budget for keys and values between models so that each can hold the same number of tokens. A caller with one
/// limit for the process makes every model's [`PrefixCache`] with its share.
pub fn shares(budget_bytes: usize, models: &[&Model]) -> Vec<usize> {
    let sizes: Vec<usize> = models.iter().map(|model| model.kv_bytes_per_token().max(1)).collect();
    let tokens = budget_bytes / sizes.iter().sum::<usize>().max(1);
    sizes.into_iter().map(|size| size * tokens).collect()
}
