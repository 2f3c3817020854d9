//! Memory that lives longer than the work that uses it, so that a training step allocates nothing.

use std::cell::RefCell;

use memmap2::MmapMut;

/// Values per cache line; slices handed out start on one.
const LINE: usize = 16;

/// A growable block of f32 values, aligned to pages, in huge pages where the system offers them. Growing forgets the contents.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    map: Option<MmapMut>,
}

impl Buffer {
    /// The first `length` values, after making room for them. Fresh memory is zero, old contents stay.
    pub(super) fn fit(&mut self, length: usize) -> &mut [f32] {
        let bytes = length * size_of::<f32>();
        if self.map.as_ref().is_none_or(|map| map.len() < bytes) && bytes > 0 {
            self.map = None;
            self.map = Some(allocate(bytes));
        }
        match &mut self.map {
            Some(map) => bytemuck::cast_slice_mut(&mut map[..bytes]),
            None => &mut [],
        }
    }

    /// Whether it has no memory yet.
    pub(super) fn is_empty(&self) -> bool {
        self.map.is_none()
    }

    /// The first `length` values of what was filled before.
    pub(super) fn get(&self, length: usize) -> &[f32] {
        match &self.map {
            Some(map) => bytemuck::cast_slice(&map[..length * size_of::<f32>()]),
            None => &[],
        }
    }
}

/// Maps zeroed memory. A machine out of memory ends the process here, as it does in every allocation.
fn allocate(bytes: usize) -> MmapMut {
    let map = MmapMut::map_anon(bytes).unwrap_or_else(|error| {
        panic!("out of memory: {bytes} bytes for training buffers: {error}")
    });
    // Fewer address translations; where huge pages are not offered, ordinary ones do.
    #[cfg(target_os = "linux")]
    let _ = map.advise(memmap2::Advice::HugePage);
    map
}

thread_local! {
    static SCRATCH: RefCell<Buffer> = RefCell::new(Buffer::default());
}

/// Hands `work` slices of the asked lengths from this thread's buffer. Their contents are arbitrary.
pub(super) fn with_scratch<const N: usize, R>(
    lengths: [usize; N],
    work: impl FnOnce([&mut [f32]; N]) -> R,
) -> R {
    let mut buffer = SCRATCH.take();
    let total = lengths.iter().map(|length| length.next_multiple_of(LINE)).sum();
    let mut rest = buffer.fit(total);
    let slices = lengths.map(|length| {
        let (slice, tail) = std::mem::take(&mut rest).split_at_mut(length.next_multiple_of(LINE));
        rest = tail;
        &mut slice[..length]
    });
    let result = work(slices);
    SCRATCH.set(buffer);
    result
}
