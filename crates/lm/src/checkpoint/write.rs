//! The one place that writes model files. A file appears whole or not at all: it is written aside under a
//! temporary name, flushed to the disk and then renamed.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::error::LmError;

/// A file that is being written aside. Dropped without [`PartialFile::finish`], it leaves nothing behind.
#[derive(Debug)]
pub(crate) struct PartialFile {
    target: PathBuf,
    aside: PathBuf,
    file: Option<BufWriter<File>>,
}

impl PartialFile {
    /// Starts writing `target`.
    pub(crate) fn create(target: &Path) -> Result<Self, LmError> {
        let aside = aside(target);
        let file = File::create(&aside).map_err(LmError::io(&aside, "create it"))?;
        let file = Some(BufWriter::with_capacity(1 << 20, file));
        Ok(Self { target: target.to_owned(), aside, file })
    }

    /// Appends bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), LmError> {
        match &mut self.file {
            Some(file) => file.write_all(bytes).map_err(LmError::io(&self.aside, "write to it")),
            None => Ok(()),
        }
    }

    /// Flushes the bytes to the disk and gives the file its name.
    pub(crate) fn finish(mut self) -> Result<(), LmError> {
        if let Some(file) = self.file.take() {
            let file = file
                .into_inner()
                .map_err(|error| LmError::io(&self.aside, "write to it")(error.into_error()))?;
            file.sync_all().map_err(LmError::io(&self.aside, "flush it to the disk"))?;
            fs::rename(&self.aside, &self.target)
                .map_err(LmError::io(&self.target, "put the finished file in its place"))?;
            if let Some(folder) = self.target.parent() {
                sync_folder(folder)?;
            }
        }
        Ok(())
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            // Nothing can be reported from here, and a leftover file is harmless.
            let _ = fs::remove_file(&self.aside);
        }
    }
}

/// Writes a small file whole.
pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> Result<(), LmError> {
    let mut file = PartialFile::create(path)?;
    file.write(bytes)?;
    file.finish()
}

/// Runs `fill` on a folder that becomes `directory`. A folder that does not exist yet is filled aside and renamed, so
/// that it appears complete or not at all; an existing one is filled in place, file by file.
pub(crate) fn fill_directory(
    directory: &Path,
    fill: impl FnOnce(&Path) -> Result<(), LmError>,
) -> Result<(), LmError> {
    if directory.exists() {
        return fill(directory);
    }
    if let Some(parent) = directory.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent).map_err(LmError::io(parent, "create the folder"))?;
    }
    let aside = aside(directory);
    if aside.exists() {
        fs::remove_dir_all(&aside).map_err(LmError::io(&aside, "remove the leftover folder"))?;
    }
    fs::create_dir(&aside).map_err(LmError::io(&aside, "create the folder"))?;
    let filled = fill(&aside).and_then(|()| {
        fs::rename(&aside, directory)
            .map_err(LmError::io(directory, "put the finished folder in its place"))
    });
    if filled.is_err() {
        // The first failure is the one worth telling.
        let _ = fs::remove_dir_all(&aside);
    }
    filled?;
    match directory.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => sync_folder(parent),
        _ => sync_folder(Path::new(".")),
    }
}

/// Removes a file if it is there.
pub(crate) fn remove_stale(path: &Path) -> Result<(), LmError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(LmError::io(path, "remove the outdated file")(error))
        }
        _ => Ok(()),
    }
}

/// The temporary name beside a target: hidden, and different for two processes that write the same one.
fn aside(target: &Path) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    target.with_file_name(format!(".{name}.{}.partial", std::process::id()))
}

/// Makes a rename survive a power cut.
fn sync_folder(folder: &Path) -> Result<(), LmError> {
    // Elsewhere a folder cannot be opened as a file, and renames are the file system's business.
    if cfg!(not(unix)) {
        return Ok(());
    }
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    File::open(folder)
        .and_then(|handle| handle.sync_all())
        .map_err(LmError::io(folder, "flush the folder to the disk"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unfinished_file_leaves_the_old_one_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let target = folder.path().join("a.bin");
        write_file(&target, b"old").expect("written");
        let mut partial = PartialFile::create(&target).expect("created");
        partial.write(b"new").expect("written");
        drop(partial);
        assert_eq!(fs::read(&target).expect("readable"), b"old");
        assert_eq!(fs::read_dir(folder.path()).expect("listable").count(), 1);
    }

    #[test]
    fn a_folder_whose_filling_fails_does_not_appear() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let target = folder.path().join("deep/model");
        let failed = fill_directory(&target, |inside| {
            write_file(&inside.join("a"), b"1")?;
            Err(LmError::malformed(inside, "made up"))
        });
        assert!(failed.is_err());
        assert_eq!(fs::read_dir(folder.path().join("deep")).expect("listable").count(), 0);
        fill_directory(&target, |inside| write_file(&inside.join("a"), b"1")).expect("filled");
        assert_eq!(fs::read(target.join("a")).expect("readable"), b"1");
    }
}
