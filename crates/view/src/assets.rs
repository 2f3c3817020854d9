//! The page: plain files, embedded.

/// The scripts, in the order they run.
pub(crate) const SCRIPTS: [&str; 7] = [
    include_str!("../assets/dom.js"),
    include_str!("../assets/chart.js"),
    include_str!("../assets/tokens.js"),
    include_str!("../assets/run.js"),
    include_str!("../assets/episodes.js"),
    include_str!("../assets/episode.js"),
    include_str!("../assets/app.js"),
];

/// The style sheet.
pub(crate) const STYLE: &str = include_str!("../assets/app.css");

/// The page around them.
const PAGE: &str = include_str!("../assets/index.html");

/// What goes into the page's head.
pub(crate) fn page(head: &str, data: &str, script: &str) -> String {
    // The data come last: nothing inside them may be taken for a place of the template.
    PAGE.replace("<!-- head -->", head)
        .replace("<!-- script -->", script)
        .replace("<!-- data -->", data)
}

/// All scripts as one.
pub(crate) fn script() -> String {
    SCRIPTS.join("\n")
}
