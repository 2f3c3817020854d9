//! A figure as an SVG document: text stays text, nothing is loaded from elsewhere.

use super::ticks::{decades, label, linear, nice_range};
use super::{Axis, Figure, Mark, Panel, Style};

/// A panel with its margins, in points: two side by side fill a page of a paper, one fills a column.
const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 210.0;
const LEFT: f64 = 50.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 38.0;
/// The width of a letter at the size of slanted labels, and the sine of their slant of 60 degrees.
const LETTER: f64 = 4.7;
const SLANT: f64 = 0.87;
const FONT: &str = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif";
const INK: &str = "#222222";
const FAINT: &str = "#d9d9d9";

/// Data coordinates to places on the page.
struct Frame {
    x: Scale,
    y: Scale,
    right: Scale,
}

#[derive(Clone, Copy)]
struct Scale {
    low: f64,
    high: f64,
    start: f64,
    end: f64,
    log: bool,
}

impl Scale {
    fn at(&self, value: f64) -> f64 {
        let (value, low, high) = if self.log {
            (value.max(f64::MIN_POSITIVE).log10(), self.low.log10(), self.high.log10())
        } else {
            (value, self.low, self.high)
        };
        self.start + (value - low) / (high - low) * (self.end - self.start)
    }

    /// The place, held inside the frame.
    fn within(&self, value: f64) -> f64 {
        let (low, high) = (self.start.min(self.end), self.start.max(self.end));
        self.at(value).clamp(low, high)
    }
}

pub(super) fn document(figure: &Figure) -> String {
    let columns = figure.columns.max(1);
    let rows = figure.panels.len().div_ceil(columns);
    let width = WIDTH * columns as f64;
    let caption = wrap(&figure.caption, (width / 4.9) as usize);
    let row_height = HEIGHT + figure.panels.iter().map(below).fold(0.0, f64::max);
    let height = row_height * rows as f64 + 13.0 * caption.len() as f64 + 6.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}pt\" height=\"{height}pt\" font-family=\"{FONT}\" font-size=\"10\" fill=\"{INK}\" role=\"img\">\n<title>{}</title>\n<desc>{}</desc>\n<rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n",
        escape(&figure.title),
        escape(&figure.caption)
    );
    for (index, panel) in figure.panels.iter().enumerate() {
        let (column, row) = (index % columns, index / columns);
        let (x, y) = (WIDTH * column as f64, row_height * row as f64);
        out.push_str(&format!("<g transform=\"translate({x} {y})\">\n"));
        draw_panel(panel, index, &mut out);
        out.push_str("</g>\n");
    }
    for (line, text) in caption.iter().enumerate() {
        let y = row_height * rows as f64 + 9.0 + 13.0 * line as f64;
        out.push_str(&format!(
            "<text x=\"8\" y=\"{y:.1}\" font-size=\"9\" fill=\"#555555\">{}</text>\n",
            escape(text)
        ));
    }
    out.push_str("</svg>\n");
    out
}

fn draw_panel(panel: &Panel, index: usize, out: &mut String) {
    let frame = frame(panel);
    out.push_str(&format!(
        "<text x=\"{LEFT}\" y=\"13\" font-size=\"11\" font-weight=\"bold\">{}</text>\n",
        escape(&panel.title)
    ));
    axes(panel, &frame, out);
    out.push_str(&format!(
        "<clipPath id=\"c{index}\"><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/></clipPath>\n<g clip-path=\"url(#c{index})\">\n",
        frame.x.start,
        frame.y.end,
        frame.x.end - frame.x.start,
        frame.y.start - frame.y.end
    ));
    for mark in &panel.marks {
        draw(mark, &frame, out);
    }
    out.push_str("</g>\n");
    legend(panel, &frame, out);
    for mark in &panel.marks {
        if let Mark::Note(lines) = mark {
            notes(lines, &frame, out);
        }
    }
}

/// Space below a panel for names of categories that are too long to stand side by side, and so are slanted.
fn below(panel: &Panel) -> f64 {
    let names = &panel.x.categories;
    let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or_default() as f64;
    let room = (WIDTH - LEFT - RIGHT) / names.len().max(1) as f64;
    if longest * 5.5 > room { longest * LETTER * SLANT } else { 0.0 }
}

