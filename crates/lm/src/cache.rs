//! Cached keys and values in pages of sixteen positions, shared between sequences that begin alike.
//!
//! A page's contents are a function of the tokens up to its end (see [`crate::kernels`]: no result depends
//! on how it was batched), so a page computed for one sequence serves any other with the same beginning,
//! bit for bit.

use std::collections::HashMap;
use std::sync::Arc;

use crate::kernels::aligned::AlignedBuf;
use crate::kernels::attention::{HeadShape, PAGE};
use crate::kernels::tile::Element;
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
        self.page_len()
            * match self.format {
                KvFormat::F32 => 4,
                KvFormat::Bf16 => 2,
            }
    }
}

#[derive(Debug, Clone)]
enum Page {
    F32(AlignedBuf<f32>),
    Bf16(AlignedBuf<u16>),
}

impl Page {
    fn new(shape: CacheShape) -> Self {
        match shape.format {
            KvFormat::F32 => Self::F32(AlignedBuf::zeroed(shape.page_len())),
            KvFormat::Bf16 => Self::Bf16(AlignedBuf::zeroed(shape.page_len())),
        }
    }

    fn write(&mut self, heads: HeadShape, start: usize, slot: usize, key: &[f32], value: &[f32]) {
        match self {
            Self::F32(data) => scatter(&mut data[start..], heads, slot, key, value, |x| x),
            Self::Bf16(data) => scatter(&mut data[start..], heads, slot, key, value, |x| {
                bf16::from_f32(x).to_bits()
            }),
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
    shape: CacheShape,
    pages: Vec<Arc<Page>>,
    tokens: Vec<u32>,
}

/// A sequence's pages in the format they are stored in.
pub(crate) enum PageSlices<'a> {
    F32(Vec<&'a [f32]>),
    Bf16(Vec<&'a [u16]>),
}

impl SequenceCache {
    pub(crate) fn new(shape: CacheShape) -> Self {
        Self { shape, pages: Vec::new(), tokens: Vec::new() }
    }

    /// Positions filled so far.
    pub(crate) fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Makes room for more tokens; their keys and values are to be written next.
    pub(crate) fn extend(&mut self, tokens: &[u32]) {
        let first = self.tokens.len();
        self.tokens.extend_from_slice(tokens);
        self.pages
            .resize_with(self.tokens.len().div_ceil(PAGE), || Arc::new(Page::new(self.shape)));
        for page in &mut self.pages[first / PAGE..] {
            Arc::make_mut(page);
        }
    }

    /// Stores one position of one layer: all key heads side by side, all value heads side by side.
    pub(crate) fn write(&mut self, layer: usize, position: usize, keys: &[f32], values: &[f32]) {
        let heads = self.shape.heads;
        let page = Arc::make_mut(&mut self.pages[position / PAGE]);
        for (kv_head, (key, value)) in
            keys.chunks_exact(heads.head_dim).zip(values.chunks_exact(heads.head_dim)).enumerate()
        {
            page.write(heads, heads.block_start(layer, kv_head), position % PAGE, key, value);
        }
    }

    /// The pages, for attention.
    pub(crate) fn pages(&self) -> PageSlices<'_> {
        match self.shape.format {
            KvFormat::F32 => PageSlices::F32(
                self.pages
                    .iter()
                    .map(|page| match &**page {
                        Page::F32(data) => &data[..],
                        Page::Bf16(_) => &[][..],
                    })
                    .collect(),
            ),
            KvFormat::Bf16 => PageSlices::Bf16(
                self.pages
                    .iter()
                    .map(|page| match &**page {
                        Page::Bf16(data) => &data[..],
                        Page::F32(_) => &[][..],
                    })
                    .collect(),
            ),
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
/// to share the beginnings of prompts between them: the turns of an episode, the two branches of a fork.
///
/// It notices when it is used with other weights and forgets everything, so it can never serve stale values.
#[derive(Debug)]
pub struct PrefixCache {
    capacity_bytes: usize,
    weights: Option<u64>,
    shape: Option<CacheShape>,
    nodes: HashMap<PageKey, Node>,
    clock: u64,
    next_id: u64,
    tokens_reused: u64,
}

/// The root's name as a parent.
const ROOT: u64 = 0;

impl PrefixCache {
    /// A cache that keeps at most `capacity_bytes` of pages.
    pub fn new(capacity_bytes: usize) -> Self {
        Self {
            capacity_bytes,
            weights: None,
            shape: None,
            nodes: HashMap::new(),
            clock: 0,
            next_id: ROOT + 1,
            tokens_reused: 0,
        }
    }

    /// Tokens that did not have to be computed because an earlier sequence began alike.
    pub fn tokens_reused(&self) -> u64 {
        self.tokens_reused
    }

    /// Bytes of the pages kept.
    pub fn bytes(&self) -> usize {
        self.shape.map_or(0, |shape| shape.page_bytes() * self.nodes.len())
    }

    /// Forgets everything that belongs to other weights.
    pub(crate) fn bind(&mut self, weights: u64, shape: CacheShape) {
        if self.weights != Some(weights) {
            self.nodes.clear();
            self.weights = Some(weights);
            self.shape = Some(shape);
        }
    }

    /// The longest known beginning of `tokens` (whole pages, at most `limit` tokens), and the name of the page
    /// that would come next, if `tokens` fills one.
    pub(crate) fn longest(
        &mut self,
        shape: CacheShape,
        tokens: &[u32],
        limit: usize,
    ) -> (SequenceCache, Option<PageKey>) {
        self.clock += 1;
        let mut sequence = SequenceCache::new(shape);
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

    /// Counts tokens taken over from the cache.
    pub(crate) fn note_reuse(&mut self, tokens: usize) {
        self.tokens_reused += tokens as u64;
    }

    /// Makes a sequence's full pages known, then drops the pages used longest ago beyond the capacity.
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
        self.evict();
    }

    fn evict(&mut self) {
        let Some(shape) = self.shape else { return };
        let keep = self.capacity_bytes / shape.page_bytes().max(1);
        if self.nodes.len() <= keep {
            return;
        }
        // A page is used no later than the pages before it, so dropping the oldest and, among equals, the deepest
        // never leaves a page whose beginning is gone. A tenth more than needed keeps this rare.
        let mut oldest: Vec<_> = self
            .nodes
            .iter()
            .map(|(key, node)| (node.used, usize::MAX - node.depth, node.id, *key))
            .collect();
        oldest.sort_unstable_by_key(|&(used, depth, id, _)| (used, depth, id));
        let drop = self.nodes.len() - keep + keep / 10;
        for (_, _, _, key) in oldest.into_iter().take(drop) {
            self.nodes.remove(&key);
        }
    }
}
