use lens_opd::stats::metrics::{EvalEpisode, alfworld, rounds, scienceworld, webshop};
use lens_opd::stats::{moving_average, rank_correlation, summary};
use serde::Deserialize;

use crate::{close, read};

#[derive(Deserialize)]
struct Golden {
    summaries: Vec<Summary>,
    curve: Vec<Option<f64>>,
    smooth: Vec<Option<f64>>,
    window: usize,
    x: Vec<f64>,
    y: Vec<f64>,
    rank_correlation: f64,
    episodes: Vec<Episode>,
    metrics: Metrics,
}

#[derive(Deserialize)]
struct Summary {
    values: Vec<f64>,
    mean: f64,
    std: f64,
}

#[derive(Deserialize)]
struct Episode {
    success: bool,
    reward: f64,
    points: f64,
    turns: usize,
}

#[derive(Deserialize)]
struct Metrics {
    alfworld_sr: f64,
    webshop_score: f64,
    webshop_sr: f64,
    scienceworld_score: f64,
    scienceworld_sr: f64,
    rounds: f64,
}

fn golden() -> Golden {
    read(include_str!("stats.json"))
}

#[test]
fn seed_summaries() {
    for g in golden().summaries {
        let found = summary(&g.values).expect("finite values");
        close(found.mean, g.mean);
        close(found.std.expect("five values"), g.std);
    }
}

#[test]
fn smoothing_and_rank_correlation() {
    let g = golden();
    for (found, golden) in moving_average(&g.curve, g.window).iter().zip(&g.smooth) {
        assert_eq!(found.is_some(), golden.is_some());
        close(found.unwrap_or(0.0), golden.unwrap_or(0.0));
    }
    let found = rank_correlation(&g.x, &g.y).expect("finite values");
    close(found.expect("not constant"), g.rank_correlation);
}

#[test]
fn evaluation_metrics() {
    let g = golden();
    let episodes = |score: fn(&Episode) -> f64| -> Vec<EvalEpisode> {
        let make =
            |e: &Episode| EvalEpisode { success: e.success, score: score(e), turns: e.turns };
        g.episodes.iter().map(make).collect()
    };
    let (rewards, points) = (episodes(|e| e.reward), episodes(|e| e.points));
    close(alfworld(&rewards).expect("episodes").success_rate, g.metrics.alfworld_sr);
    let shop = webshop(&rewards).expect("rewards are in range");
    close(shop.score.expect("WebShop has a score"), g.metrics.webshop_score);
    close(shop.success_rate, g.metrics.webshop_sr);
    let science = scienceworld(&points).expect("episodes");
    close(science.score.expect("ScienceWorld has a score"), g.metrics.scienceworld_score);
    close(science.success_rate, g.metrics.scienceworld_sr);
    close(rounds(&points, 30).expect("episodes"), g.metrics.rounds);
}
