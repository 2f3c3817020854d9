//! Finds the simulator's JAR, which the user downloads: in a wheel, in a folder, or in an installed Python package.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::EnvError;

/// The release that the recordings were made with, and the only one whose course of events is known.
pub const VERSION: &str = "1.2.3";

/// The SHA-256 of that release's `scienceworld.jar`.
pub const JAR_SHA256: &str = "f4e1fdce0cdabe1bab7128a7e78ea820210d9db3c28d7272bcbbc3f3a1c5f0d7";

/// The environment variable that names the JAR, a wheel, or a folder with either.
pub const VARIABLE: &str = "LENS_SCIENCEWORLD";

/// The one line that gets everything.
pub const DOWNLOAD: &str =
    "pip download --no-deps scienceworld==1.2.3 py4j==0.10.9.9 -d scienceworld";

const JAR: &str = "scienceworld.jar";
/// The simulator reads this from its working directory, and writes one of its own making if it is not there.
const TYPES: &str = "object_type_ids.tsv";

/// The oldest py4j that can ask for a token.
const OLDEST_AUTHENTICATING: [u32; 3] = [0, 10, 7];

/// The simulator's files, verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    jar: PathBuf,
    directory: PathBuf,
    gateway_jar: Option<PathBuf>,
}

impl Package {
    /// Finds the package: at `path` if given, else where [`VARIABLE`] points, else in the usual places of installed
    /// Python packages. A wheel is unpacked into `cache`.
    pub fn find(path: Option<&Path>, cache: &Path) -> Result<Self, EnvError> {
        if let Some(path) = path {
            return Self::at(path, cache);
        }
        if let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
            return Self::at(Path::new(&path), cache);
        }
        for folder in installed_folders() {
            if folder.join("scienceworld").join(JAR).is_file() {
                return Self::at(&folder, cache);
            }
        }
        Err(EnvError::Missing {
            what: "the ScienceWorld simulator".to_owned(),
            hint: format!(
                "no installed Python package has it and {VARIABLE} is not set; get it with\n  {DOWNLOAD}\n\
                 and set {VARIABLE}=scienceworld (the folder made by that line)"
            ),
        })
    }

    /// The package at `path`: a `.jar`, a `.whl`, or a folder with either or with installed packages.
    pub fn at(path: &Path, cache: &Path) -> Result<Self, EnvError> {
        let path = fs::canonicalize(path)
            .map_err(|source| EnvError::Read { path: path.to_owned(), source })?;
        let jar = if path.is_dir() { in_folder(&path, cache)? } else { from_file(&path, cache)? };
        let directory = jar.parent().unwrap_or(Path::new("/")).to_owned();
        verify(&jar)?;
        if !directory.join(TYPES).is_file() {
            return Err(EnvError::Missing {
                what: format!("{TYPES} beside {}", jar.display()),
                hint: format!("both files are in the wheel; get it with\n  {DOWNLOAD}"),
            });
        }
        let gateway_jar = find_gateway(&path, &directory, cache)?;
        Ok(Self { jar, directory, gateway_jar })
    }

    /// The simulator's JAR.
    pub fn jar(&self) -> &Path {
        &self.jar
    }

    /// The folder that the simulator must run in.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// A newer py4j than the one inside the simulator's JAR.
    pub fn gateway_jar(&self) -> Option<&Path> {
        self.gateway_jar.as_deref()
    }

    /// Whether the gateway will ask for a token. Without a newer py4j it is only bound to the loopback address.
    pub fn authenticates(&self) -> bool {
        self.gateway_jar.is_some()
    }
}

/// Where unpacked wheels and gold paths are kept: `LENS_CACHE`, else the user's cache folder.
pub fn cache_folder() -> PathBuf {
    let named = |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty());
    named("LENS_CACHE")
        .map(PathBuf::from)
        .or_else(|| named("XDG_CACHE_HOME").map(|base| Path::new(&base).join("lens")))
        .or_else(|| named("HOME").map(|home| Path::new(&home).join(".cache").join("lens")))
        .unwrap_or_else(|| std::env::temp_dir().join("lens-cache"))
        .join("scienceworld")
}

fn in_folder(folder: &Path, cache: &Path) -> Result<PathBuf, EnvError> {
    for jar in [folder.join(JAR), folder.join("scienceworld").join(JAR)] {
        if jar.is_file() {
            return Ok(jar);
        }
    }
    let wheels = files(folder, |name| name.starts_with("scienceworld-") && name.ends_with(".whl"))?;
    let wanted = format!("scienceworld-{VERSION}-");
    let wheel =
        wheels.iter().find(|wheel| file_name(wheel).starts_with(&wanted)).or(wheels.first());
    match wheel {
        Some(wheel) => unpack_simulator(wheel, cache),
        None => Err(EnvError::Missing {
            what: format!("the ScienceWorld simulator in {}", folder.display()),
            hint: format!(
                "neither {JAR} nor scienceworld/{JAR} nor a scienceworld wheel is there; get one with\n  {DOWNLOAD}"
            ),
        }),
    }
}

fn from_file(path: &Path, cache: &Path) -> Result<PathBuf, EnvError> {
    match path.extension().and_then(OsStr::to_str) {
        Some("jar") => Ok(path.to_owned()),
        Some("whl") => unpack_simulator(path, cache),
        _ => Err(EnvError::Malformed {
            path: path.display().to_string(),
            line: None,
            message: format!(
                "expected {JAR}, a .whl file, or a folder; get the wheel with\n  {DOWNLOAD}"
            ),
        }),
    }
}

