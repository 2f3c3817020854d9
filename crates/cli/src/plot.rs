//! A line plot as a self-contained SVG.

/// A named curve.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
    /// The lower and upper end of each point's interval; empty for none.
    pub(crate) band: Vec<(f64, f64)>,
}

/// What the vertical axis shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Range {
    /// 0 to 100.
    Percent,
}

/// A plot of a few curves.
#[derive(Debug, Clone)]
pub(crate) struct Plot {
    pub(crate) title: String,
    pub(crate) x: String,
    pub(crate) y: String,
    pub(crate) range: Range,
    pub(crate) lines: Vec<Line>,
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 56.0;
/// Characters of a legend entry that fit beside the plot.
const LABEL: usize = 24;
/// Colors that stay apart for color-blind readers, and dashes for when one line covers another.
const COLORS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
const DASHES: [&str; 3] = ["", " stroke-dasharray=\"6 3\"", " stroke-dasharray=\"2 3\""];

impl Plot {
    /// The plot as SVG text.
    pub(crate) fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let x_ticks = ticks(points().map(|point| point.0));
        let y_ticks = match self.range {
            Range::Percent => vec![0.0, 20.0, 40.0, 60.0, 80.0, 100.0],
        };
        let ends = |ticks: &[f64]| (ticks[0], ticks[ticks.len() - 1]);
        let ((x_low, x_high), (y_low, y_high)) = (ends(&x_ticks), ends(&y_ticks));
        let (right, base) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let at_x = |x: f64| LEFT + (x - x_low) / (x_high - x_low) * (right - LEFT);
        let at_y = |y: f64| base - (y - y_low) / (y_high - y_low) * (base - TOP);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
             <text x=\"{LEFT}\" y=\"24\" font-size=\"16\">{}</text>\n",
            escape(&self.title)
        );
        for &y in &y_ticks {
            let (at, label) = (at_y(y), LEFT - 8.0);
            svg.push_str(&format!(
                "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\" stroke=\"#dddddd\"/>\n\
                 <text x=\"{label:.1}\" y=\"{:.1}\" text-anchor=\"end\">{y}</text>\n",
                at + 4.0
            ));
        }
        for &x in &x_ticks {
            svg.push_str(&format!(
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{x}</text>\n",
                at_x(x),
                base + 18.0
            ));
        }
        svg.push_str(&format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n\
             <text x=\"16\" y=\"{:.1}\" transform=\"rotate(-90 16 {:.1})\" text-anchor=\"middle\">{}</text>\n",
            f64::midpoint(LEFT, right),
            HEIGHT - 14.0,
            escape(&self.x),
            HEIGHT / 2.0,
            HEIGHT / 2.0,
            escape(&self.y)
        ));
        let labels = labels(&self.lines);
        for (number, (line, label)) in self.lines.iter().zip(labels).enumerate() {
            let color = COLORS[number % COLORS.len()];
            let dash = DASHES[number % DASHES.len()];
            let path: Vec<String> = line
                .points
                .iter()
                .map(|&(x, y)| format!("{:.1},{:.1}", at_x(x), at_y(y)))
                .collect();
            let lower = line.points.iter().zip(&line.band).map(|(point, band)| (point.0, band.0));
            let upper = line.points.iter().zip(&line.band).map(|(point, band)| (point.0, band.1));
            let outline: Vec<String> = lower
                .chain(upper.rev())
                .map(|(x, y)| format!("{:.1},{:.1}", at_x(x), at_y(y)))
                .collect();
            if !outline.is_empty() {
                svg.push_str(&format!(
                    "<polygon points=\"{}\" fill=\"{color}\" fill-opacity=\"0.12\"/>\n",
                    outline.join(" ")
                ));
            }
            svg.push_str(&format!(
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"{dash}/>\n",
                path.join(" ")
            ));
            for &(x, y) in &line.points {
                let (x, y) = (at_x(x), at_y(y));
                svg.push_str(&format!(
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{color}\"/>\n"
                ));
            }
            let (at, left) = (TOP + 8.0 + 20.0 * number as f64, right + 12.0);
            svg.push_str(&format!(
                "<line x1=\"{left}\" y1=\"{:.1}\" x2=\"{}\" y2=\"{:.1}\" stroke=\"{color}\" stroke-width=\"3\"{dash}/>\n\
                 <text x=\"{}\" y=\"{at:.1}\">{}</text>\n",
                at - 4.0,
                left + 14.0,
                at - 4.0,
                left + 20.0,
                escape(&label)
            ));
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// Round numbers that enclose the values: steps of 1, 2 or 5 times a power of ten, whole ones at least.
fn ticks(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let (low, high) = values
        .filter(|value| value.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)));
    let (low, high) = if low.is_finite() { (low, high.max(low + 1.0)) } else { (0.0, 1.0) };
    let power = 10_f64.powf(((high - low) / 5.0).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|times| (times * power).max(1.0));
    let step = steps.into_iter().find(|step| (high - low) / step <= 6.0).unwrap_or(10.0 * power);
    let (first, last) = ((low / step).floor() as i64, (high / step).ceil() as i64);
    (first..=last).map(|index| index as f64 * step).collect()
}

