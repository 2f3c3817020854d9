use lens_opd::locate::fixed::{backward_prefix, forward_horizon};
use lens_opd::methods::guided::Guided;
use serde::Deserialize;

use crate::{close, read};

#[derive(Deserialize)]
struct Golden {
    forward: Vec<Forward>,
    backward: Vec<Backward>,
    guided: Vec<Share>,
    guided_stated: Vec<Share>,
}

#[derive(Deserialize)]
struct Forward {
    eta: u32,
    n: u64,
    max_turns: usize,
    horizon: usize,
}

#[derive(Deserialize)]
struct Backward {
    length: usize,
    eta: u32,
    n: u64,
    max_turns: usize,
    prefix: usize,
}

#[derive(Deserialize)]
struct Share {
    n: u64,
    share: f64,
}

fn golden() -> Golden {
    read(include_str!("schedules.json"))
}

#[test]
fn tcod_f2b_horizons() {
    for g in golden().forward {
        assert_eq!(
            forward_horizon(g.n, 1, g.eta, g.max_turns),
            g.horizon,
            "n={} eta={}",
            g.n,
            g.eta
        );
    }
}

#[test]
fn tcod_b2f_prefixes() {
    for g in golden().backward {
        let prefix = backward_prefix(g.n, g.length, g.eta, g.max_turns);
        assert_eq!(prefix, g.prefix, "n={} L={}", g.n, g.length);
        assert!(prefix < g.max_turns, "the student always has a turn");
    }
}

#[test]
fn guided_teacher_share() {
    let params = Guided::default();
    let golden = golden();
    for g in golden.guided {
        close(params.teacher_share(g.n, 250), g.share);
    }
    for g in golden.guided_stated {
        assert!((params.teacher_share(g.n, 250) - g.share).abs() < 5e-6, "batch {}", g.n);
    }
}
