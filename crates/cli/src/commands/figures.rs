//! `lens figures`: the paper's figures from the records of runs.

use std::io::Write;
use std::path::PathBuf;

use lens_report::Run;
use lens_report::figures::{ALL, Kind};

use crate::failure::Failure;

/// Draw the paper's figures from the records of runs or sweeps
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lens figures runs --out figures
  lens figures runs/laboratory/seed-42 --out figures --format png,csv")]
pub(crate) struct Figures {
    /// Run folders, or folders that hold runs.
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// The folder the files go to; made if it is missing.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// What to write.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Format::Svg, Format::Csv])]
    format: Vec<Format>,
    /// Only these figures; all by default.
    #[arg(long, value_delimiter = ',', value_parser = kind)]
    only: Vec<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// A drawing for print and web.
    Svg,
    /// A picture of 300 dots per inch.
    Png,
    /// The numbers of the drawing.
    Csv,
}

fn kind(name: &str) -> Result<&'static str, String> {
    let found = ALL.iter().find(|kind| kind.name == name);
    found.map(|kind| kind.name).ok_or_else(|| {
        let names: Vec<&str> = ALL.iter().map(|kind| kind.name).collect();
        format!("there is no figure `{name}`; there are {}", names.join(", "))
    })
}

impl Figures {
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        let runs = load(&self.runs)?;
        std::fs::create_dir_all(&self.out)?;
        let wanted = |kind: &&Kind| self.only.is_empty() || self.only.contains(&kind.name);
        for kind in ALL.iter().filter(wanted) {
            let figure = (kind.draw)(&runs);
            if figure.is_empty() {
                writeln!(out, "{:<11} not drawn: needs {}", kind.name, kind.needs)?;
                continue;
            }
            for format in &self.format {
                let (ending, content) = match format {
                    Format::Svg => ("svg", figure.svg().into_bytes()),
                    Format::Png => {
                        ("png", figure.png().map_err(|error| Failure::Runtime(error.into()))?)
                    }
                    Format::Csv => ("csv", figure.csv().into_bytes()),
                };
                let path = self.out.join(&figure.name).with_added_extension(ending);
                lens_train::files::write_atomically(&path, &content)?;
                writeln!(out, "{:<11} {}", kind.name, path.display())?;
            }
        }
        Ok(())
    }
}

/// Every run in the given folders; an error where there is none.
pub(crate) fn load(paths: &[PathBuf]) -> Result<Vec<Run>, Failure> {
    for path in paths {
        if !path.is_dir() {
            return Err(Failure::user(format!("{} is not a folder", path.display())));
        }
    }
    let runs = Run::load_all(paths);
    if runs.is_empty() {
        return Err(Failure::user(
            "no run found: give a folder that holds config.toml and metrics.jsonl, such as runs/NAME/seed-42",
        ));
    }
    Ok(runs)
}