fn frame(panel: &Panel) -> Frame {
    let range = |axis: &Axis, values: Vec<f64>| {
        axis.range.unwrap_or_else(|| {
            let finite = values.into_iter().filter(|x| x.is_finite() && (!axis.log || *x > 0.0));
            let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| {
                (low.min(x), high.max(x))
            });
            if axis.categories.is_empty() {
                if axis.log && low.is_finite() {
                    (low / 1.3, high * 1.3)
                } else {
                    nice_range(low, high)
                }
            } else {
                (-0.5, axis.categories.len() as f64 - 0.5)
            }
        })
    };
    let mut xs = Vec::new();
    let (mut ys, mut rights) = (Vec::new(), Vec::new());
    for mark in &panel.marks {
        let (style, points) = extent(mark);
        for (x, low, high) in points {
            xs.push(x);
            let side = if style.is_some_and(|style| style.right) { &mut rights } else { &mut ys };
            side.extend([low, high]);
        }
        if let Mark::Horizontal(y, _) = mark {
            ys.push(*y);
        }
    }
    let x = if panel.x.categories.is_empty() && panel.x.range.is_none() && !panel.x.log {
        // The axis of steps ends at its last step, not at the next round number.
        let (low, high) = range(&panel.x, xs.clone());
        let last = xs.iter().copied().filter(|x| x.is_finite()).fold(f64::NEG_INFINITY, f64::max);
        let first = xs.iter().copied().filter(|x| x.is_finite()).fold(f64::INFINITY, f64::min);
        if last > first { (first.min(low.max(first)), last) } else { (low, high) }
    } else {
        range(&panel.x, xs)
    };
    let y = range(&panel.y, ys);
    let right = panel.right.as_ref().map_or(y, |axis| range(axis, rights));
    let end = WIDTH - if panel.right.is_some() { LEFT } else { RIGHT };
    let (bottom, top) = (HEIGHT - BOTTOM, TOP);
    Frame {
        x: Scale { low: x.0, high: x.1, start: LEFT, end, log: panel.x.log },
        y: Scale { low: y.0, high: y.1, start: bottom, end: top, log: panel.y.log },
        right: Scale {
            low: right.0,
            high: right.1,
            start: bottom,
            end: top,
            log: panel.right.as_ref().is_some_and(|axis| axis.log),
        },
    }
}

/// The places a mark covers: x, lowest, highest.
fn extent(mark: &Mark) -> (Option<&Style>, Vec<(f64, f64, f64)>) {
    match mark {
        Mark::Line(style, points) | Mark::Dots(style, points) => {
            (Some(style), points.iter().map(|&(x, y)| (x, y, y)).collect())
        }
        Mark::Band(style, points) | Mark::Intervals(style, points) => {
            (Some(style), points.iter().map(|at| (at.x, at.low, at.high)).collect())
        }
        Mark::Bars(style, bars) => {
            let ends = bars.iter().flat_map(|&(from, to, y)| [(from, 0.0, y), (to, 0.0, y)]);
            (Some(style), ends.collect())
        }
        Mark::Area(style, points) => (Some(style), points.clone()),
        Mark::Horizontal(..) | Mark::Vertical(..) | Mark::Shade(..) | Mark::Note(_) => {
            (None, Vec::new())
        }
    }
}

fn axes(panel: &Panel, frame: &Frame, out: &mut String) {
    let (left, end, bottom, top) = (frame.x.start, frame.x.end, frame.y.start, frame.y.end);
    for (value, text) in tick_labels(&panel.y, &frame.y) {
        let y = frame.y.at(value);
        out.push_str(&format!(
            "<line x1=\"{left}\" x2=\"{end}\" y1=\"{y:.2}\" y2=\"{y:.2}\" stroke=\"{FAINT}\" stroke-width=\"0.6\"/><text x=\"{:.1}\" y=\"{:.2}\" text-anchor=\"end\">{text}</text>\n",
            left - 5.0,
            y + 3.4
        ));
    }
    let below = below(panel);
    for (value, text) in tick_labels(&panel.x, &frame.x) {
        let x = frame.x.at(value);
        let placed = if below > 0.0 {
            let (x, y) = (x + 3.0, bottom + 11.0);
            format!(
                "transform=\"translate({x:.2} {y:.1}) rotate(-60)\" font-size=\"9\" text-anchor=\"end\""
            )
        } else {
            format!("x=\"{x:.2}\" y=\"{:.1}\" text-anchor=\"middle\"", bottom + 14.0)
        };
        out.push_str(&format!(
            "<line x1=\"{x:.2}\" x2=\"{x:.2}\" y1=\"{bottom}\" y2=\"{:.1}\" stroke=\"{INK}\" stroke-width=\"0.8\"/><text {placed}>{}</text>\n",
            bottom + 3.5,
            escape(&text)
        ));
    }
    if let Some(axis) = &panel.right {
        for (value, text) in tick_labels(axis, &frame.right) {
            let y = frame.right.at(value) + 3.4;
            out.push_str(&format!("<text x=\"{:.1}\" y=\"{y:.2}\">{text}</text>\n", end + 5.0));
        }
        out.push_str(&format!(
            "<text transform=\"translate({:.1} {:.1}) rotate(90)\" text-anchor=\"middle\">{}</text>\n",
            WIDTH - 11.0,
            f64::midpoint(bottom, top),
            escape(&axis.label)
        ));
    }
    out.push_str(&format!(
        "<path d=\"M{left} {top}V{bottom}H{end}\" fill=\"none\" stroke=\"{INK}\" stroke-width=\"0.9\"/>\n<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n<text transform=\"translate(11 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
        f64::midpoint(left, end),
        HEIGHT + below - 8.0,
        escape(&panel.x.label),
        f64::midpoint(bottom, top),
        escape(&panel.y.label)
    ));
}

