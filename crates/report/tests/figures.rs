//! Figures and findings against computations made here, independently, from a small recorded run.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use lens_records::RunFolder;
use lens_records::metrics::{
    BatchLine, DepthSupport, EvalLine, FocusMass, ForkKind, ForkRequest, ForkSummary, Measures,
    Record, RolloutStats, StepLine, TaskOutcome, TickLine, Verdict,
};
use lens_records::write::line;
use lens_report::compare::compare;
use lens_report::doctor::{Severity, brief, examine};
use lens_report::figures::ALL;
use lens_report::plot::Figure;
use lens_report::summary::Summary;
use lens_report::{Run, text};

const BATCHES: u64 = 12;
const EPISODES: u64 = 8;

/// Gains that differ by batch and episode and fall on both sides of zero.
fn gain(batch: u64, episode: u64) -> f64 {
    (batch as f64 * 7.0 + episode as f64 * 3.0) % 11.0 / 10.0 - 0.4
}

fn pace(batch: u64) -> Option<f64> {
    (batch < 10).then_some(0.5 + (batch % 4) as f64 * 0.25)
}

fn completed(batch: u64) -> u64 {
    batch.min(EPISODES) / 2
}

fn record(root: &Path, name: &str, seed: u64, solved: u64) -> RunFolder {
    let folder = root.join(name).join(format!("seed-{seed}"));
    fs::create_dir_all(&folder).expect("a folder");
    let method = if name == "plain" { "opd" } else { "lens" };
    let config = format!(
        "name = \"{name}\"\nmethod = \"{method}\"\n[task]\nbenchmark = \"webshop\"\nturn_limit = 10\n[train]\nsteps = 12\nbatch_size = 64\n"
    );
    fs::write(folder.join("config.toml"), config).expect("a file");
    let mut bytes = line(&eval(0, 4)).expect("a line");
    for batch in 1..=BATCHES {
        bytes.extend(line(&Record::Batch(Box::new(batch_line(batch)))).expect("a line"));
        bytes.extend(line(&Record::Step(step_line(batch))).expect("a line"));
    }
    bytes.extend(line(&eval(BATCHES, solved)).expect("a line"));
    fs::write(folder.join("metrics.jsonl"), bytes).expect("a file");
    RunFolder::open(&folder).expect("a run")
}

fn batch_line(batch: u64) -> BatchLine {
    let forks: Vec<ForkSummary> = (0..EPISODES).map(|episode| fork(batch, episode)).collect();
    BatchLine {
        horizon: batch.min(10),
        tick: Some(TickLine {
            depth: batch,
            valid_episodes: EPISODES,
            competence: Some(0.5),
            pace: pace(batch),
            next_depth: batch + 1,
        }),
        terminations: BTreeMap::from([
            ("completed".to_owned(), completed(batch)),
            ("curriculum_cutoff".to_owned(), EPISODES - completed(batch)),
        ]),
        complete_pairs: EPISODES - 1,
        accepted: forks.iter().filter(|fork| fork.verdict.accepted).count() as u64,
        forks,
        support_by_depth: Some(vec![
            DepthSupport { turn: 0, positions: 10, support: 0.1 * (batch % 3) as f64 },
            DepthSupport { turn: 1, positions: 30, support: 0.5 },
            DepthSupport { turn: 2, positions: 1, support: 0.9 },
        ]),
        rollout: Some(RolloutStats {
            turns: 100,
            parsed_turns: 40,
            response_tokens: 1000,
            ..RolloutStats::default()
        }),
        ..BatchLine::new(batch, batch - 1)
    }
}

