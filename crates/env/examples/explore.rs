use lens_env::webshop::*;
use lens_env::*;
use std::path::Path;
use std::sync::Arc;
fn main() {
    let shop = if std::env::args().any(|a| a == "own") {
        generator::shop(0, ShopSettings::default()).unwrap()
    } else {
        Shop::open(
            Path::new("/work/shared/data/webshop"),
            Some(Path::new("/work/shared/golden/webshop/nouns_sm360.jsonl")),
            ShopSettings::default(),
        )
        .unwrap()
    };
    let b = Arc::new(WebShop::new(Arc::new(shop), ObservationMode::TextRich));
    let verbose = std::env::args().nth(1);
    for split in ["test", "train"] {
        let ex = b.expert().unwrap();
        let mut env = b.clone().environment().unwrap();
        let (mut sum, mut succ, mut turns, mut n, mut noopt, mut noopts, mut nobuy) =
            (0.0, 0, 0, 0, 0, 0, 0);
        let mut refs = 0;
        for t in b.tasks(split).unwrap() {
            let mut v = env.reset(&t).unwrap();
            let mut hist: Vec<PastStep> = vec![];
            let mut log = vec![];
            while v.status == Status::Running && v.turn < 15 {
                let w = Window {
                    task: v.task.clone(),
                    history: hist.iter().rev().take(2).rev().cloned().collect(),
                    steps_taken: v.turn,
                    observation: v.observation.clone(),
                    actions: v.actions.clone(),
                };
                let d = ex.decide(&w).unwrap();
                log.push(d.action.clone());
                hist.push(PastStep {
                    step: v.turn,
                    observation: v.observation.clone(),
                    action: d.action.clone(),
                });
                v = env.step(&d.action).unwrap();
            }
            n += 1;
            sum += v.score;
            if v.score == 1.0 {
                succ += 1
            }
            turns += v.turn;
            if v.status == Status::Running {
                nobuy += 1
            }
            let g = b.shop().goal(t.id.parse().unwrap()).unwrap();
            if g.options.is_empty() {
                noopt += 1;
                if v.score == 1.0 {
                    noopts += 1
                }
            }
            if b.reference_actions(&t).unwrap().is_some() {
                refs += 1
            }
            if v.score < 1.0 && split == "test" && verbose.is_some() {
                println!(
                    "{} {:.2} goal {} | {} | {:?}",
                    t.id,
                    v.score,
                    b.shop().catalogue().products[g.product].asin,
                    v.task,
                    log
                );
            }
        }
        println!(
            "{split}: n {n} score {:.4} success {:.4} turns {:.2} nooption {noopts}/{noopt} nobuy {nobuy} refs {refs}",
            sum / n as f64,
            succ as f64 / n as f64,
            turns as f64 / n as f64
        );
    }
}