fn tick_labels(axis: &Axis, scale: &Scale) -> Vec<(f64, String)> {
    if !axis.categories.is_empty() {
        let names = axis.categories.iter().enumerate();
        return names.map(|(index, name)| (index as f64, name.clone())).collect();
    }
    if axis.log {
        return decades(scale.low, scale.high)
            .into_iter()
            .map(|value| (value, format!("{value}")))
            .collect();
    }
    let ticks = linear(scale.low, scale.high, 5);
    let step = if ticks.len() > 1 { ticks[1] - ticks[0] } else { 1.0 };
    ticks.into_iter().map(|value| (value, label(value, step))).collect()
}

fn draw(mark: &Mark, frame: &Frame, out: &mut String) {
    let (left, end, bottom, top) = (frame.x.start, frame.x.end, frame.y.start, frame.y.end);
    let y_of = |style: &Style| if style.right { frame.right } else { frame.y };
    match mark {
        Mark::Line(style, points) => {
            let y = y_of(style);
            let dash = if style.dashed { " stroke-dasharray=\"5 3\"" } else { "" };
            out.push_str(&format!(
                "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\" stroke-linejoin=\"round\"{dash}/>\n",
                path(points.iter().map(|&(x, value)| (frame.x.at(x), y.at(value)))),
                style.color
            ));
        }
        Mark::Band(style, points) => {
            let y = y_of(style);
            let upper = points.iter().map(|at| (frame.x.at(at.x), y.at(at.high)));
            let lower = points.iter().rev().map(|at| (frame.x.at(at.x), y.at(at.low)));
            out.push_str(&format!(
                "<path d=\"{}Z\" fill=\"{}\" fill-opacity=\"0.18\"/>\n",
                path(upper.chain(lower)),
                style.color
            ));
        }
        Mark::Area(style, points) => {
            let y = y_of(style);
            let upper = points.iter().map(|&(x, _, high)| (frame.x.at(x), y.at(high)));
            let lower = points.iter().rev().map(|&(x, low, _)| (frame.x.at(x), y.at(low)));
            out.push_str(&format!(
                "<path d=\"{}Z\" fill=\"{}\" fill-opacity=\"0.8\"/>\n",
                path(upper.chain(lower)),
                style.color
            ));
        }
        Mark::Dots(style, points) => {
            let y = y_of(style);
            for &(x, value) in points.iter().filter(|(x, value)| x.is_finite() && value.is_finite())
            {
                out.push_str(&format!(
                    "<circle cx=\"{:.2}\" cy=\"{:.2}\" r=\"1.9\" fill=\"{}\" fill-opacity=\"0.55\"/>\n",
                    frame.x.at(x),
                    y.at(value),
                    style.color
                ));
            }
        }
        Mark::Intervals(style, points) => {
            let y = y_of(style);
            for at in points {
                let (x, value) = (frame.x.at(at.x), y.at(at.y));
                out.push_str(&format!(
                    "<path d=\"M{x:.2} {:.2}V{:.2}\" stroke=\"{color}\" stroke-width=\"1.4\"/><circle cx=\"{x:.2}\" cy=\"{value:.2}\" r=\"3\" fill=\"{color}\"/>\n",
                    y.within(at.low),
                    y.within(at.high),
                    color = style.color
                ));
            }
        }
        Mark::Bars(style, bars) => {
            let zero = frame.y.within(0.0);
            for &(from, to, value) in bars {
                let (x, width) = (frame.x.at(from), frame.x.at(to) - frame.x.at(from));
                let y = frame.y.within(value);
                out.push_str(&format!(
                    "<rect x=\"{:.2}\" y=\"{:.2}\" width=\"{:.2}\" height=\"{:.2}\" fill=\"{}\"/>\n",
                    x + 0.3,
                    y.min(zero),
                    (width - 0.6).max(0.3),
                    (zero - y).abs(),
                    style.color
                ));
            }
        }
        Mark::Horizontal(value, name) => {
            let y = frame.y.at(*value);
            out.push_str(&format!(
                "<line x1=\"{left}\" x2=\"{end}\" y1=\"{y:.2}\" y2=\"{y:.2}\" stroke=\"#777777\" stroke-dasharray=\"3 3\"/><text x=\"{:.1}\" y=\"{:.2}\" text-anchor=\"end\" font-size=\"9\" fill=\"#555555\">{}</text>\n",
                end - 3.0,
                y - 3.0,
                escape(name)
            ));
        }
        Mark::Vertical(value, name) => {
            let x = frame.x.at(*value);
            out.push_str(&format!(
                "<line x1=\"{x:.2}\" x2=\"{x:.2}\" y1=\"{top}\" y2=\"{bottom}\" stroke=\"{INK}\" stroke-dasharray=\"4 3\"/><text x=\"{:.2}\" y=\"{:.1}\" font-size=\"9\" fill=\"#555555\">{}</text>\n",
                x + 3.0,
                top + 9.0,
                escape(name)
            ));
        }
        Mark::Shade(from, to, name) => {
            let (x, end) = (frame.x.within(*from), frame.x.within(*to));
            out.push_str(&format!(
                "<rect x=\"{x:.2}\" y=\"{top}\" width=\"{:.2}\" height=\"{:.2}\" fill=\"#eeeeee\"/><text x=\"{:.2}\" y=\"{:.1}\" font-size=\"9\" fill=\"#555555\">{}</text>\n",
                (end - x).max(0.0),
                bottom - top,
                x + 4.0,
                bottom - 5.0,
                escape(name)
            ));
        }
        Mark::Note(_) => {}
    }
}

