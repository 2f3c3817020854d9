//! Buffers that start on a cache line, so that no vector load straddles two.

use bytemuck::{Pod, Zeroable};

/// One cache line of bytes.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

// SAFETY: an array of bytes, all bit patterns valid, no padding (size and alignment are both 64).
unsafe impl Zeroable for Line {}
// SAFETY: as above.
unsafe impl Pod for Line {}

/// A zero-initialized buffer of plain numbers, aligned to 64 bytes.
#[derive(Clone)]
pub struct AlignedBuf<T> {
    lines: Vec<Line>,
    len: usize,
    values: std::marker::PhantomData<T>,
}

impl<T: Pod> AlignedBuf<T> {
    /// `len` zeros.
    pub fn zeroed(len: usize) -> Self {
        let lines = (len * size_of::<T>()).div_ceil(size_of::<Line>());
        Self { lines: bytemuck::zeroed_vec(lines), len, values: std::marker::PhantomData }
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Size in memory.
    pub fn bytes(&self) -> usize {
        self.lines.len() * size_of::<Line>()
    }
}

impl<T: Pod> std::ops::Deref for AlignedBuf<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &bytemuck::cast_slice(&self.lines)[..self.len]
    }
}

impl<T: Pod> std::ops::DerefMut for AlignedBuf<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut bytemuck::cast_slice_mut(&mut self.lines)[..self.len]
    }
}

impl<T> std::fmt::Debug for AlignedBuf<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuf({} values)", self.len)
    }
}
