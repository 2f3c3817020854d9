//! What people see in a real terminal: one bar that moves, and nothing wider than the window.
#![cfg(unix)]

use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

mod tiny;

use tiny::{build_models, sets, settings};

/// Runs `command` with its standard error in a terminal of `columns` columns; what it drew there.
fn drawn(command: &mut Command, columns: u16) -> String {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&master).and_then(|()| unlockpt(&master)).expect("a terminal of our own");
    let name = ptsname(&master, Vec::new()).expect("it has a name").into_string();
    let window = Winsize { ws_row: 40, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&master, window).expect("it has a size");
    let end = File::options().read(true).write(true).open(name.expect("UTF-8")).expect("it opens");
    command.env("TERM", "xterm").stdout(Stdio::null()).stderr(end);
    let mut child = command.spawn().expect("lens starts");
    // The parent's copy of the terminal must close, or its reader never sees the end.
    command.stderr(Stdio::null());
    let reader = std::thread::spawn(move || {
        let mut drawn = Vec::new();
        let mut part = [0; 4096];
        // Linux answers with an error, not with an end of file, when the other side is gone.
        while let Ok(count @ 1..) = File::from(master.try_clone().expect("a copy")).read(&mut part)
        {
            drawn.extend_from_slice(&part[..count]);
        }
        drawn
    });
    assert!(child.wait().expect("lens ends").success());
    String::from_utf8_lossy(&reader.join().expect("it reads to the end")).into_owned()
}

/// The lines that were drawn, without the codes that move the cursor and color them.
fn lines(drawn: &str) -> Vec<String> {
    let mut plain = String::new();
    let mut letters = drawn.chars();
    while let Some(letter) = letters.next() {
        if letter == '\u{1b}' {
            letters.find(char::is_ascii_alphabetic);
        } else {
            plain.push(letter);
        }
    }
    plain.split(['\r', '\n']).map(str::to_owned).filter(|line| !line.trim().is_empty()).collect()
}

#[test]
fn a_sweep_has_one_bar_that_fits_the_window() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    build_models(folder.path());
    let mut command = Command::new(env!("CARGO_BIN_EXE_lens"));
    command.arg("sweep").args(settings(folder.path()));
    command.args(sets(&["name=seen", "train.steps=3", "seeds=[7]"]));
    command.args(["--methods", "opd,lens", "--jobs", "1", "--limit", "2"]);
    let drawn = drawn(&mut command, 60);
    let lines = lines(&drawn);
    // A line that stays is filled up to the window's edge, and the bar follows it without a new line.
    let bars = lines.iter().filter_map(|line| line.find("sweep step").map(|at| &line[at..]));
    let widths: Vec<usize> = bars.map(|bar| bar.chars().count()).collect();
    assert!(widths.len() > 5 && widths.iter().all(|&width| width <= 60), "{widths:?} {lines:#?}");
    assert!(lines.iter().any(|line| line.contains("0/6")), "it begins at nothing: {lines:#?}");
    assert!(lines.iter().any(|line| line.contains("--")), "no time is known at first: {lines:#?}");
    assert!(lines.iter().any(|line| line.contains("4/6")), "it moves within runs: {lines:#?}");
    assert!(lines.iter().any(|line| line.contains("2 of 2 runs")), "{lines:#?}");
}
