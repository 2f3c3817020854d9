//! Files seen as memory.

use std::fs::File;
use std::io;
use std::ops::Range;

use memmap2::Mmap;

/// A file's bytes, read from the system's cache of it without a copy of our own.
#[derive(Debug)]
pub(crate) struct FileMap {
    file: File,
    map: Mmap,
}

impl FileMap {
    /// Maps a whole file.
    pub(crate) fn new(file: File) -> io::Result<Self> {
        // SAFETY: the map is read only, values of any bits are valid bytes, and every value that is used is checked where it
        // is decoded. A program that writes into the file meanwhile changes values, which a read could not prevent either;
        // `with_bytes` asks for the file's length first, so that reading behind a new end, which would end the process, takes a
        // program that cuts the file off in that very moment.
        let map = unsafe { Mmap::map(&file)? };
        Ok(Self { file, map })
    }

    /// Hands `work` a range of bytes and gives their pages back to the system's cache, so that a file that was read once does
    /// not count as this process's memory.
    pub(crate) fn with_bytes<R>(
        &self,
        range: Range<usize>,
        work: impl FnOnce(&[u8]) -> R,
    ) -> io::Result<R> {
        let bytes = self.map.get(range.clone()).ok_or(io::ErrorKind::UnexpectedEof)?;
        if self.file.metadata()?.len() < range.end as u64 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let result = work(bytes);
        #[cfg(unix)]
        if !bytes.is_empty() {
            // SAFETY: pages of a file that nothing writes to through this map come back with the same bytes when they are read again.
            let forgotten = unsafe {
                self.map.unchecked_advise_range(
                    memmap2::UncheckedAdvice::DontNeed,
                    range.start,
                    bytes.len(),
                )
            };
            // Advice that is not taken costs memory and nothing else.
            drop(forgotten);
        }
        Ok(result)
    }
}
