//! Figures as data, and as SVG, PNG and CSV.
//!
//! A [`Figure`] is a grid of [`Panel`]s, a panel a list of [`Mark`]s in data coordinates. The same marks are drawn and
//! written as CSV, so that a figure cannot show other numbers than its data file.

mod csv;
mod png;
mod svg;
pub mod ticks;

pub use png::DrawError;

/// Colors that stay apart for color-blind readers (Okabe and Ito).
pub const COLORS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#777777", "#000000"];

/// The color of the `index`-th series.
pub fn color(index: usize) -> &'static str {
    COLORS[index % COLORS.len()]
}

/// A figure: panels in rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// A file name without its ending.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// What a reader must know: sample sizes, smoothing, intervals.
    pub caption: String,
    /// Panels per row.
    pub columns: usize,
    /// The panels, row by row.
    pub panels: Vec<Panel>,
}

/// One pair of axes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Panel {
    /// What it shows, such as "(a) Clock pace".
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// A second vertical axis at the right, for marks that ask for it.
    pub right: Option<Axis>,
    /// What is drawn, back to front.
    pub marks: Vec<Mark>,
}

/// An axis.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Axis {
    /// What is measured, with its unit.
    pub label: String,
    /// The range; found from the marks where it is not given.
    pub range: Option<(f64, f64)>,
    /// Names in place of numbers, at 0, 1, 2, ...
    pub categories: Vec<String>,
    /// Whether values are spaced by their logarithm.
    pub log: bool,
}

impl Axis {
    /// An axis that fits its marks.
    pub fn new(label: &str) -> Self {
        Self { label: label.to_owned(), ..Self::default() }
    }

    /// An axis with a fixed range.
    pub fn within(label: &str, low: f64, high: f64) -> Self {
        Self { range: Some((low, high)), ..Self::new(label) }
    }
}

/// A series' name and looks.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Style {
    /// The name in legend and CSV; not in the legend if it starts with an underscore.
    pub name: String,
    /// The color.
    pub color: &'static str,
    /// Whether the line is dashed.
    pub dashed: bool,
    /// Whether it belongs to the right axis.
    pub right: bool,
}

impl Style {
    /// A plain style.
    pub fn new(name: impl Into<String>, color: &'static str) -> Self {
        Self { name: name.into(), color, dashed: false, right: false }
    }

    /// Dashed.
    #[must_use]
    pub fn dashed(self) -> Self {
        Self { dashed: true, ..self }
    }

    /// Against the right axis.
    #[must_use]
    pub fn right(self) -> Self {
        Self { right: true, ..self }
    }
}

/// A point with an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ranged {
    /// Horizontal place.
    pub x: f64,
    /// The value.
    pub y: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// How many measurements it stands for.
    pub count: u64,
}

/// Something drawn.
#[derive(Debug, Clone, PartialEq)]
pub enum Mark {
    /// A line; gaps where a value is not finite.
    Line(Style, Vec<(f64, f64)>),
    /// A filled band between lower and upper ends.
    Band(Style, Vec<Ranged>),
    /// Dots.
    Dots(Style, Vec<(f64, f64)>),
    /// Dots with vertical intervals.
    Intervals(Style, Vec<Ranged>),
    /// Bars from 0, each from one x to another.
    Bars(Style, Vec<(f64, f64, f64)>),
    /// An area between two curves over the same x: (x, low, high).
    Area(Style, Vec<(f64, f64, f64)>),
    /// A horizontal line with a name.
    Horizontal(f64, String),
    /// A dashed vertical line with a name.
    Vertical(f64, String),
    /// A shaded range of x with a name.
    Shade(f64, f64, String),
    /// A remark in the upper left corner, one line each.
    Note(Vec<String>),
}

impl Figure {
    /// The figure as an SVG document.
    pub fn svg(&self) -> String {
        svg::document(self)
    }

    /// The figure's numbers: `panel,series,x,y,low,high,count`.
    pub fn csv(&self) -> String {
        csv::document(self)
    }

    /// Whether no panel has a mark with data.
    pub fn is_empty(&self) -> bool {
        let drawn = |mark: &Mark| match mark {
            Mark::Line(_, points) | Mark::Dots(_, points) => !points.is_empty(),
            Mark::Band(_, points) | Mark::Intervals(_, points) => !points.is_empty(),
            Mark::Bars(_, points) | Mark::Area(_, points) => !points.is_empty(),
            Mark::Horizontal(..) | Mark::Vertical(..) | Mark::Shade(..) | Mark::Note(_) => false,
        };
        !self.panels.iter().any(|panel| panel.marks.iter().any(drawn))
    }
}