fn fork(batch: u64, episode: u64) -> ForkSummary {
    // The last fork of every batch has no complete pair.
    let complete = episode + 1 < EPISODES;
    let gain = complete.then(|| gain(batch, episode));
    let accepted = gain.is_some_and(|gain| gain > 0.0);
    ForkSummary {
        request: ForkRequest {
            episode,
            turn: 0,
            kind: ForkKind::Hint { feedback: "incorporate".to_owned() },
            continuation_turns: 3,
            score_temperature: 1.0,
            divergence: episode as f64 * 0.1,
            pairs: None,
            coupling: None,
            play_on: false,
        },
        verdict: Verdict {
            base_value: gain.map(|_| -2.0),
            guided_value: gain.map(|gain| gain - 2.0),
            gain,
            pairs: None,
            standard_error: None,
            accepted,
        },
        reason: (!complete).then(|| "base.timeout".to_owned()),
        internalization_gap: Some(1.0 / batch as f64),
        focus: accepted.then_some(FocusMass {
            content_tokens: 20,
            target_tokens: 5,
            content_mass: 20.0,
            target_mass: 10.0,
        }),
    }
}

fn step_line(step: u64) -> StepLine {
    let text = format!(
        "{{\"format\":2,\"step\":{step},\"loss\":1.0,\"grad_norm\":1.0,\"opd_tokens\":90,\"gi_tokens\":{step}}}"
    );
    serde_json::from_str(&text).expect("a line")
}

fn eval(step: u64, solved: u64) -> Record {
    let tasks = (0..40).map(|task| TaskOutcome {
        task: format!("goal-{task}"),
        kind: "all".to_owned(),
        success: task < solved,
        score: 0.0,
        turns: 5,
        end: "completed".to_owned(),
    });
    Record::Eval(EvalLine {
        format: 2,
        step,
        batch: step,
        split: "test".to_owned(),
        all: Measures {
            tasks: 40,
            success_rate: 2.5 * solved as f64,
            score: Some(50.0),
            rounds: 7.0,
        },
        kinds: BTreeMap::new(),
        tasks: tasks.collect(),
    })
}

fn figure(runs: &[Run], name: &str) -> Figure {
    let kind = ALL.iter().find(|kind| kind.name == name).expect("a figure of that name");
    (kind.draw)(runs)
}

/// The rows of a figure's CSV for one panel and series: x, y, low, high.
fn rows(figure: &Figure, panel: &str, series: &str) -> Vec<[f64; 4]> {
    let csv = figure.csv();
    let number = |cell: &str| cell.parse().unwrap_or(f64::NAN);
    csv.lines()
        .skip(1)
        .map(|line| line.rsplitn(6, ',').collect::<Vec<_>>())
        .filter(|cells| {
            let names = cells[5].replace('"', "");
            names.contains(panel) && names.ends_with(&format!(",{series}"))
        })
        .map(|cells| [number(cells[4]), number(cells[3]), number(cells[2]), number(cells[1])])
        .collect()
}

fn runs() -> (tempfile::TempDir, Vec<Run>) {
    let folder = tempfile::tempdir().expect("a folder");
    let run = Run::load(record(folder.path(), "small", 1, 30));
    (folder, vec![run])
}

#[test]
fn support_is_pooled_by_positions_over_thirds() {
    let (_folder, runs) = runs();
    let figure = figure(&runs, "support");
    // Batches 1 to 4: supports 0.1, 0.2, 0.0, 0.1 at ten positions each. The paper counts turns from 1.
    let first = rows(&figure, "Support", "steps 0–3");
    assert_eq!(first.len(), 2, "a depth with four positions in all is left out");
    assert!((first[0][1] - 0.1).abs() < 1e-12 && first[0][0] == 1.0, "{first:?}");
    assert!((first[1][1] - 0.5).abs() < 1e-12);
}

#[test]
fn divergence_and_gain_are_the_forks() {
    let (_folder, runs) = runs();
    let figure = figure(&runs, "divergence");
    let (open, closed) = (rows(&figure, "KL", "gain > 0"), rows(&figure, "KL", "gain ≤ 0"));
    let gains: Vec<f64> = (1..=BATCHES)
        .flat_map(|batch| (0..EPISODES - 1).map(move |episode| gain(batch, episode)))
        .collect();
    assert_eq!(open.len(), gains.iter().filter(|&&gain| gain > 0.0).count());
    assert_eq!(open.len() + closed.len(), 84);
    assert!(open.iter().all(|row| row[1] > 0.0) && closed.iter().all(|row| row[1] <= 0.0));
}

