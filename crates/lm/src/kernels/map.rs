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
        // `bytes` asks for the file's length first, so that reading behind a new end, which would end the process, takes a
        // program that cuts the file off in that very moment.
        let map = unsafe { Mmap::map(&file)? };
        Ok(Self { file, map })
    }

    /// A range of the file's bytes.
    pub(crate) fn bytes(&self, range: Range<usize>) -> io::Result<&[u8]> {
        if self.file.metadata()?.len() < range.end as u64 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.map.get(range).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// Gives all pages back to the system's cache, so that what was read does not count as this process's memory. Reading brings
    /// neighboring pages along, those of ranges that were given back as well: hence all of them.
    pub(crate) fn forget(&self) {
        #[cfg(unix)]
        {
            // SAFETY: nothing writes through this map, so its pages come back with the file's bytes when they are read again.
            let advised = unsafe { self.map.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
            // Advice that is not taken costs memory and nothing else.
            drop(advised);
        }
    }
}
