//! Memory for pages of keys and values: large slabs straight from the system, cut into pieces of one size.
//!
//! Pages live for different times: some end with a response, some stay for later prompts. From a general allocator
//! they would come interleaved with everything else and leave holes that the process never gives back. Here a piece is
//! taken from the fullest slabs first, and a slab without pieces in use goes back to the system.

use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use memmap2::MmapMut;

/// Bytes of a slab, unless a single piece is larger.
const SLAB_BYTES: usize = 4 << 20;
/// Pieces start on cache lines.
const LINE: usize = 64;

/// Pieces of one size.
#[derive(Debug)]
pub(crate) struct Pool {
    piece_bytes: usize,
    pieces_per_slab: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// `None` where a slab was given back; its place is used again.
    slabs: Vec<Option<Slab>>,
    /// Slabs with free pieces.
    open: BTreeSet<usize>,
    in_use: usize,
}

#[derive(Debug)]
struct Slab {
    map: MmapMut,
    free: Vec<usize>,
    /// Pieces from here on were never taken and are still zero.
    fresh: usize,
}

impl Pool {
    /// A pool of pieces of `bytes` each; it holds no memory yet.
    pub(crate) fn new(bytes: usize) -> Self {
        let piece_bytes = bytes.next_multiple_of(LINE).max(LINE);
        let pieces_per_slab = (SLAB_BYTES / piece_bytes).max(1);
        Self { piece_bytes, pieces_per_slab, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change of the state is complete before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of the pieces in use.
    pub(crate) fn bytes_in_use(&self) -> usize {
        self.state().in_use * self.piece_bytes
    }

    /// Bytes taken from the system.
    pub(crate) fn bytes_held(&self) -> usize {
        let slabs = self.state().slabs.iter().flatten().count();
        slabs * self.pieces_per_slab * self.piece_bytes
    }

    /// A piece of zeros. A machine out of memory ends the process here, as it does in every allocation.
    pub(crate) fn take(self: &Arc<Self>) -> Piece {
        let mut state = self.state();
        let index = match state.open.first() {
            Some(&index) => index,
            None => self.add_slab(&mut state),
        };
        let State { slabs, open, in_use } = &mut *state;
        let slab = slabs[index].as_mut().unwrap_or_else(|| unreachable!("open slabs are there"));
        let freed = slab.free.pop();
        let slot = freed.unwrap_or(slab.fresh);
        slab.fresh += usize::from(freed.is_none());
        if slab.free.is_empty() && slab.fresh == self.pieces_per_slab {
            open.remove(&index);
        }
        *in_use += 1;
        let start = slot * self.piece_bytes;
        let data = NonNull::from(&mut slab.map[start..start + self.piece_bytes]).cast::<u8>();
        drop(state);
        let mut piece = Piece { pool: Arc::clone(self), slab: index, slot, data };
        if freed.is_some() {
            piece.bytes_mut().fill(0);
        }
        piece
    }

    fn add_slab(&self, state: &mut State) -> usize {
        let bytes = self.pieces_per_slab * self.piece_bytes;
        let map = MmapMut::map_anon(bytes).unwrap_or_else(|error| {
            panic!("out of memory: {bytes} bytes for keys and values: {error}")
        });
        let slab = Some(Slab { map, free: Vec::new(), fresh: 0 });
        let vacant = state.slabs.iter().position(Option::is_none);
        let index = vacant.unwrap_or(state.slabs.len());
        if vacant.is_none() {
            state.slabs.push(None);
        }
        state.slabs[index] = slab;
        state.open.insert(index);
        index
    }

    fn give_back(&self, index: usize, slot: usize) {
        let mut state = self.state();
        let State { slabs, open, in_use } = &mut *state;
        *in_use -= 1;
        let Some(slab) = slabs.get_mut(index).and_then(Option::as_mut) else { return };
        slab.free.push(slot);
        // The last slab with free pieces stays, so that a sequence that comes and goes does not ask the system every time.
        let unused = slab.free.len() == slab.fresh;
        let others = open.len() - usize::from(open.contains(&index));
        if unused && others > 0 {
            slabs[index] = None;
            open.remove(&index);
        } else {
            open.insert(index);
        }
    }
}

/// Memory of one page; it goes back to its pool when dropped.
pub(crate) struct Piece {
    pool: Arc<Pool>,
    slab: usize,
    slot: usize,
    data: NonNull<u8>,
}

// SAFETY: a piece is the only owner of its bytes, as a `Box<[u8]>` is.
unsafe impl Send for Piece {}
// SAFETY: as above; shared access only reads.
unsafe impl Sync for Piece {}

impl Piece {
    /// The bytes; they start on a cache line.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the piece lies inside its slab, which stays mapped while any of its pieces lives, and no other
        // piece has this slot.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.pool.piece_bytes) }
    }

    /// The bytes; they start on a cache line.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` makes the borrow exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr(), self.pool.piece_bytes) }
    }
}