#[test]
fn pace_is_averaged_over_seven_batches_and_ends_at_the_full_horizon() {
    let (_folder, runs) = runs();
    let figure = figure(&runs, "curriculum");
    assert_eq!(figure.name, "figure-5-curriculum", "WebShop's curriculum is figure 5");
    let recorded = rows(&figure, "Clock pace", "recorded");
    assert_eq!(recorded.len(), 9);
    let smooth = rows(&figure, "Clock pace", "7-batch mean");
    let mean: f64 = (1..=7).filter_map(pace).sum::<f64>() / 7.0;
    assert!((smooth[3][1] - mean).abs() < 1e-12, "the mean around batch 4");
    assert!(figure.svg().contains("full horizon"));
    let shares = rows(&figure, "Termination", "completed");
    for (batch, row) in (1..=BATCHES).zip(&shares) {
        assert!((row[1] - completed(batch) as f64 / EPISODES as f64).abs() < 1e-12);
    }
    let cut = rows(&figure, "Termination", "curriculum cutoff");
    assert!(cut.iter().all(|row| (row[3] - 1.0).abs() < 1e-12), "shares stack up to 1");
}

#[test]
fn validation_pools_complete_pairs_and_its_histogram_adds_up() {
    let (_folder, runs) = runs();
    let figure = figure(&runs, "validation");
    assert_eq!(figure.name, "figure-6-validation");
    let guided = rows(&figure, "Future scores", "guided");
    let window: Vec<f64> = (1..=4)
        .flat_map(|batch| (0..EPISODES - 1).map(move |episode| gain(batch, episode) - 2.0))
        .collect();
    let mean = window.iter().sum::<f64>() / window.len() as f64;
    assert!((guided[0][1] - mean).abs() < 1e-12, "batches 1 to 4 around the first");
    let unguided = rows(&figure, "Future scores", "unguided");
    assert!(unguided.iter().all(|row| (row[1] + 2.0).abs() < 1e-12));
    let (closed, open) = (rows(&figure, "gains", "closed"), rows(&figure, "gains", "open"));
    let sum = |bars: &[[f64; 4]]| bars.iter().map(|bar| bar[1]).sum::<f64>();
    assert!((sum(&closed) + sum(&open) - 1.0).abs() < 1e-9);
    let positive = (1..=BATCHES)
        .flat_map(|batch| (0..EPISODES - 1).map(move |episode| gain(batch, episode)))
        .filter(|&gain| gain > 0.0)
        .count();
    assert!((sum(&open) - positive as f64 / 84.0).abs() < 1e-9);
    assert!(figure.svg().contains("84 complete pairs"), "the sample size is on the figure");
}

#[test]
fn allocation_shows_trained_tokens_gap_and_mass() {
    let (_folder, runs) = runs();
    let figure = figure(&runs, "allocation");
    let share = rows(&figure, "Internalization", "guided share");
    let mean: f64 =
        (1..=7).map(|step| f64::from(step) / (90.0 + f64::from(step))).sum::<f64>() / 7.0;
    assert!((share[3][1] - mean).abs() < 1e-12, "trained tokens, after rows too old were dropped");
    assert!(rows(&figure, "Target", "of weight").iter().all(|row| (row[1] - 0.5).abs() < 1e-12));
    assert!(rows(&figure, "Target", "of tokens").iter().all(|row| (row[1] - 0.25).abs() < 1e-12));
}

#[test]
fn seeds_make_a_band_and_runs_are_compared_task_by_task() {
    let folder = tempfile::tempdir().expect("a folder");
    record(folder.path(), "plain", 1, 10);
    record(folder.path(), "small", 1, 30);
    record(folder.path(), "small", 2, 20);
    let runs = Run::load_all(&[folder.path()]);
    let comparison = compare(&runs);
    let labels: Vec<&str> = comparison.groups.iter().map(|group| group.label.as_str()).collect();
    assert_eq!(labels, ["plain (opd)", "small (lens)"]);
    let last = comparison.curves[0].groups[1].last().expect("an evaluation");
    // 75 % and 50 %: mean 62.5, sample standard deviation 17.68.
    assert!((last.mean - 62.5).abs() < 1e-9 && (last.high - 80.177_67).abs() < 1e-4, "{last:?}");
    let difference = &comparison.differences[0];
    assert!(difference.paired && difference.tasks == 40 && difference.clear);
    assert!((difference.success.estimate - 50.0).abs() < 1e-9, "seed 1 against seed 1");
    let keys: Vec<&str> = comparison.settings.iter().map(|row| row.key.as_str()).collect();
    assert_eq!(keys, ["method"]);
    let band = rows(&figure(&runs, "learning"), "test", "small (lens)");
    assert!(band.iter().any(|row| (row[3] - 80.177_67).abs() < 1e-4), "{band:?}");
}

