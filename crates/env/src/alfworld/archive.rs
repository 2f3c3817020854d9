//! Game files in a folder, a `.zip` or a `.tar.zst`.

use std::fs::File;
use std::io::Read;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use crate::{EnvError, files};

/// The name of every game file.
const FILE_NAME: &str = "game.tw-pddl";
/// A real game file has 53 to 136 kB; more than this is something else.
const LARGEST: u64 = 16 << 20;

/// A game file that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawGame {
    /// Where it lies, for messages.
    pub path: String,
    /// `<split>/<task>/<trial>`, from the path.
    pub id: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Reads the game files at `path` (a game file, a folder, a `.zip` or a `.tar.zst`) whose id `wanted` accepts, in
/// no particular order, and hands them to `each` one by one until it breaks off.
pub fn for_each(
    path: &Path,
    wanted: &dyn Fn(&str) -> bool,
    each: &mut dyn FnMut(RawGame) -> Result<ControlFlow<()>, EnvError>,
) -> Result<(), EnvError> {
    let read_error = |source| EnvError::Read { path: path.to_owned(), source };
    let metadata = std::fs::metadata(path).map_err(read_error)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let ends_in = |ending: &str| name.ends_with(ending);
    let done = if metadata.is_dir() {
        from_folder(path, wanted, each)
    } else if name == FILE_NAME {
        from_file(path, wanted, each)
    } else if ends_in(".zip") {
        from_zip(path, files::open(path)?, wanted, each)
    } else if ends_in(".tar.zst") {
        from_tar(path, files::open(path)?, wanted, each)
    } else {
        Err(EnvError::Malformed {
            path: path.display().to_string(),
            line: None,
            message: format!("expected a folder, a .zip, a .tar.zst or a {FILE_NAME}"),
        })
    };
    done.map(|_| ())
}

/// The first game file at `path`.
pub fn first(path: &Path) -> Result<RawGame, EnvError> {
    let mut found = None;
    for_each(path, &|_| true, &mut |raw| {
        found = Some(raw);
        Ok(ControlFlow::Break(()))
    })?;
    found.ok_or_else(|| EnvError::Missing {
        what: format!("a {FILE_NAME} in {}", path.display()),
        hint: "give a game file, or a folder or archive that has one".to_owned(),
    })
}

/// `<split>/<task>/<trial>` for the path of a game file: its last three folders.
fn id_of(path: &str) -> Option<String> {
    let mut parts = path.rsplit(['/', '\\']);
    if parts.next() != Some(FILE_NAME) {
        return None;
    }
    let mut folders: Vec<&str> =
        parts.filter(|part| !part.is_empty() && *part != ".").take(3).collect();
    folders.reverse();
    Some(folders.join("/"))
}

fn from_folder(
    root: &Path,
    wanted: &dyn Fn(&str) -> bool,
    each: &mut dyn FnMut(RawGame) -> Result<ControlFlow<()>, EnvError>,
) -> Result<ControlFlow<()>, EnvError> {
    let mut folders: Vec<PathBuf> = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let read_error = |source| EnvError::Read { path: folder.clone(), source };
        for entry in std::fs::read_dir(&folder).map_err(read_error)? {
            let entry = entry.map_err(read_error)?;
            let kind = entry.file_type().map_err(read_error)?;
            // Links are followed for files only, so that a link to a parent cannot make a ring.
            if kind.is_dir() {
                folders.push(entry.path());
            } else if entry.file_name() == FILE_NAME
                && from_file(&entry.path(), wanted, each)?.is_break()
            {
                return Ok(ControlFlow::Break(()));
            }
        }
    }
    Ok(ControlFlow::Continue(()))
}

fn from_file(
    path: &Path,
    wanted: &dyn Fn(&str) -> bool,
    each: &mut dyn FnMut(RawGame) -> Result<ControlFlow<()>, EnvError>,
) -> Result<ControlFlow<()>, EnvError> {
    // A path given as "." or "trial/game.tw-pddl" gets its folders from the file system.
    let full = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let Some(id) = id_of(&full.to_string_lossy()).filter(|id| wanted(id)) else {
        return Ok(ControlFlow::Continue(()));
    };
    let mut file = files::open(path)?;
    let bytes = read_limited(&mut file, &path.display().to_string())?;
    each(RawGame { path: path.display().to_string(), id, bytes })
}

fn from_zip(
    path: &Path,
    file: File,
    wanted: &dyn Fn(&str) -> bool,
    each: &mut dyn FnMut(RawGame) -> Result<ControlFlow<()>, EnvError>,
) -> Result<ControlFlow<()>, EnvError> {
    let broken = |error: zip::result::ZipError| damaged(path, &error);
    let mut archive = zip::ZipArchive::new(std::io::BufReader::new(file)).map_err(broken)?;
    for index in 0..archive.len() {
        let mut member = archive.by_index(index).map_err(broken)?;
        let inner = member.name().map_err(broken)?.into_owned();
        let Some(id) = id_of(&inner).filter(|id| wanted(id)) else { continue };
        let name = format!("{}:{inner}", path.display());
        let bytes = read_limited(&mut member, &name)?;
        if each(RawGame { path: name, id, bytes })?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

fn from_tar(
    path: &Path,
    file: File,
    wanted: &dyn Fn(&str) -> bool,
    each: &mut dyn FnMut(RawGame) -> Result<ControlFlow<()>, EnvError>,
) -> Result<ControlFlow<()>, EnvError> {
    let broken = |error: std::io::Error| damaged(path, &error);
    let decoder = zstd::Decoder::new(file).map_err(broken)?;
    let mut archive = tar::Archive::new(decoder);
    for member in archive.entries().map_err(broken)? {
        let mut member = member.map_err(broken)?;
        let inner = member.path().map_err(broken)?.to_string_lossy().into_owned();
        let Some(id) = id_of(&inner).filter(|id| wanted(id)) else { continue };
        let name = format!("{}:{inner}", path.display());
        let bytes = read_limited(&mut member, &name)?;
        if each(RawGame { path: name, id, bytes })?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

fn read_limited(reader: &mut dyn Read, name: &str) -> Result<Vec<u8>, EnvError> {
    let mut bytes = Vec::new();
    let read = reader.take(LARGEST + 1).read_to_end(&mut bytes);
    read.map_err(|source| EnvError::Read { path: name.into(), source })?;
    if bytes.len() as u64 > LARGEST {
        return Err(EnvError::Malformed {
            path: name.to_owned(),
            line: None,
            message: format!("larger than {} MB; this is no ALFWorld game", LARGEST >> 20),
        });
    }
    Ok(bytes)
}

fn damaged(path: &Path, error: &dyn std::fmt::Display) -> EnvError {
    EnvError::Malformed {
        path: path.display().to_string(),
        line: None,
        message: format!("the archive cannot be read ({error}); download it again"),
    }
}
