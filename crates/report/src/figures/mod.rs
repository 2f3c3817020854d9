//! The paper's figures from records: one file per figure, one line here.

mod allocation;
mod curriculum;
mod divergence;
mod learning;
mod response;
mod results;
mod support;
mod validation;

use crate::plot::Figure;
use crate::run::Run;

/// A figure that can be drawn.
pub struct Kind {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    /// Draws it; an empty figure means that the runs lack its data.
    pub draw: fn(&[Run]) -> Figure,
    /// What to do when the data are missing.
    pub needs: &'static str,
}

/// Every figure.
pub const ALL: &[Kind] = &[
    Kind {
        name: "support",
        about: "figure 2a: student support by depth, over training",
        draw: support::draw,
        needs: "a method that compares favorite tokens, such as lens",
    },
    Kind {
        name: "divergence",
        about: "figure 2b: local divergence against future gain",
        draw: divergence::draw,
        needs: "complete forks",
    },
    Kind {
        name: "response",
        about: "figure 2c: response of tokens to one update, by support and confidence",
        draw: response::draw,
        needs: "`lens diagnose --run RUN` to be run first",
    },
    Kind {
        name: "curriculum",
        about: "figures 3, 5 and 7: clock pace and termination modes",
        draw: curriculum::draw,
        needs: "explorer batches",
    },
    Kind {
        name: "validation",
        about: "figures 4ab, 6 and 8: future scores of both branches, and gains",
        draw: validation::draw,
        needs: "complete forks",
    },
    Kind {
        name: "allocation",
        about: "figure 4cd: guided share and internalization gap, weight on target tokens",
        draw: allocation::draw,
        needs: "accepted forks",
    },
    Kind {
        name: "learning",
        about: "success over training, seeds as a band",
        draw: learning::draw,
        needs: "evaluations",
    },
    Kind {
        name: "results",
        about: "tables 1 to 3 as a figure: final success per method and split",
        draw: results::draw,
        needs: "evaluations",
    },
];

/// "ALFWorld", "WebShop", "ScienceWorld", or the name as it is.
fn benchmark(run: &Run) -> String {
    match run.word("task.benchmark") {
        "alfworld" => "ALFWorld".to_owned(),
        "webshop" => "WebShop".to_owned(),
        "scienceworld" => "ScienceWorld".to_owned(),
        other => other.to_owned(),
    }
}

/// "a", "b", "c", ...
fn letter(index: usize) -> char {
    char::from(b'a' + (index % 26) as u8)
}

/// What tells a run's panels apart when there are several runs.
fn of_run(runs: &[Run], run: &Run) -> String {
    if runs.len() > 1 { format!(", {}", run.label()) } else { String::new() }
}
