//! A line plot as a self-contained SVG.

/// A named curve.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// A plot of a few curves.
#[derive(Debug, Clone)]
pub(crate) struct Plot {
    pub(crate) title: String,
    pub(crate) x: String,
    pub(crate) y: String,
    pub(crate) lines: Vec<Line>,
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 56.0;
/// Colours that stay apart for colour-blind readers.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

impl Plot {
    /// The plot as SVG text.
    pub(crate) fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let (x_low, x_high) = range(points().map(|point| point.0));
        let (y_low, y_high) = range(points().map(|point| point.1).chain([0.0]));
        let place_x = |x: f64| LEFT + (x - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT);
        let place_y =
            |y: f64| HEIGHT - BOTTOM - (y - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
             <text x=\"{LEFT}\" y=\"24\" font-size=\"16\">{}</text>\n",
            escape(&self.title)
        );
        for step in 0..=4 {
            let share = f64::from(step) / 4.0;
            let (x, y) = (x_low + share * (x_high - x_low), y_low + share * (y_high - y_low));
            let (at_x, at_y) = (place_x(x), place_y(y));
            let (right, base) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
            svg.push_str(&format!(
                "<line x1=\"{LEFT}\" y1=\"{at_y:.1}\" x2=\"{right}\" y2=\"{at_y:.1}\" stroke=\"#dddddd\"/>\n\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{y:.0}</text>\n\
                 <text x=\"{at_x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{x:.0}</text>\n",
                LEFT - 8.0,
                at_y + 4.0,
                base + 18.0
            ));
        }
        svg.push_str(&format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n\
             <text x=\"16\" y=\"{:.1}\" transform=\"rotate(-90 16 {:.1})\" text-anchor=\"middle\">{}</text>\n",
            (LEFT + WIDTH - RIGHT) / 2.0,
            HEIGHT - 14.0,
            escape(&self.x),
            HEIGHT / 2.0,
            HEIGHT / 2.0,
            escape(&self.y)
        ));
        for (number, line) in self.lines.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            let path: Vec<String> = line
                .points
                .iter()
                .map(|&(x, y)| format!("{:.1},{:.1}", place_x(x), place_y(y)))
                .collect();
            svg.push_str(&format!(
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n",
                path.join(" ")
            ));
            for point in &path {
                if let Some((x, y)) = point.split_once(',') {
                    svg.push_str(&format!(
                        "<circle cx=\"{x}\" cy=\"{y}\" r=\"3\" fill=\"{colour}\"/>\n"
                    ));
                }
            }
            let at = TOP + 8.0 + 20.0 * number as f64;
            svg.push_str(&format!(
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"12\" height=\"3\" fill=\"{colour}\"/>\n<text x=\"{:.1}\" y=\"{:.1}\">{}</text>\n",
                WIDTH - RIGHT + 12.0,
                at - 4.0,
                WIDTH - RIGHT + 30.0,
                at,
                escape(&line.name)
            ));
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// The smallest and the largest value, never equal.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    match (low.is_finite(), high > low) {
        (false, _) => (0.0, 1.0),
        (true, false) => (low, low + 1.0),
        (true, true) => (low, high),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_holds_its_curves_inside_its_frame() {
        let lines = vec![
            Line { name: "a<b".to_owned(), points: vec![(0.0, 5.0), (40.0, 30.0)] },
            Line { name: "flat".to_owned(), points: vec![(0.0, 0.0)] },
        ];
        let plot = Plot { title: "T".to_owned(), x: "x".to_owned(), y: "y".to_owned(), lines };
        let svg = plot.svg();
        assert!(svg.contains("a&lt;b") && svg.ends_with("</svg>\n"));
        let points = svg.split("points=\"").nth(1).and_then(|rest| rest.split('"').next());
        assert_eq!(points, Some("64.0,310.7 570.0,44.0"));
    }

    #[test]
    fn an_empty_plot_is_still_a_picture() {
        let plot =
            Plot { title: String::new(), x: String::new(), y: String::new(), lines: Vec::new() };
        assert!(!plot.svg().contains("NaN"));
    }
}
