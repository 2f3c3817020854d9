//! A figure's numbers as CSV.

use super::{Figure, Mark};

pub(super) fn document(figure: &Figure) -> String {
    let mut text = "panel,series,x,y,low,high,count\n".to_owned();
    for panel in &figure.panels {
        let mut row = |series: &str, cells: [String; 5]| {
            let names =
                format!("{},{}", field(&panel.title), field(series.trim_start_matches('_')));
            text.push_str(&format!("{names},{}\n", cells.join(",")));
        };
        let x_name = |x: f64| match panel.x.categories.get(x.round() as usize) {
            Some(name) if !panel.x.categories.is_empty() && x >= 0.0 => field(name),
            _ => x.to_string(),
        };
        for mark in &panel.marks {
            match mark {
                Mark::Line(style, points) | Mark::Dots(style, points) => {
                    for (x, y) in points {
                        row(
                            &style.name,
                            [
                                x_name(*x),
                                y.to_string(),
                                String::new(),
                                String::new(),
                                String::new(),
                            ],
                        );
                    }
                }
                Mark::Band(style, points) | Mark::Intervals(style, points) => {
                    for at in points {
                        let (low, high) = (at.low.to_string(), at.high.to_string());
                        row(
                            &style.name,
                            [x_name(at.x), at.y.to_string(), low, high, at.count.to_string()],
                        );
                    }
                }
                Mark::Bars(style, bars) => {
                    for (from, to, y) in bars {
                        let middle = f64::midpoint(*from, *to);
                        row(
                            &style.name,
                            [
                                middle.to_string(),
                                y.to_string(),
                                from.to_string(),
                                to.to_string(),
                                String::new(),
                            ],
                        );
                    }
                }
                Mark::Area(style, points) => {
                    for (x, low, high) in points {
                        row(
                            &style.name,
                            [
                                x_name(*x),
                                (high - low).to_string(),
                                low.to_string(),
                                high.to_string(),
                                String::new(),
                            ],
                        );
                    }
                }
                Mark::Horizontal(..) | Mark::Vertical(..) | Mark::Shade(..) | Mark::Note(_) => {}
            }
        }
    }
    text
}

/// A field, quoted where it must be. A leading sign of a formula is quoted for spreadsheets.
fn field(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let text = if text.starts_with(['=', '+', '@']) { format!("'{text}") } else { text };
    if text.contains(['"', ',']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}