/// Names short enough for the legend and all different: where two become the same, they are numbered.
fn labels(lines: &[Line]) -> Vec<String> {
    let short = |name: &str| {
        let length = name.chars().count();
        if length <= LABEL {
            return name.to_owned();
        }
        // The end of a path says more than its beginning.
        let end: String = name.chars().skip(length - LABEL + 1).collect();
        format!("…{end}")
    };
    let mut labels: Vec<String> = Vec::with_capacity(lines.len());
    for line in lines {
        let mut label = short(&line.name);
        let mut number = 2;
        while labels.contains(&label) {
            label = format!("{} ({number})", short(&line.name));
            number += 1;
        }
        labels.push(label);
    }
    labels
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(lines: Vec<Line>) -> String {
        let [title, x, y] = ["T", "x", "y"].map(str::to_owned);
        Plot { title, x, y, range: Range::Percent, lines }.svg()
    }

    #[test]
    fn a_plot_holds_its_curves_inside_its_frame() {
        let svg = plot(vec![
            Line {
                name: "a<b".to_owned(),
                points: vec![(0.0, 0.0), (40.0, 100.0)],
                band: vec![(0.0, 10.0), (80.0, 100.0)],
            },
            Line { name: "flat".to_owned(), points: vec![(0.0, 0.0)], band: Vec::new() },
        ]);
        assert!(svg.contains("a&lt;b") && svg.ends_with("</svg>\n"));
        let band = svg.split("<polygon points=\"").nth(1).and_then(|rest| rest.split('"').next());
        assert_eq!(band, Some("64.0,364.0 570.0,108.0 570.0,44.0 64.0,332.0"));
        let points =
            svg.split("<polyline points=\"").nth(1).and_then(|rest| rest.split('"').next());
        assert_eq!(points, Some("64.0,364.0 570.0,44.0"));
    }

    #[test]
    fn an_empty_plot_is_still_a_picture() {
        assert!(!plot(Vec::new()).contains("NaN"));
    }

    #[test]
    fn ticks_are_round_numbers_where_they_say_they_are() {
        assert_eq!(ticks([0.0, 3.0].into_iter()), [0.0, 1.0, 2.0, 3.0]);
        assert_eq!(ticks([0.0, 40.0].into_iter()), [0.0, 10.0, 20.0, 30.0, 40.0]);
        assert_eq!(ticks([0.0, 6.0].into_iter()).len(), 7);
        assert_eq!(ticks([7.0].into_iter()), [7.0, 8.0]);
        let many = ticks([3.0, 1234.0].into_iter());
        assert!(many.len() <= 8 && many[0] <= 3.0 && many[many.len() - 1] >= 1234.0, "{many:?}");
    }

    #[test]
    fn long_names_stay_apart() {
        let line =
            |name: &str| Line { name: name.to_owned(), points: Vec::new(), band: Vec::new() };
        let long = "runs/a/very/long/name/seed-42/checkpoints/step-000060/model";
        let found = labels(&[line(long), line(long), line("short")]);
        assert_eq!(found[2], "short");
        assert_ne!(found[0], found[1]);
    }
}
