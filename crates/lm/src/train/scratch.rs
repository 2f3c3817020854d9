//! Buffers that live longer than the work that uses them, so that a training step allocates nothing.

use std::cell::RefCell;

thread_local! {
    static SCRATCH: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Hands `work` slices of the asked lengths from this thread's buffer. Their contents are arbitrary.
pub(super) fn with_scratch<const N: usize, R>(
    lengths: [usize; N],
    work: impl FnOnce([&mut [f32]; N]) -> R,
) -> R {
    let mut buffer = SCRATCH.take();
    let total = lengths.iter().sum();
    if buffer.len() < total {
        buffer.resize(total, 0.0);
    }
    let mut rest = buffer.as_mut_slice();
    let slices = lengths.map(|length| {
        let (slice, tail) = std::mem::take(&mut rest).split_at_mut(length);
        rest = tail;
        slice
    });
    let result = work(slices);
    SCRATCH.set(buffer);
    result
}

/// Makes a reusable buffer exactly `length` long; old contents stay where they are.
pub(super) fn fit(buffer: &mut Vec<f32>, length: usize) -> &mut [f32] {
    if buffer.len() < length {
        buffer.resize(length, 0.0);
    }
    &mut buffer[..length]
}
