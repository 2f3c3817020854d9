//! A run recorded for tests: what a trainer writes, through the same writers, with text that tries to break out.
#![allow(dead_code, reason = "every test uses a part of this")]

use std::fs;
use std::path::{Path, PathBuf};

use lens_records::episodes::{BranchTurn, Favorites, ForkLine, Tokens, TurnLine};
use lens_records::metrics::{
    BatchLine, EpisodeSummary, EvalLine, FocusMass, ForkKind, ForkRequest, ForkSummary, Measures,
    Record, RolloutStats, StepLine, TaskOutcome, TickLine, Verdict,
};
use lens_records::write::{line, packed_episodes};
use lens_records::{EpisodeLine, FORMAT, TimingLine};

/// Text that would be harmful if it became markup.
pub(crate) const HOSTILE: &str = "<img src=x onerror=\"window.broken=1\"><script>window.broken=1</script>\u{1b}[31m\u{0}</script>";

/// How large a recorded run is.
pub(crate) struct Size {
    /// Explorer batches.
    pub(crate) batches: u64,
    /// Episodes per batch.
    pub(crate) episodes: u64,
    /// Turns per episode.
    pub(crate) turns: u64,
    /// Tokens per response.
    pub(crate) tokens: u32,
}

/// A few episodes of a few turns.
pub(crate) const SMALL: Size = Size { batches: 4, episodes: 3, turns: 3, tokens: 6 };

/// Gain of the fork of an episode: every third is accepted.
pub(crate) fn gain(batch: u64, episode: u64) -> f64 {
    if episode == 1 { 0.25 + batch as f64 / 100.0 } else { -0.125 }
}

/// Records a run under `root/demo/seed-7` and gives its folder.
pub(crate) fn record(root: &Path, size: &Size) -> PathBuf {
    let folder = root.join("demo").join("seed-7");
    fs::create_dir_all(folder.join("episodes")).expect("a folder");
    let config = format!(
        "name = \"demo\"\nmethod = \"lens\"\n\n[task]\nbenchmark = \"alfworld\"\nturn_limit = 30\n\n[student]\npath = \"models/student\"\n\n[train]\nsteps = {}\nbatch_size = 64\n",
        size.batches
    );
    fs::write(folder.join("config.toml"), config).expect("a file");
    let mut metrics = line(&eval(0, 0)).expect("a line");
    let mut timings = Vec::new();
    for batch in 1..=size.batches {
        metrics.extend(batch_lines(batch, size));
        let episodes: Vec<EpisodeLine> =
            (0..size.episodes).map(|episode| episode_line(batch, episode, size)).collect();
        let packed = packed_episodes(&episodes).expect("packed");
        let name = format!("batch-{batch:06}.jsonl.zst");
        fs::write(folder.join("episodes").join(name), packed).expect("a file");
        let (format, stage, at) = (FORMAT, "explore".to_owned(), Some(1.7e9 + batch as f64));
        let timing = TimingLine { format, stage, batch, seconds: 2.0, at };
        timings.extend(line(&timing).expect("a line"));
    }
    metrics.extend(line(&eval(size.batches, size.batches)).expect("a line"));
    fs::write(folder.join("metrics.jsonl"), metrics).expect("a file");
    fs::write(folder.join("timings.jsonl"), timings).expect("a file");
    folder
}

/// The lines of one batch and its optimizer step.
pub(crate) fn batch_lines(batch: u64, size: &Size) -> Vec<u8> {
    let forks: Vec<ForkSummary> =
        (0..size.episodes).map(|episode| fork_summary(batch, episode)).collect();
    let accepted = forks.iter().filter(|fork| fork.verdict.accepted).count() as u64;
    let summary = |episode: u64| EpisodeSummary {
        episode,
        task: format!("task-{batch}-{episode}"),
        task_kind: "pick_and_place".to_owned(),
        end: "curriculum_cutoff".to_owned(),
        success: episode == 0,
        score: 0.0,
        turns: size.turns,
        divergence: Some(0.5),
    };
    let record = BatchLine {
        horizon: batch.min(30),
        tick: Some(TickLine {
            depth: batch,
            valid_episodes: size.episodes,
            competence: Some(0.8),
            pace: Some(1.0 + 0.1 * batch as f64),
            next_depth: batch + 1,
        }),
        terminations: [("curriculum_cutoff".to_owned(), size.episodes)].into(),
        successes: 1,
        complete_pairs: size.episodes,
        accepted,
        reasons: [("not_better".to_owned(), size.episodes - accepted)].into(),
        forks,
        guided_share: Some(0.1),
        rollout: Some(RolloutStats {
            turns: size.episodes * size.turns,
            parsed_turns: size.episodes * size.turns,
            response_tokens: size.episodes * size.turns * u64::from(size.tokens),
            kl: Some(0.3),
            student_nll: Some(0.2),
            teacher_nll: Some(0.4),
            teacher_confidence: Some(0.9),
            ..RolloutStats::default()
        }),
        episodes: (0..size.episodes).map(summary).collect(),
        ..BatchLine::new(batch, batch - 1)
    };
    let mut lines = line(&Record::Batch(Box::new(record))).expect("a line");
    let step = StepLine {
        format: FORMAT,
        step: batch,
        batch: Some(batch),
        loss: Some(1.0 / batch as f64),
        focus_loss: Some(0.8 / batch as f64),
        internalization_loss: Some(0.2 / batch as f64),
        grad_norm: Some(1.5),
        skipped: false,
        trajectories: size.episodes,
        opd_tokens: 90,
        gi_tokens: 10,
        trained: None,
        internalize_share: None,
        tokens: Some(400),
        oldest_version: batch - 1,
    };
    lines.extend(line(&Record::Step(step)).expect("a line"));
    lines
}

