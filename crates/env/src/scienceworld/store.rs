//! Files that are written whole or not at all, so that several processes may share a cache folder.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::EnvError;

/// Writes `bytes` to `path` by way of a temporary file in the same folder, which is made if need be.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), EnvError> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let write = || -> std::io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let serial = COUNTER.fetch_add(1, Ordering::Relaxed);
        let temporary = folder.join(format!(".{name}.{}.{serial}", std::process::id()));
        let mut file = fs::File::create(&temporary)?;
        let written = file.write_all(bytes).and_then(|()| fs::rename(&temporary, path));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written
    };
    write().map_err(|error| EnvError::Missing {
        what: format!("a cache folder that can be written ({}: {error})", path.display()),
        hint: "set LENS_CACHE to a folder of yours".to_owned(),
    })
}