/// Names above the frame, in as many rows as they need.
fn legend(panel: &Panel, frame: &Frame, out: &mut String) {
    let mut seen: Vec<&str> = Vec::new();
    let (mut x, mut y) = (frame.x.start, TOP - 20.0);
    for mark in &panel.marks {
        let (Some(style), _) = extent(mark) else { continue };
        if style.name.is_empty()
            || style.name.starts_with('_')
            || seen.contains(&style.name.as_str())
        {
            continue;
        }
        seen.push(&style.name);
        let name = shortened(&style.name, 34);
        let width = 20.0 + 5.1 * name.chars().count() as f64;
        if x + width > WIDTH - 4.0 && x > frame.x.start {
            (x, y) = (frame.x.start, y + 11.0);
        }
        let dash = if style.dashed { " stroke-dasharray=\"4 2\"" } else { "" };
        let sample = match mark {
            Mark::Dots(..) | Mark::Intervals(..) => {
                format!(
                    "<circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"2.5\" fill=\"{}\"/>",
                    x + 6.0,
                    style.color
                )
            }
            Mark::Bars(..) | Mark::Area(..) => format!(
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"12\" height=\"7\" fill=\"{}\" fill-opacity=\"0.85\"/>",
                y - 3.5,
                style.color
            ),
            _ => format!(
                "<line x1=\"{x:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"{}\" stroke-width=\"2\"{dash}/>",
                x + 12.0,
                style.color
            ),
        };
        out.push_str(&format!(
            "{sample}<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"9\">{}</text>\n",
            x + 15.0,
            y + 3.0,
            escape(&name)
        ));
        x += width;
    }
}

fn notes(lines: &[String], frame: &Frame, out: &mut String) {
    for (index, line) in lines.iter().enumerate() {
        out.push_str(&format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"9\" fill=\"#333333\" paint-order=\"stroke\" stroke=\"#ffffff\" stroke-width=\"2.5\">{}</text>\n",
            frame.x.start + 6.0,
            frame.y.end + 11.0 + 11.0 * index as f64,
            escape(line)
        ));
    }
}

/// A path through points; a point that is not finite begins a new piece.
fn path(points: impl Iterator<Item = (f64, f64)>) -> String {
    let (mut path, mut pen) = (String::new(), 'M');
    for (x, y) in points {
        if x.is_finite() && y.is_finite() {
            path.push_str(&format!("{pen}{x:.2} {y:.2}"));
            pen = 'L';
        } else {
            pen = 'M';
        }
    }
    path
}

fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let (head, tail) = (most * 2 / 3, most / 3 - 1);
    let skip = text.chars().count() - tail;
    text.chars().take(head).chain(['…']).chain(text.chars().skip(skip)).collect()
}

fn wrap(text: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + word.chars().count() < most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Text that cannot become markup. Control characters are not allowed in XML at all.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_overlap_are_slanted_and_get_room() {
        let panel = |names: &[&str]| Panel {
            title: "panel".to_owned(),
            x: Axis {
                categories: names.iter().map(|&name| name.to_owned()).collect(),
                ..Axis::new("")
            },
            y: Axis::new("points"),
            right: None,
            marks: vec![Mark::Horizontal(0.0, String::new())],
        };
        assert_eq!(below(&panel(&["one", "two"])), 0.0);
        let crowded = panel(&["a long name"; 9]);
        let room = below(&crowded);
        assert!(room > 40.0, "{room}");
        let mut svg = String::new();
        draw_panel(&crowded, 0, &mut svg);
        assert_eq!(svg.matches("rotate(-60)").count(), 9);
    }
}
