//! Files that are either whole or not there.
#![expect(
    clippy::disallowed_methods,
    reason = "this module is the one that may touch files directly"
)]

use std::fs::{File, OpenOptions, TryLockError};
use std::io::Write;
use std::path::Path;

use crate::error::TrainError;

/// Writes a file aside, makes it durable, and puts it in place in one step.
pub fn write_atomically(path: &Path, content: &[u8]) -> Result<(), TrainError> {
    let aside = path.with_added_extension("partial");
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&aside)?;
        file.write_all(content)?;
        file.sync_all()?;
        std::fs::rename(&aside, path)
    };
    write().map_err(TrainError::file("write", path))?;
    sync_parent(path)
}

/// Claims a run's folder for this process, as long as the file given back lives. A process that is killed leaves nothing
/// claimed.
pub(crate) fn claim(folder: &Path) -> Result<File, TrainError> {
    let path = folder.join("lock");
    let file = File::create(&path).map_err(TrainError::file("make", &path))?;
    match try_lock_patiently(&file) {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(TrainError::Busy { path: folder.to_owned() }),
        Err(TryLockError::Error(source)) => Err(TrainError::File { action: "lock", path, source }),
    }
}

/// Tries for a quarter of a second: a viewer that looks whether the run goes on holds the lock for a moment.
fn try_lock_patiently(file: &File) -> Result<(), TryLockError> {
    for _ in 0..5 {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
            other => return other,
        }
    }
    file.try_lock()
}

/// Writes and makes durable a file inside a folder that is itself still aside.
pub(crate) fn write_durably(path: &Path, content: &[u8]) -> Result<(), TrainError> {
    let write = || -> std::io::Result<()> {
        let mut file = File::create(path)?;
        file.write_all(content)?;
        file.sync_all()
    };
    write().map_err(TrainError::file("write", path))
}

/// Moves a folder aside under the first free name `FOLDER.old-N`.
pub(crate) fn set_aside(folder: &Path) -> Result<std::path::PathBuf, TrainError> {
    let free = (1..).map(|number| folder.with_added_extension(format!("old-{number}")));
    let aside = free.into_iter().find(|path| !path.exists()).unwrap_or_else(|| folder.to_owned());
    std::fs::rename(folder, &aside).map_err(TrainError::file("move aside", folder))?;
    sync_parent(&aside)?;
    Ok(aside)
}

/// Puts a finished folder in place in one step.
pub(crate) fn publish_folder(aside: &Path, place: &Path) -> Result<(), TrainError> {
    sync_folder(aside)?;
    std::fs::rename(aside, place).map_err(TrainError::file("publish", place))?;
    sync_parent(place)
}

/// Makes every file below a folder, and the folder itself, durable.
pub(crate) fn sync_folder(folder: &Path) -> Result<(), TrainError> {
    for entry in std::fs::read_dir(folder).map_err(TrainError::file("read", folder))? {
        let path = entry.map_err(TrainError::file("read", folder))?.path();
        if path.is_dir() {
            sync_folder(&path)?;
        } else {
            let sync = || File::open(&path)?.sync_all();
            sync().map_err(TrainError::file("sync", &path))?;
        }
    }
    let sync = || File::open(folder)?.sync_all();
    sync().map_err(TrainError::file("sync", folder))
}

fn sync_parent(path: &Path) -> Result<(), TrainError> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let sync = || File::open(parent)?.sync_all();
    sync().map_err(TrainError::file("sync", parent))
}

/// Appends to a file that may be cut back to a recorded length.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    path: std::path::PathBuf,
    length: u64,
}

impl Journal {
    /// Opens (or makes) a journal and cuts it back to `length`: what lies behind was written after the last checkpoint.
    pub(crate) fn open(path: &Path, length: u64) -> Result<Self, TrainError> {
        let open = || -> std::io::Result<File> {
            let file = OpenOptions::new()
                .create(true)
                .truncate(false)
                .read(true)
                .write(true)
                .open(path)?;
            if file.metadata()?.len() < length {
                return Err(std::io::Error::other(format!(
                    "it is shorter than the {length} bytes the checkpoint recorded"
                )));
            }
            file.set_len(length)?;
            Ok(file)
        };
        let mut file = open().map_err(TrainError::file("open", path))?;
        std::io::Seek::seek(&mut file, std::io::SeekFrom::End(0))
            .map_err(TrainError::file("open", path))?;
        Ok(Self { file, path: path.to_owned(), length })
    }

    /// Opens a journal at its end; one that has grown past a few megabytes is put aside first.
    pub(crate) fn open_rotating(path: &Path) -> Result<Self, TrainError> {
        const MOST: u64 = 4 << 20;
        let length = std::fs::metadata(path).map_or(0, |data| data.len());
        if length <= MOST {
            return Self::open(path, length);
        }
        std::fs::rename(path, path.with_added_extension("1"))
            .map_err(TrainError::file("rotate", path))?;
        Self::open(path, 0)
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds raw bytes.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), TrainError> {
        self.file.write_all(bytes).map_err(TrainError::file("write", &self.path))?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Makes what was added durable and gives the length to record.
    pub(crate) fn sync(&mut self) -> Result<u64, TrainError> {
        self.file.sync_data().map_err(TrainError::file("sync", &self.path))?;
        Ok(self.length)
    }
}

/// Megabytes free where `path` lies; `None` where the system does not say.
pub fn free_megabytes(path: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(path).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize) / 1_000_000)
}