fn verify(jar: &Path) -> Result<(), EnvError> {
    let bytes = fs::read(jar).map_err(|source| EnvError::Read { path: jar.to_owned(), source })?;
    let digest = hex(&Sha256::digest(&bytes));
    if digest == JAR_SHA256 {
        return Ok(());
    }
    Err(EnvError::Malformed {
        path: jar.display().to_string(),
        line: None,
        message: format!(
            "its SHA-256 is {digest}, but that of release {VERSION} is {JAR_SHA256}; another release plays other \
             episodes, so get this one with\n  {DOWNLOAD}"
        ),
    })
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Unpacks the two files of a simulator's wheel that matter.
fn unpack_simulator(wheel: &Path, cache: &Path) -> Result<PathBuf, EnvError> {
    let folder = cache.join(format!("package-{VERSION}"));
    let jar = folder.join(JAR);
    if !(jar.is_file() && verify(&jar).is_ok()) {
        unpack(wheel, &format!("scienceworld/{JAR}"), &jar)?;
    }
    unpack(wheel, &format!("scienceworld/{TYPES}"), &folder.join(TYPES))?;
    Ok(jar)
}

/// Writes one member of an archive to a file, all of it or nothing.
fn unpack(archive: &Path, member: &str, to: &Path) -> Result<(), EnvError> {
    let read = |source| EnvError::Read { path: archive.to_owned(), source };
    let malformed = |message: String| EnvError::Malformed {
        path: archive.display().to_string(),
        line: None,
        message: format!("{message}; download it again:\n  {DOWNLOAD}"),
    };
    let file = fs::File::open(archive).map_err(read)?;
    let mut zip = zip::ZipArchive::new(file).map_err(|error| malformed(error.to_string()))?;
    let mut entry = zip.by_name(member).map_err(|error| malformed(format!("{member}: {error}")))?;
    let mut bytes = Vec::new();
    entry.read_to_end(&mut bytes).map_err(|error| malformed(format!("{member}: {error}")))?;
    super::store::write_whole(to, &bytes)
}

/// A py4j that can authenticate, near the place the simulator came from: a JAR or a wheel beside it, or the shared
/// data folder of the Python installation it belongs to.
fn find_gateway(
    source: &Path,
    directory: &Path,
    cache: &Path,
) -> Result<Option<PathBuf>, EnvError> {
    let beside = if source.is_dir() { source } else { source.parent().unwrap_or(source) };
    let mut folders = vec![beside.to_owned(), directory.to_owned()];
    // site-packages of an installation is PREFIX/lib/pythonX.Y/site-packages; `pip --target DIR` makes DIR/share.
    for base in [Some(beside), directory.parent()].into_iter().flatten() {
        folders.push(base.join("share").join("py4j"));
        if let Some(prefix) = base.ancestors().nth(3) {
            folders.push(prefix.join("share").join("py4j"));
        }
    }
    let newest = |candidates: Vec<PathBuf>| {
        candidates
            .into_iter()
            .filter_map(|path| Some((py4j_version(&file_name(&path))?, path)))
            .filter(|(version, _)| version.as_slice() >= OLDEST_AUTHENTICATING.as_slice())
            .max()
            .map(|(_, path)| path)
    };
    for folder in folders.iter().filter(|folder| folder.is_dir()) {
        let jars = files(folder, |name| name.starts_with("py4j") && name.ends_with(".jar"))?;
        if let Some(jar) = newest(jars) {
            return Ok(Some(jar));
        }
        let wheels = files(folder, |name| name.starts_with("py4j-") && name.ends_with(".whl"))?;
        if let Some(wheel) = newest(wheels) {
            return unpack_gateway(&wheel, cache).map(Some);
        }
    }
    Ok(None)
}

fn unpack_gateway(wheel: &Path, cache: &Path) -> Result<PathBuf, EnvError> {
    let name = file_name(wheel);
    let version = name.split('-').nth(1).unwrap_or_default();
    let jar = cache.join(format!("package-{VERSION}")).join(format!("py4j{version}.jar"));
    if !jar.is_file() {
        let member = format!("py4j-{version}.data/data/share/py4j/py4j{version}.jar");
        unpack(wheel, &member, &jar)?;
    }
    Ok(jar)
}

/// The version in `py4j0.10.9.9.jar` or `py4j-0.10.9.9-py2.py3-none-any.whl`.
fn py4j_version(name: &str) -> Option<Vec<u32>> {
    let rest = name.strip_prefix("py4j")?;
    let rest = rest.strip_prefix('-').unwrap_or(rest);
    let version = rest.strip_suffix(".jar").or_else(|| rest.split('-').next())?;
    version.split('.').map(|number| number.parse().ok()).collect()
}

/// The folders in which Python packages are usually installed, the most particular first.
fn installed_folders() -> Vec<PathBuf> {
    let mut prefixes: Vec<PathBuf> = Vec::new();
    for variable in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        prefixes.extend(std::env::var_os(variable).map(PathBuf::from));
    }
    prefixes.push(PathBuf::from(".venv"));
    if let Some(home) = std::env::var_os("HOME").map(PathBuf::from) {
        prefixes.push(home.join(".local"));
        let mut versions =
            files(&home.join(".pyenv").join("versions"), |_| true).unwrap_or_default();
        versions.reverse();
        prefixes.extend(versions);
    }
    prefixes.extend(["/usr/local", "/usr"].map(PathBuf::from));
    let mut folders = Vec::new();
    for prefix in prefixes {
        let library = prefix.join("lib");
        for python in files(&library, |name| name.starts_with("python3")).unwrap_or_default() {
            folders.extend(["site-packages", "dist-packages"].map(|name| python.join(name)));
        }
    }
    folders
}

/// What lies in a folder and has a name that fits, sorted.
fn files(folder: &Path, fits: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>, EnvError> {
    let read = |source| EnvError::Read { path: folder.to_owned(), source };
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(read)? {
        let path = entry.map_err(read)?.path();
        if fits(&file_name(&path)) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
