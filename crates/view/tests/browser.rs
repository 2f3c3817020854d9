//! The viewer in a real browser. Needs Chromium and node; says so when it is skipped, and fails instead of skipping when
//! `LENS_REQUIRE_BROWSER=1` is set.

mod common;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use lens_view::api::Library;
use lens_view::export::document;
use lens_view::server::Server;

/// Why the test cannot run here.
fn obstacle() -> Option<String> {
    let works = |program: &str| {
        Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
    };
    let chromium =
        std::env::var("LENS_CHROMIUM").unwrap_or_else(|_| "/usr/bin/chromium".to_owned());
    for program in [chromium.as_str(), "node", "npm"] {
        if !works(program) {
            return Some(format!("{program} is missing; apt-get install chromium nodejs npm"));
        }
    }
    None
}

/// A folder with the script and its packages, installed once per target directory.
fn workshop() -> Result<PathBuf, String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser");
    std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    for name in ["package.json", "drive.js"] {
        std::fs::copy(source.join(name), folder.join(name)).map_err(|error| error.to_string())?;
    }
    let install = Command::new("npm")
        .args(["install", "--no-audit", "--no-fund", "--no-package-lock"])
        .current_dir(&folder)
        .output()
        .map_err(|error| error.to_string())?;
    if install.status.success() {
        Ok(folder)
    } else {
        Err(format!("npm install: {}", String::from_utf8_lossy(&install.stderr)))
    }
}

#[test]
fn a_person_finds_an_accepted_fork_and_sees_why() {
    let ready = obstacle().map_or_else(workshop, Err);
    let workshop = match ready {
        Ok(workshop) => workshop,
        Err(why) if std::env::var("LENS_REQUIRE_BROWSER").as_deref() == Ok("1") => {
            panic!("the browser test is required but cannot run: {why}")
        }
        Err(why) => {
            #[expect(clippy::print_stderr, reason = "a skipped test must say so")]
            {
                eprintln!("SKIPPED: {why}");
            }
            return;
        }
    };
    let folder = tempfile::tempdir().expect("a folder");
    let run = common::record(folder.path(), &common::SMALL);
    let roots = vec![folder.path().to_owned()];
    let exported = folder.path().join("report.html");
    let page = document(&Library::open(roots.clone()), 40).expect("it can be written");
    std::fs::write(&exported, page).expect("a file");
    // What the run writes while the page is open: one more batch, and its episodes first, as a trainer does.
    let more = folder.path().join("more.jsonl");
    std::fs::write(&more, common::batch_lines(5, &common::SMALL)).expect("a file");
    let episodes: Vec<_> =
        (0..3).map(|episode| common::episode_line(5, episode, &common::SMALL)).collect();
    let packed = lens_records::write::packed_episodes(&episodes).expect("packed");
    std::fs::write(run.join("episodes/batch-000005.jsonl.zst"), packed).expect("a file");
    let shots = workshop.join("screenshots");
    std::fs::create_dir_all(&shots).expect("a folder");

    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = runtime.block_on(Server::listen(any, roots, Vec::new())).expect("a free port");
    let address = server.address();
    runtime.spawn(server.serve(std::future::pending()));
    let output = Command::new("node")
        .arg("drive.js")
        .arg(&address)
        .args([&exported, &run.join("metrics.jsonl"), &more, &shots])
        .current_dir(&workshop)
        .output()
        .expect("node runs");
    let told = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    assert!(told.contains("browser test passed"), "{told}");
}
