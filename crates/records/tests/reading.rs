//! What readers do with files as they are found: old, cut off, damaged, growing, hostile.

use std::fs::{File, create_dir_all, write};
use std::io::{Cursor, Write};
use std::path::Path;

use lens_records::episodes::{BranchTurn, Favorites, ForkLine, Tokens, TurnLine};
use lens_records::folder::collect;
use lens_records::lines::Lines;
use lens_records::metrics::{BatchLine, ForkKind, StepLine};
use lens_records::write::{line, packed_episodes};
use lens_records::{EpisodeLine, FORMAT, ReadProblem, Record, RunFolder, RunState, TimingLine};
use proptest::prelude::*;

/// Lines as format 1 wrote them.
const OLD: &str = include_str!("format-1.jsonl");
const OLD_EPISODE: &str = include_str!("format-1-episode.json");

fn step(step: u64) -> Record {
    Record::Step(StepLine {
        format: FORMAT,
        step,
        batch: Some(1),
        loss: Some(0.25),
        focus_loss: Some(0.2),
        internalization_loss: Some(0.05),
        grad_norm: None,
        skipped: false,
        trajectories: 4,
        opd_tokens: 100,
        gi_tokens: 7,
        trained: None,
        internalize_share: None,
        tokens: Some(900),
        oldest_version: 0,
    })
}

fn episode(key: u64) -> EpisodeLine {
    let tokens = Tokens {
        ids: vec![5, 6, 7],
        student_logprobs: vec![Some(-0.1), Some(-2.5e-8), None],
        teacher_logprobs: vec![Some(-0.3), Some(-1.0), Some(-4.0)],
        kl: vec![Some(0.5), Some(1.5), Some(9.0)],
        weights: vec![1.0, 1.25, 0.0],
        masked: vec![2],
        favorites: Some(Favorites {
            student: vec![Some(5), Some(8), None],
            teacher: vec![Some(5), Some(6), None],
            ..Favorites::default()
        }),
    };
    EpisodeLine {
        format: FORMAT,
        batch: 3,
        episode: key,
        task: "pick-1".to_owned(),
        task_kind: "pick".to_owned(),
        goal: Some("put a cup\nin the fridge".to_owned()),
        version: 2,
        horizon: 4,
        prefix: 0,
        end: "turn_limit".to_owned(),
        success: false,
        score: Some(0.0),
        failure: None,
        turns: vec![TurnLine {
            actor: "student".to_owned(),
            observation: "\u{1b}[31m<script>alert(1)</script>\u{0}".to_owned(),
            tokens: tokens.clone(),
            ..TurnLine::default()
        }],
        forks: vec![ForkLine {
            turn: 0,
            hint: Some("look".to_owned()),
            hint_prompt: None,
            hinted_prompt: None,
            evaluator: None,
            base: vec![BranchTurn { tokens, ..BranchTurn::default() }],
            guided: Vec::new(),
            base_end: Some("horizon".to_owned()),
            guided_end: None,
            base_score: Some(0.5),
            guided_score: None,
            repeats: Vec::new(),
            record: None,
        }],
        token_text: [(5, " cup".to_owned()), (6, "\"".to_owned())].into(),
    }
}

fn records(text: &[u8]) -> (Vec<Record>, Vec<ReadProblem>) {
    let source = Box::new(Cursor::new(text.to_vec()));
    collect(Lines::new(source, Path::new("metrics.jsonl"), 4096))
}

#[test]
fn lines_of_format_1_still_read() {
    let (records, problems) = records(OLD.as_bytes());
    assert!(problems.is_empty(), "{problems:?}");
    let [Record::Eval(eval), Record::Batch(batch), Record::Step(first), Record::Step(skipped)] =
        records.as_slice()
    else {
        panic!("four lines: {records:?}")
    };
    assert_eq!((eval.format, eval.all.tasks, eval.tasks.len()), (1, 2, 0));
    assert_eq!((batch.format, batch.horizon, batch.forks.len()), (1, 1, 2));
    assert_eq!(batch.forks[0].request.kind, ForkKind::Hint { feedback: "incorporate".to_owned() });
    assert_eq!(batch.forks[0].verdict.gain, Some(0.125));
    assert_eq!(batch.forks[1].reason.as_deref(), Some("dropped.hint_empty"));
    assert!(batch.rollout.is_none());
    assert_eq!((first.step, first.loss), (1, Some(0.75)));
    assert_eq!((skipped.loss, skipped.skipped), (None, true), "not finite was written as null");
    let old: EpisodeLine =
        Lines::parse(Path::new("x"), 1, OLD_EPISODE.as_bytes()).expect("it reads");
    assert_eq!((old.format, old.turns.len(), old.forks.len()), (1, 2, 1));
    assert_eq!(old.turns[0].tokens.ids.len(), old.turns[0].tokens.kl.len());
    assert!(old.turns[1].tokens.weights.is_empty(), "null weights");
    assert_eq!(old.forks[0].guided[0].action.as_deref(), Some("look"));
}

