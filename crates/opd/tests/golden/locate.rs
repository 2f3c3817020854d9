use lens_opd::episode::DivergenceSource;
use lens_opd::locate::Locate;
use lens_opd::locate::horizon::HorizonClock;
use lens_opd::locate::proposal::turn_divergence;
use lens_opd::locate::support::{median, soft_support, turn_competence};
use lens_opd::methods::RunFacts;
use lens_opd::methods::futurebridge::turn_disagreement;
use serde::Deserialize;

use crate::support::of_tokens;
use crate::{Tokens, all_close, close, read};

#[derive(Deserialize)]
struct Golden {
    turns: Vec<Turn>,
    clocks: Vec<Clock>,
    medians: Vec<Median>,
    unit_pace: Vec<UnitPace>,
}

#[derive(Deserialize)]
struct Turn {
    tokens: Tokens,
    supports: Vec<f64>,
    competence: f64,
    divergence: f64,
    sampled_divergence: f64,
    disagreement: f64,
}

#[derive(Deserialize)]
struct Clock {
    eta: u32,
    k_max: usize,
    batches: Vec<Vec<f64>>,
    trace: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    depth: usize,
    competence: Option<f64>,
    pace: Option<f64>,
    next_depth: usize,
    elapsed: f64,
}

#[derive(Deserialize)]
struct Median {
    values: Vec<f64>,
    median: f64,
}

#[derive(Deserialize)]
struct UnitPace {
    n: u64,
    horizon: usize,
}

fn golden() -> Golden {
    read(include_str!("locate.json"))
}

fn clock(residence: u32, max_turns: usize) -> HorizonClock {
    let facts = RunFacts { seed: 1, max_turns, steps: 250 };
    HorizonClock::new(Locate { residence, ..Locate::default() }, &facts)
}

#[test]
fn soft_support_and_competence() {
    for golden in golden().turns {
        let turn = of_tokens(0, golden.tokens);
        let supports: Vec<f64> = turn
            .content()
            .map(|(i, token)| {
                soft_support(&token.top.expect("scored"), None, i).expect("all values are there")
            })
            .collect();
        all_close(&supports, &golden.supports);
        close(turn_competence(&turn, None).expect("scored"), golden.competence);
    }
}

#[test]
fn turn_divergences() {
    for golden in golden().turns {
        let turn = of_tokens(0, golden.tokens);
        let by = |source| turn_divergence(&turn, source).expect("scored");
        close(by(DivergenceSource::Full), golden.divergence);
        close(by(DivergenceSource::TopK), golden.divergence);
        close(by(DivergenceSource::Sampled), golden.sampled_divergence);
        close(turn_disagreement(&turn).expect("scored"), golden.disagreement);
    }
}

#[test]
fn gap_adaptive_clock() {
    let clocks = golden().clocks;
    assert!(clocks.iter().flat_map(|clock| &clock.trace).any(|step| step.pace == Some(0.5)));
    assert!(clocks.iter().flat_map(|clock| &clock.trace).any(|step| step.pace == Some(1.5)));
    assert!(clocks.iter().flat_map(|clock| &clock.trace).any(|step| step.pace.is_none()));
    for golden in clocks {
        let mut clock = clock(golden.eta, golden.k_max);
        for (competences, step) in golden.batches.iter().zip(&golden.trace) {
            let tick = clock.tick(competences).expect("competences are in range");
            assert_eq!((tick.depth, tick.next_depth), (step.depth, step.next_depth));
            assert_eq!(tick.valid_episodes, competences.len());
            assert_eq!(tick.competence.is_some(), step.competence.is_some());
            assert_eq!(tick.pace.is_some(), step.pace.is_some());
            close(tick.competence.unwrap_or(0.0), step.competence.unwrap_or(0.0));
            close(tick.pace.unwrap_or(0.0), step.pace.unwrap_or(0.0));
            close(clock.state().elapsed, step.elapsed);
        }
    }
}

#[test]
fn medians_of_odd_and_even_counts() {
    for golden in golden().medians {
        close(median(&golden.values).expect("not empty"), golden.median);
    }
    assert_eq!(median(&[]), None);
}

#[test]
fn unit_pace_is_one_batch_behind_f2b() {
    let golden = golden().unit_pace;
    let mut clock = clock(5, 30);
    for n in 1..=150 {
        if let Some(golden) = golden.iter().find(|golden| golden.n == n) {
            assert_eq!(clock.depth(), golden.horizon, "batch {n}");
        }
        clock.tick(&[]).expect("no valid episode is allowed");
    }
}
