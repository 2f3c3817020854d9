//! Recordings of the original WebShop engine on the real 1,000 products, answer for answer. They need the folder of
//! shared data beside the project; without it they say so and pass.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a skipped test says so")]

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use lens_env::webshop::replay::{Replayer, Report};
use lens_env::webshop::{GoalKind, ObservationMode, Shop, ShopSettings, WebShop};
use lens_env::{Benchmark, demonstrate};

/// The shared folder, or `None` (with a line that says so) where it is absent.
fn shared() -> Option<PathBuf> {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let folder = std::env::var_os("LENS_SHARED").map_or(beside, PathBuf::from);
    if folder.join("golden/webshop").is_dir() {
        return Some(folder);
    }
    assert!(
        std::env::var_os("LENS_REQUIRE_SHARED").is_none_or(|required| required != "1"),
        "{} is required and absent",
        folder.display()
    );
    eprintln!("skipped: ../shared is not beside the project");
    None
}

fn replayer() -> Option<&'static Replayer> {
    static REPLAYER: OnceLock<Option<Replayer>> = OnceLock::new();
    REPLAYER
        .get_or_init(|| {
            let shared = shared()?;
            let nouns = shared.join("golden/webshop/nouns_sm360.jsonl");
            let open = |goals| {
                let settings = ShopSettings { goals, ..ShopSettings::default() };
                Arc::new(Shop::open(&shared.join("data/webshop"), Some(&nouns), settings).unwrap())
            };
            Some(Replayer {
                synthetic: open(GoalKind::Synthetic),
                human: Some(open(GoalKind::Human)),
            })
        })
        .as_ref()
}

/// Compares a file; it must hold so many answers of that kind, all equal.
fn compare(file: &str, kind: &'static str, answers: usize) {
    let Some(replayer) = replayer() else { return };
    let Some(shared) = shared() else { return };
    let report = replayer.compare(&shared.join("golden/webshop").join(file)).unwrap();
    let expected = Report { kind, compared: answers, mismatches: 0, described: Vec::new() };
    assert_eq!(report, expected);
}

#[test]
fn pages_as_text() {
    compare("transcripts_text.jsonl", "pages", 6_802);
}

#[test]
fn pages_as_rich_text() {
    compare("transcripts_text_rich.jsonl", "pages", 6_819);
}

#[test]
fn pages_with_attributes() {
    compare("transcripts_show_attrs.jsonl", "pages", 105);
}

#[test]
fn prompts() {
    compare("prompts_tcod.jsonl", "prompts", 1_874);
}

#[test]
fn actions() {
    compare("parse_action.jsonl", "actions", 19);
}

#[test]
fn rewards() {
    compare("rewards.jsonl", "rewards", 54_454);
}

#[test]
fn synthetic_goals() {
    compare("goals_synthetic_seed233.jsonl", "goals", 34_550);
}

#[test]
fn human_goals() {
    compare("goals_human_seed233.jsonl", "goals", 104);
}

#[test]
fn prices() {
    compare("prices_seed0.jsonl", "prices", 1000);
}

#[test]
fn nouns() {
    compare("nouns_sm360.jsonl", "nouns", 1000);
}

#[test]
fn searches() {
    compare("bm25_top50_lucene8.jsonl", "searches", 746);
}

#[test]
fn document_lengths() {
    compare("doclen.jsonl", "document lengths", 1000);
}

#[test]
fn analyzer() {
    compare("analyzer.jsonl", "analyzer", 573);
}

#[test]
fn likeness() {
    compare("fuzz_token_set.jsonl", "likeness", 12_057);
}

#[test]
fn colors() {
    compare("normalize_color.jsonl", "colors", 1945);
}

#[test]
fn random_numbers() {
    compare("pyrandom.jsonl", "random numbers", 75);
}

fn webshop() -> Option<Arc<WebShop>> {
    let shop = Arc::clone(&replayer()?.synthetic);
    Some(Arc::new(WebShop::new(shop, ObservationMode::TextRich)))
}

#[test]
fn the_papers_sessions_exist() {
    let Some(webshop) = webshop() else { return };
    assert_eq!(webshop.shop().goals().len(), 6910);
    let sizes: Vec<usize> = webshop.splits().iter().map(|split| split.tasks).collect();
    assert_eq!(sizes, [4096, 100]);
}

#[test]
fn the_expert_earns_what_it_is_known_for() {
    let Some(webshop) = webshop() else { return };
    let expert = webshop.expert().unwrap();
    let mut environment = Arc::clone(&webshop).environment().unwrap();
    let (mut score, mut successes) = (0.0, 0);
    for task in webshop.tasks("test").unwrap() {
        let played = demonstrate(&mut *environment, &*expert, &task, 15, 2).unwrap();
        score += played.last.score;
        successes += u32::from(played.success());
    }
    assert!(score >= 91.0 && successes >= 82, "{score} {successes}");
}

#[test]
fn reference_actions_solve_nine_sessions_in_ten() {
    let Some(webshop) = webshop() else { return };
    let tasks = webshop.tasks("train").unwrap();
    let some: Vec<_> = tasks.iter().step_by(20).collect();
    let solved = some.iter().filter(|task| webshop.reference_actions(task).unwrap().is_some());
    assert!(solved.count() * 10 >= some.len() * 9);
}

/// Without a noun table the rule of thumb must not be much worse than another release of the original's tagger, which
/// changes 2 to 3 factors in a hundred.
#[test]
fn rewards_without_a_noun_table_are_close() {
    let (Some(replayer), Some(shared)) = (replayer(), shared()) else { return };
    let exact = &replayer.synthetic;
    let rough = Shop::open(&shared.join("data/webshop"), None, ShopSettings::default()).unwrap();
    let products = exact.catalog().products.len();
    let (mut tried, mut different) = (0_u32, 0_u32);
    for goal in (0..exact.goals().len()).step_by(7) {
        for step in 0..8 {
            let product = (goal * 31 + step * 127) % products;
            let factor = |shop: &Shop| shop.reward(goal, product, &[]).unwrap().kind.factor;
            tried += 1;
            different += u32::from(factor(exact) != factor(&rough));
        }
    }
    eprintln!("without a noun table {different} of {tried} factors differ");
    assert!(f64::from(different) < 0.03 * f64::from(tried), "{different} of {tried}");
}