#[test]
fn what_is_written_is_read_again_and_has_the_same_bytes() {
    let lines = [step(1), Record::Batch(Box::new(BatchLine::new(1, 0)))];
    let mut text = Vec::new();
    for record in &lines {
        let bytes = line(record).expect("it can be written");
        assert_eq!(bytes.split(|&byte| byte == b'\n').count(), 2, "one line and its end");
        text.extend(bytes);
    }
    assert_eq!(records(&text).0, lines);
    let episodes = [episode(0), episode(1)];
    let packed = packed_episodes(&episodes).expect("it can be packed");
    assert_eq!(packed, packed_episodes(&episodes).expect("it can be packed"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("batch-000003.jsonl.zst");
    write(&path, packed).expect("it can be written");
    let (read, problems) = collect(Lines::<EpisodeLine>::open_packed(&path).expect("it opens"));
    assert!(problems.is_empty());
    assert_eq!(read, episodes);
}

#[test]
fn damage_is_reported_with_its_line_and_reading_goes_on() {
    let mut text = line(&step(1)).expect("it can be written");
    text.extend(b"{\"kind\":\"step\",\"step\":\"two\"}\n");
    text.extend(b"\xff\xfe\n\n");
    text.extend(b"{\"kind\":\"step\",\"format\":99,\"steps\":[]}\n");
    text.extend(vec![b'x'; 5000]);
    text.extend(b"\n");
    text.extend(line(&step(2)).expect("it can be written"));
    text.extend(b"{\"kind\":\"step\",\"step\":3");
    let (records, problems) = records(&text);
    assert_eq!(records, [step(1), step(2)]);
    let found: Vec<_> = problems.iter().map(lens_records::ReadProblem::line).collect();
    assert_eq!(found, [Some(2), Some(3), Some(5), Some(6), Some(8)]);
    assert!(matches!(problems[0], ReadProblem::Damaged { .. }));
    assert!(matches!(problems[2], ReadProblem::Newer { found: 99, supported: FORMAT, .. }));
    assert!(matches!(problems[3], ReadProblem::TooLong { limit: 4096, .. }));
    assert!(matches!(problems[4], ReadProblem::Unfinished { .. }));
    assert!(problems[4].may_pass() && !problems[0].may_pass());
    assert!(problems[0].to_string().starts_with("`metrics.jsonl`:2: "));
}

#[test]
fn a_cut_off_frame_gives_the_whole_lines_before_the_cut() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("batch-000003.jsonl.zst");
    // Random-looking text does not compress, so the cut falls behind the first blocks.
    let mut episodes: Vec<EpisodeLine> = (0..40).map(episode).collect();
    let mut state = 1_u64;
    for episode in &mut episodes {
        let text = (0..20_000).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            char::from(b'a' + (state >> 60) as u8)
        });
        episode.failure = Some(text.collect());
    }
    let packed = packed_episodes(&episodes).expect("it can be packed");
    write(&path, &packed[..packed.len() * 2 / 3]).expect("it can be written");
    let (read, problems) = collect(Lines::<EpisodeLine>::open_packed(&path).expect("it opens"));
    assert!(!read.is_empty() && read.len() < 40, "{} lines", read.len());
    assert_eq!(read, episodes[..read.len()]);
    assert!(matches!(problems.as_slice(), [ReadProblem::CutOff { .. }]), "{problems:?}");
    let mut broken = packed.clone();
    let middle = broken.len() / 2;
    broken[middle] ^= 0x40;
    write(&path, &broken).expect("it can be written");
    let (_, problems) = collect(Lines::<EpisodeLine>::open_packed(&path).expect("it opens"));
    assert!(!problems.is_empty(), "a flipped bit is noticed");
}

#[test]
fn a_growing_file_is_followed_from_where_it_was_left() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("metrics.jsonl");
    let mut file = File::create(&path).expect("it can be made");
    file.write_all(&line(&step(1)).expect("a line")).expect("it can be written");
    file.write_all(b"{\"kind\":").expect("it can be written");
    let run = RunFolder::open(folder.path()).expect("a run");
    let mut lines = run.metrics().expect("it opens");
    assert!(matches!(lines.next(), Some(Ok(Record::Step(_)))));
    assert!(matches!(lines.next(), Some(Err(ReadProblem::Unfinished { line: 2, .. }))));
    let position = lines.position();
    file.write_all(&line(&step(2)).expect("a line")[8..]).expect("it can be written");
    let (lines, again) = run.metrics_since(position).expect("it opens");
    let (records, problems) = collect(lines);
    assert!(!again && problems.is_empty());
    assert_eq!(records, [step(2)]);
    file.set_len(3).expect("it can be cut");
    assert!(run.metrics_since(position).expect("it opens").1, "a shorter file starts over");
}