#[test]
fn every_figure_is_well_formed_and_says_when_it_has_no_data() {
    let (_folder, runs) = runs();
    for kind in ALL {
        let figure = (kind.draw)(&runs);
        assert_eq!(figure.is_empty(), kind.name == "response", "{}", kind.name);
        let svg = figure.svg();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        assert_eq!(svg.matches("<g").count(), svg.matches("</g>").count(), "{}", kind.name);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{}", kind.name);
        assert!((kind.draw)(&[]).is_empty(), "{} of nothing", kind.name);
        let png = figure.png().expect(kind.name);
        assert!(png.starts_with(b"\x89PNG\r\n\x1a\n"), "{}", kind.name);
        let number =
            |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().expect("four bytes"));
        let points = svg.split_once("viewBox=\"0 0 ").expect("a size").1;
        let width: f64 = points.split_once(' ').expect("a width").0.parse().expect("a number");
        assert_eq!(f64::from(number(16)), (width * 300.0 / 72.0).ceil(), "{}", kind.name);
    }
    let student = r#"{"seed":1,"students":[{"student":"a/<b>","findings":{"responses":[{"high_support":false,"high_confidence":true,"tokens":9,"response":{"estimate":0.5,"low":0.25,"high":0.75}}]}}]}"#;
    fs::write(runs[0].folder.path().join("diagnose.json"), student).expect("a file");
    let figure = figure(&runs, "response");
    assert_eq!(rows(&figure, "Response", "low support").len(), 1);
    assert!(figure.svg().contains("&lt;b&gt;"), "names are escaped");
}

#[test]
fn the_doctor_names_what_is_wrong_with_evidence() {
    let (_folder, runs) = runs();
    let findings = examine(&runs[0]);
    let codes: Vec<&str> = findings.iter().map(|finding| finding.code).collect();
    assert_eq!(codes[0], "rollout.unparsed");
    assert_eq!(findings[0].severity, Severity::Problem);
    assert!(findings[0].evidence.contains("40 %"), "{}", findings[0].evidence);
    assert!(!codes.contains(&"gate.closed") && !codes.contains(&"evaluation.falling"));
    assert!(brief(&findings, 3).len() <= 3);
    let summary = text::summary(&Summary::new(&runs[0]), &findings);
    assert!(summary.contains("small · seed 1  [finished]"), "{summary}");
    assert!(summary.contains("10.0 ->  75.0 %"), "{summary}");
}

#[test]
fn a_run_is_read_while_it_is_written_and_resumed() {
    let folder = tempfile::tempdir().expect("a folder");
    let run_folder = record(folder.path(), "small", 1, 30);
    let path = run_folder.path().join("metrics.jsonl");
    let whole = fs::read(&path).expect("a file");
    let lines: Vec<&[u8]> = whole.split_inclusive(|&byte| byte == b'\n').collect();
    fs::write(&path, [lines[..5].concat(), lines[5][..20].to_vec()].concat()).expect("a file");
    let mut run = Run::load(run_folder);
    assert_eq!((run.batches.len(), run.problems.len()), (2, 0), "an unfinished line is no damage");
    assert!(!run.refresh(), "nothing new");
    fs::write(&path, &whole).expect("a file");
    assert!(run.refresh());
    assert_eq!((run.batches.len(), run.evals.len()), (12, 2));
    fs::write(&path, lines[..3].concat()).expect("a file");
    assert!(run.refresh());
    assert_eq!(
        (run.batches.len(), run.steps.len()),
        (1, 1),
        "a resumed run starts over from its checkpoint"
    );
}