impl Clone for Piece {
    fn clone(&self) -> Self {
        let mut copy = self.pool.take();
        copy.bytes_mut().copy_from_slice(self.bytes());
        copy
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.pool.give_back(self.slab, self.slot);
    }
}

impl std::fmt::Debug for Piece {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Piece({} bytes)", self.pool.piece_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_zero_apart_and_reused() {
        let pool = Arc::new(Pool::new(100_000));
        let mut pieces: Vec<Piece> = (0..100).map(|_| pool.take()).collect();
        for (mark, piece) in (1..).zip(&mut pieces) {
            assert!(piece.bytes().iter().all(|&byte| byte == 0));
            assert_eq!(piece.bytes().as_ptr() as usize % LINE, 0);
            piece.bytes_mut().fill(mark);
        }
        for (mark, piece) in (1_u8..).zip(&pieces) {
            assert!(piece.bytes().iter().all(|&byte| byte == mark));
        }
        let held = pool.bytes_held();
        pieces.truncate(50);
        pieces.extend((0..50).map(|_| pool.take()));
        assert!(pieces[50..].iter().all(|piece| piece.bytes().iter().all(|&byte| byte == 0)));
        assert_eq!(pool.bytes_held(), held, "freed pieces serve again");
        let copy = pieces[3].clone();
        assert_eq!(copy.bytes(), pieces[3].bytes());
    }

    #[test]
    fn slabs_nobody_uses_go_back_to_the_system() {
        let pool = Arc::new(Pool::new(SLAB_BYTES / 4));
        let mut pieces: Vec<Piece> = (0..40).map(|_| pool.take()).collect();
        assert_eq!(pool.bytes_held(), 10 * SLAB_BYTES);
        assert_eq!(pool.bytes_in_use(), 10 * SLAB_BYTES);
        let first = pieces.remove(0);
        pieces.clear();
        assert!(pool.bytes_held() <= 2 * SLAB_BYTES, "{} bytes held", pool.bytes_held());
        drop(first);
        assert!(pool.bytes_held() <= SLAB_BYTES);
        assert_eq!(pool.bytes_in_use(), 0);
        let piece = pool.take();
        assert!(piece.bytes().iter().all(|&byte| byte == 0));
    }

    #[test]
    fn threads_may_take_and_return_at_the_same_time() {
        let pool = Arc::new(Pool::new(50_000));
        std::thread::scope(|scope| {
            for mark in 1..=4 {
                let pool = &pool;
                scope.spawn(move || {
                    for round in 0..200 {
                        let mut pieces: Vec<Piece> = (0..round % 90).map(|_| pool.take()).collect();
                        for piece in &mut pieces {
                            piece.bytes_mut()[..8].fill(mark);
                        }
                        assert!(pieces.iter().all(|piece| piece.bytes()[..8] == [mark; 8]));
                    }
                });
            }
        });
        assert_eq!(pool.bytes_in_use(), 0);
    }
}
