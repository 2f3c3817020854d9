//! Recordings of the original engine (princeton-nlp/WebShop with Anserini) on our own catalog. `record.py` made them.

use std::sync::{Arc, OnceLock};

use lens_env::webshop::GoalKind;
use lens_env::webshop::replay::{Replayer, Report};

use crate::{beside, built_in, shop};

fn replayer() -> &'static Replayer {
    static REPLAYER: OnceLock<Replayer> = OnceLock::new();
    REPLAYER.get_or_init(|| Replayer {
        synthetic: Arc::clone(shop()),
        human: Some(Arc::new(built_in(GoalKind::Human))),
    })
}

#[test]
fn every_recorded_answer_is_ours_too() {
    for (file, kind, compared) in [
        ("actions", "actions", 22),
        ("analyzer", "analyzer", 87),
        ("colors", "colors", 370),
        ("goals_human", "goals", 272),
        ("goals_synthetic", "goals", 693),
        ("likeness", "likeness", 504),
        ("pages_attrs", "pages", 184),
        ("pages_text", "pages", 1054),
        ("pages_text_rich", "pages", 1436),
        ("prices", "prices", 100),
        ("random", "random numbers", 54),
        ("rewards", "rewards", 2354),
        ("searches", "searches", 80),
    ] {
        let path = beside("recordings").join(format!("{file}.jsonl"));
        let report = replayer().compare(&path).expect("the recording can be read");
        let expected = Report { kind, compared, mismatches: 0, described: Vec::new() };
        assert_eq!(report, expected, "{file}");
    }
}

#[test]
fn a_changed_recording_is_noticed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (file, before, after) in [
        ("rewards", "\"reward\": 0", "\"reward\": 9"),
        ("searches", "[[\"LW", "[[\"XX"),
        ("pages_text", "Back to Search", "Back to search"),
        ("prices", "\"price\": ", "\"price\": 1"),
        ("goals_synthetic", "Find me", "Find us"),
    ] {
        let name = format!("{file}.jsonl");
        let text = std::fs::read_to_string(beside("recordings").join(&name)).expect("a recording");
        assert!(text.contains(before), "{file}");
        let path = folder.path().join(&name);
        std::fs::write(&path, text.replacen(before, after, 1)).expect("a writable folder");
        let report = replayer().compare(&path).expect("the recording can be read");
        assert_eq!(report.mismatches, 1, "{file}: {:?}", report.described);
        assert_eq!(report.described.len(), 1);
    }
}

#[test]
fn what_is_not_a_recording_is_refused_in_words() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("strange.jsonl");
    for (text, message) in [
        ("{\"q\": \"lamp\", \"hits\": []}\n{oops", ":2: key must be a string at line 1 column 2"),
        ("{\"what\": 1}", ":1: its keys belong to no known kind of recording"),
        ("{\"q\": 5, \"hits\": []}", ":1: not a recording of searches of this catalog"),
        ("{\"session\": 0, \"mode\": \"sung\", \"steps\": []}", ":1: not a recording of pages"),
    ] {
        std::fs::write(&path, text).expect("a writable folder");
        let error = replayer().compare(&path).expect_err("not a recording").to_string();
        assert!(error.contains(message), "{error}");
    }
    let error = replayer().compare(&folder.path().join("none.jsonl")).expect_err("no such file");
    assert!(error.to_string().starts_with("cannot read "), "{error}");
}
