//! A long run of a large model: 250 batches x 16 episodes x 30 turns x 512 tokens. Ignored by default; run with
//! `cargo test --release -p lens-view --test scale -- --ignored --nocapture`.

mod common;

use std::time::{Duration, Instant};

use lens_view::api::{Answer, Library, answer};

const SIZE: common::Size = common::Size { batches: 250, episodes: 16, turns: 30, tokens: 512 };

/// The largest memory this process has had since [`forget_peak`], in MB; Linux only.
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? / 1024)
}

fn forget_peak() {
    // Without the right to do so the peak includes the making of the run; the limit then fails loudly.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

#[test]
#[ignore = "writes a run of several gigabytes of tokens; a benchmark"]
#[expect(clippy::print_stdout, reason = "a benchmark prints what it measured")]
fn a_long_run_opens_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = folder.path().join("demo").join("seed-7");
    // Every batch has the same episodes; one file is made and linked.
    common::record(folder.path(), &common::Size { batches: 1, ..SIZE });
    let first = run.join("episodes/batch-000001.jsonl.zst");
    let mut metrics = Vec::new();
    for batch in 1..=SIZE.batches {
        metrics.extend(common::batch_lines(batch, &SIZE));
        let path = run.join(format!("episodes/batch-{batch:06}.jsonl.zst"));
        if batch > 1 {
            std::fs::hard_link(&first, path).expect("a link");
        }
    }
    std::fs::write(run.join("metrics.jsonl"), &metrics).expect("a file");
    let packed = std::fs::metadata(&first).expect("a file").len();
    let line = serde_json::to_vec(&common::episode_line(1, 0, &SIZE)).expect("JSON").len();
    let unpacked = line as u64 * SIZE.episodes * SIZE.batches;
    println!(
        "metrics {} MB, episodes {} MB packed, {} MB unpacked",
        metrics.len() >> 20,
        (packed * SIZE.batches) >> 20,
        unpacked >> 20
    );
    drop(metrics);
    forget_peak();

    let timed = |what: &str, limit: Duration, work: &mut dyn FnMut() -> usize| {
        let started = Instant::now();
        let bytes = work();
        let took = started.elapsed();
        println!("{what:<28} {took:>10.1?}  {:>8} KB", bytes >> 10);
        assert!(took < limit, "{what} took {took:?}, limit {limit:?}");
    };
    let started = Instant::now();
    let library = Library::open(vec![folder.path().to_owned()]);
    let ask =
        |path: &str| answer(&library, path, "").and_then(Answer::finish).expect("an answer").len();
    let one = Duration::from_secs(1);
    timed("run page", one, &mut || ask("run/demo-7"));
    let open = started.elapsed();
    println!("{:<28} {open:>10.1?}", "open and first page");
    assert!(open < one, "{open:?}");
    timed("list of 4,000 episodes", one, &mut || ask("run/demo-7/episodes"));
    timed("doctor", 10 * one, &mut || ask("run/demo-7/doctor"));
    let tenth = Duration::from_millis(100);
    timed("first episode of a batch", tenth, &mut || ask("run/demo-7/episode/200/0"));
    timed("last episode of a batch", tenth, &mut || ask("run/demo-7/episode/200/15"));
    if let Some(peak) = peak() {
        println!("{:<28} {peak:>7} MB", "largest memory");
        assert!(peak < 200, "{peak} MB");
    }
}
