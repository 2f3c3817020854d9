//! Every formula against values that `make_golden.py` computed in numpy.

#[path = "../support/mod.rs"]
mod support;

mod locate;
mod objective;
mod refine;
mod schedules;
mod siblings;
mod stats;
mod validate;

use lens_opd::episode::ScoredToken;
use serde::de::DeserializeOwned;

/// Reads one file of golden values.
fn read<T: DeserializeOwned>(text: &str) -> T {
    serde_json::from_str(text).expect("the golden file matches the test's types")
}

/// Two numbers that agree up to the rounding of `f64`.
#[track_caller]
fn close(found: f64, golden: f64) {
    let scale = golden.abs().max(1.0);
    assert!((found - golden).abs() <= 1e-11 * scale, "found {found}, golden {golden}");
}

#[track_caller]
fn all_close(found: &[f64], golden: &[f64]) {
    assert_eq!(found.len(), golden.len());
    for (found, golden) in found.iter().zip(golden) {
        close(*found, *golden);
    }
}

/// A turn's tokens as golden files hold them.
type Tokens = Vec<ScoredToken>;
