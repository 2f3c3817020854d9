use std::io::Write;

use super::*;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    fn wheel(&self, name: &str, members: &[(&str, &[u8])]) -> PathBuf {
        let path = self.0.path().join(name);
        let mut zip = zip::ZipWriter::new(fs::File::create(&path).unwrap());
        for (member, bytes) in members {
            zip.start_file(*member, zip::write::SimpleFileOptions::default()).unwrap();
            zip.write_all(bytes).unwrap();
        }
        zip.finish().unwrap();
        path
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

fn complaint(path: &Path, cache: &Folder) -> String {
    Package::at(path, cache.path()).unwrap_err().to_string()
}

#[test]
fn another_release_is_refused_with_the_line_that_gets_the_right_one() {
    let (folder, cache) = (Folder::new(), Folder::new());
    let jar = folder.file("scienceworld.jar", b"not the simulator");
    folder.file(TYPES, b"");
    let text = complaint(&jar, &cache);
    assert!(text.contains("its SHA-256 is ") && text.contains(JAR_SHA256), "{text}");
    assert!(text.contains(DOWNLOAD), "{text}");
    // The same through the folder, and through a folder of installed packages.
    assert_eq!(complaint(folder.path(), &cache), text);
    let site = Folder::new();
    site.file("scienceworld/scienceworld.jar", b"not the simulator");
    assert!(complaint(site.path(), &cache).contains("its SHA-256 is "));
}

#[test]
fn a_wheel_of_another_release_is_refused_too() {
    let (folder, cache) = (Folder::new(), Folder::new());
    let members: [(&str, &[u8]); 2] = [
        ("scienceworld/scienceworld.jar", b"older"),
        ("scienceworld/object_type_ids.tsv", b"a\t1"),
    ];
    let wheel = folder.wheel("scienceworld-1.1.3-py3-none-any.whl", &members);
    for path in [wheel.as_path(), folder.path()] {
        let text = complaint(path, &cache);
        assert!(text.contains("its SHA-256 is "), "{text}");
    }
}

#[test]
fn broken_wheels_are_named() {
    let (folder, cache) = (Folder::new(), Folder::new());
    let empty = folder.wheel("scienceworld-1.2.3-py3-none-any.whl", &[("other.txt", b"")]);
    assert!(complaint(&empty, &cache).contains("scienceworld/scienceworld.jar"));
    let noise = folder.file("scienceworld-1.2.3-py3-none-any.whl", b"PK not a zip");
    let text = complaint(&noise, &cache);
    assert!(
        text.contains("scienceworld-1.2.3-py3-none-any.whl") && text.contains(DOWNLOAD),
        "{text}"
    );
}

#[test]
fn what_is_not_there_is_said() {
    let (folder, cache) = (Folder::new(), Folder::new());
    assert!(complaint(&folder.path().join("nowhere"), &cache).contains("nowhere"));
    assert!(complaint(folder.path(), &cache).contains(DOWNLOAD));
    let text = folder.file("notes.txt", b"");
    assert!(complaint(&text, &cache).contains("expected scienceworld.jar"));
}

#[test]
fn the_newest_py4j_that_can_authenticate_is_taken() {
    assert_eq!(py4j_version("py4j0.10.9.9.jar"), Some(vec![0, 10, 9, 9]));
    assert_eq!(py4j_version("py4j-0.10.3-py2.py3-none-any.whl"), Some(vec![0, 10, 3]));
    assert_eq!(py4j_version("py4jX.jar"), None);

    let cache = Folder::new();
    let find = |source: &Folder| find_gateway(source.path(), source.path(), cache.path()).unwrap();
    let old = Folder::new();
    old.file("py4j0.10.3.jar", b"");
    assert_eq!(find(&old), None);
    old.file("py4j0.10.9.9.jar", b"");
    let newest = old.file("py4j0.10.10.jar", b"");
    assert_eq!(find(&old), Some(newest));

    let target = Folder::new();
    let shared = target.file("share/py4j/py4j0.10.9.9.jar", b"");
    assert_eq!(find(&target), Some(shared));

    let wheels = Folder::new();
    let member = "py4j-0.10.9.9.data/data/share/py4j/py4j0.10.9.9.jar";
    wheels.wheel("py4j-0.10.9.9-py2.py3-none-any.whl", &[(member, b"classes")]);
    let unpacked = find(&wheels).unwrap();
    assert_eq!(fs::read(unpacked).unwrap(), b"classes");
}