#[test]
fn the_state_of_a_run_is_what_its_files_say() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("a").join("seed-1");
    create_dir_all(path.join("episodes")).expect("folders");
    assert!(RunFolder::open(&path).is_none());
    write(path.join("config.toml"), "name = \"a\"\n\n[train]\nsteps = 1_0 # few\n")
        .expect("a file");
    let runs = RunFolder::find(folder.path(), 3);
    assert_eq!(runs.len(), 1);
    let run = &runs[0];
    assert_eq!(run.config_number("train", "steps"), Some(10));
    assert_eq!(run.state(0), RunState::Empty);
    let text = line(&step(4)).expect("a line");
    write(path.join("metrics.jsonl"), &text).expect("a file");
    assert_eq!(run.state(4), RunState::Killed);
    assert_eq!(run.state(10), RunState::Finished);
    let checkpoint = path.join("checkpoints").join("step-000004");
    create_dir_all(checkpoint.join("state")).expect("folders");
    create_dir_all(path.join("checkpoints").join("step-000005.partial")).expect("folders");
    let state = format!("{{\"metrics_length\":{}}}", text.len());
    write(checkpoint.join("state").join("state.json"), state).expect("a file");
    assert_eq!(run.state(4), RunState::Killed, "without a manifest it is no checkpoint");
    write(checkpoint.join("manifest.json"), "{}").expect("a file");
    assert_eq!(run.checkpoints().len(), 1);
    assert_eq!(run.state(4), RunState::Interrupted);
    let lock = File::create(path.join("lock")).expect("a file");
    assert_eq!(run.state(4), RunState::Interrupted);
    lock.try_lock().expect("nobody holds it");
    assert_eq!(run.state(4), RunState::Running);
    write(run.episode_path(3), packed_episodes(&[episode(0), episode(1)]).expect("packed"))
        .expect("a file");
    write(path.join("episodes").join("batch-000004.jsonl.zst.partial"), "x").expect("a file");
    assert_eq!(run.episode_batches(), [3]);
    assert_eq!(run.episode(3, 1).expect("it reads"), Some(episode(1)));
    assert_eq!(run.episode(3, 2).expect("it reads"), None);
    assert!(matches!(run.episode(9, 0), Err(ReadProblem::Open { .. })));
    // A file whose lines share one frame, as runs of earlier versions have them.
    let lines: Vec<u8> =
        (0..3).flat_map(|number| line(&episode(number)).expect("a line")).collect();
    let packed = zstd::encode_all(lines.as_slice(), 3).expect("packed");
    write(run.episode_path(5), packed).expect("a file");
    assert_eq!(run.episode(5, 2).expect("it reads"), Some(episode(2)));
    // Frames are passed over unread, so damage inside one does not hide the next.
    let mut packed = packed_episodes(&[episode(0)]).expect("packed");
    let last = packed.len() - 1;
    packed[last] ^= 1;
    packed.extend(packed_episodes(&[episode(1)]).expect("packed"));
    write(run.episode_path(6), packed).expect("a file");
    assert_eq!(run.episode(6, 1).expect("it reads"), Some(episode(1)));
    assert!(run.episode(6, 0).is_err(), "its checksum is wrong");
    let timing = br#"{"stage":"explore","batch":1,"seconds":2.5}"#;
    let timing: TimingLine = Lines::parse(Path::new("t"), 1, timing).expect("it reads");
    assert_eq!((timing.format, timing.at), (1, None));
}

proptest! {
    #[test]
    fn no_bytes_make_a_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        records(&bytes);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("batch-000001.jsonl.zst");
        let mut frame = packed_episodes(&[episode(0)]).expect("packed");
        for (place, byte) in bytes.iter().enumerate().step_by(7) {
            let length = frame.len();
            frame[(place * 31) % length] ^= byte;
        }
        write(&path, &frame).expect("a file");
        if let Ok(lines) = Lines::<EpisodeLine>::open_packed(&path) {
            collect(lines);
        }
        if let Ok(Some(lines)) = Lines::<EpisodeLine>::open_frame(&path, 1) {
            collect(lines);
        }
    }
}