fn eval(step: u64, batch: u64) -> Record {
    let solved = 4 + step.min(10);
    let tasks = (0..20).map(|task| TaskOutcome {
        task: format!("game-{task}"),
        kind: "pick_and_place".to_owned(),
        success: task < solved,
        score: 0.0,
        turns: 12,
        end: "completed".to_owned(),
    });
    let all = Measures { tasks: 20, success_rate: 5.0 * solved as f64, score: None, rounds: 20.0 };
    Record::Eval(EvalLine {
        format: FORMAT,
        step,
        batch,
        split: "valid_unseen".to_owned(),
        all,
        kinds: [("pick_and_place".to_owned(), all)].into(),
        tasks: tasks.collect(),
    })
}

fn fork_summary(batch: u64, episode: u64) -> ForkSummary {
    let gain = gain(batch, episode);
    let accepted = gain > 0.0;
    ForkSummary {
        request: ForkRequest {
            episode,
            turn: 1,
            kind: ForkKind::Hint { feedback: "incorporate".to_owned() },
            continuation_turns: 2,
            score_temperature: 1.0,
            divergence: 0.5,
            pairs: None,
            coupling: None,
            play_on: false,
        },
        verdict: Verdict {
            base_value: Some(-1.0),
            guided_value: Some(-1.0 + gain),
            gain: Some(gain),
            pairs: None,
            standard_error: None,
            accepted,
        },
        reason: (!accepted).then(|| "not_better".to_owned()),
        internalization_gap: Some(0.2),
        focus: accepted.then_some(FocusMass {
            content_tokens: 5,
            target_tokens: 1,
            content_mass: 5.0,
            target_mass: 2.0,
        }),
    }
}

/// One episode with its fork.
pub(crate) fn episode_line(batch: u64, episode: u64, size: &Size) -> EpisodeLine {
    let turn = |turn: u64| TurnLine {
        turn,
        actor: "student".to_owned(),
        observation: format!("You see a cup {turn}. {HOSTILE}"),
        response: "I take it. <action>take cup</action>".to_owned(),
        action: Some("take cup".to_owned()),
        prompt: Some(format!("You are an agent. {HOSTILE}")),
        tokens: tokens(size.tokens, true, batch * 1000 + episode * 100 + turn),
        dropped: None,
    };
    let branch = |name: &str, value: f64| -> Vec<BranchTurn> {
        let turn = |place: u64| BranchTurn {
            turn: Some(1 + place),
            observation: format!("{name} observation {place}"),
            response: format!("{name} response {place}"),
            action: Some(if place == 0 { "look".to_owned() } else { format!("{name} {place}") }),
            tokens: tokens(size.tokens, false, batch * 1000 + episode * 100 + 50 + place),
            likelihood: (place > 0).then_some(value),
            preferred: None,
            content_tokens: Some(u64::from(size.tokens) - 1),
            action_tokens: None,
        };
        (0..3).map(turn).collect()
    };
    let texts = (0..size.tokens + 2).map(|id| (id, format!(" word{id}")));
    EpisodeLine {
        format: FORMAT,
        batch,
        episode,
        task: format!("task-{batch}-{episode}"),
        task_kind: "pick_and_place".to_owned(),
        goal: Some(format!("put cup {episode} on the table")),
        version: batch - 1,
        horizon: size.turns,
        prefix: 0,
        end: "curriculum_cutoff".to_owned(),
        success: episode == 0,
        score: Some(0.0),
        failure: None,
        turns: (0..size.turns).map(turn).collect(),
        forks: vec![ForkLine {
            turn: 1,
            hint: Some("Look at the table first.".to_owned()),
            hint_prompt: None,
            hinted_prompt: None,
            evaluator: None,
            base: branch("base", -1.0),
            guided: branch("guided", -1.0 + gain(batch, episode)),
            base_end: Some("horizon".to_owned()),
            guided_end: Some("solved".to_owned()),
            base_score: None,
            guided_score: None,
            repeats: Vec::new(),
            record: Some(fork_summary(batch, episode)),
        }],
        token_text: texts.collect(),
    }
}

fn tokens(count: u32, compared: bool, seed: u64) -> Tokens {
    // Numbers as irregular as real ones, so that sizes and times are those of real files.
    let value = |salt: u32, i: u32| {
        let mut mixed = (seed << 20 | u64::from(salt) << 12 | u64::from(i)).wrapping_add(1);
        for _ in 0..3 {
            mixed = (mixed ^ mixed >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        (mixed >> 40) as f32 / 8_388_608.0
    };
    let column = |salt: u32, sign: f32| -> Vec<Option<f32>> {
        (0..count).map(|i| Some(sign * value(salt, i))).collect()
    };
    Tokens {
        ids: (0..count).collect(),
        student_logprobs: column(1, -1.0),
        teacher_logprobs: column(2, -1.0),
        kl: if compared { column(3, 1.0) } else { Vec::new() },
        weights: if compared { vec![1.0; count as usize] } else { Vec::new() },
        masked: vec![count - 1],
        favorites: compared.then(|| Favorites {
            student: (0..count).map(Some).collect(),
            teacher: (0..count).map(|id| Some(if id == 2 { count + 1 } else { id })).collect(),
            student_at_student: column(1, -1.0),
            student_at_teacher: column(4, -1.0),
            teacher_at_teacher: column(2, -1.0),
            teacher_at_student: column(5, -1.0),
        }),
    }
}
