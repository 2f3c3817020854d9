//! `lens config`: look at a configuration before running it.

use std::io::Write;
use std::path::{Path, PathBuf};

use anstyle::{AnsiColor, Style};
use lens_config::check::check_prompt;
use lens_config::render::Line;
use lens_config::{Config, Origin, Resolved, render, resolve, schema, trinity};
use lens_lm::checkpoint::Checkpoint;
use lens_train::references::References;

use crate::assemble;
use crate::failure::Failure;
use crate::terminal::say;
use crate::wording::counted;

const DIM: Style = Style::new().dimmed();
const SECTION: Style = AnsiColor::Cyan.on_default().bold();

/// Files and overrides, as every command that takes a configuration accepts them.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ConfigArgs {
    /// Configuration files; later ones win. Without any, the defaults are the paper's settings.
    #[arg(value_name = "CONFIG")]
    pub(crate) files: Vec<PathBuf>,
    /// Override one value, such as --set train.steps=100; may be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) overrides: Vec<String>,
}

impl ConfigArgs {
    /// Reads the files, applies the overrides and checks the result.
    pub(crate) fn resolve(&self) -> Result<Resolved, Failure> {
        Ok(resolve(&self.files, &self.overrides)?)
    }
}

/// Show, check and import configurations
#[derive(Debug, clap::Subcommand)]
#[command(after_help = "\
Examples:
  lens config show configs/paper/alfworld-qwen3-1.7b.toml
  lens config check configs/laboratory.toml --files")]
pub(crate) enum ConfigCommand {
    /// Print the resolved configuration and where each value came from
    Show {
        #[command(flatten)]
        config: ConfigArgs,
        /// Print the values only, as a file that can be read back.
        #[arg(long)]
        plain: bool,
    },
    /// Check a configuration; the exit code is 1 if it cannot be used
    Check {
        #[command(flatten)]
        config: ConfigArgs,
        /// Also look at the files it names: models, data, splits, references.
        #[arg(long = "files")]
        look: bool,
    },
    /// Print the JSON schema of configuration files, for editors
    Schema,
    /// Convert a Trinity-RFT (TCOD) YAML file to a configuration
    ImportTrinity {
        /// The YAML file.
        file: PathBuf,
        /// Accept a file whose algorithm has no counterpart; the rest of it is converted either way.
        #[arg(long)]
        partial: bool,
    },
}

impl ConfigCommand {
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        match self {
            Self::Show { config, plain: true } => {
                write!(out, "{}", render::to_toml(&config.resolve()?.config))?;
            }
            Self::Show { config, plain: false } => show(&config.resolve()?, out)?,
            Self::Check { config, look } => {
                let resolved = config.resolve()?;
                for note in &resolved.notes {
                    say(&format!("note: {note}"));
                }
                check_prompt(&resolved)?;
                if look {
                    check_files(&resolved.config)?;
                }
                let set = counted(resolved.origins.len() as u64, "value");
                let name = &resolved.config.name;
                writeln!(out, "ok: \"{name}\", {set} set, the rest are defaults")?;
            }
            Self::Schema => {
                let schema = serde_json::to_string_pretty(&schema::json_schema())
                    .map_err(|error| Failure::Runtime(error.into()))?;
                writeln!(out, "{schema}")?;
            }
            Self::ImportTrinity { file, partial } => {
                import_trinity(&file, &trinity::import(&file)?, partial, out)?;
            }
        }
        Ok(())
    }
}

fn show(resolved: &Resolved, out: &mut dyn Write) -> Result<(), Failure> {
    for line in render::lines(resolved) {
        match line {
            Line::Section(name) => writeln!(out, "\n{SECTION}[{name}]{SECTION:#}")?,
            Line::Value { key, value, origin: Origin::Default } => {
                writeln!(out, "{:<44} {DIM}# default{DIM:#}", format!("{key} = {value}"))?;
            }
            Line::Value { key, value, origin } => {
                writeln!(out, "{:<44} # {origin}", format!("{key} = {value}"))?;
            }
        }
    }
    Ok(())
}

/// Refuses a configuration whose files are missing or cannot be used.
fn check_files(config: &Config) -> Result<(), Failure> {
    let found = assemble::with_models(config)?;
    for model in [&found.student, &found.teacher] {
        Checkpoint::open(&model.path)?;
    }
    let benchmark = assemble::benchmark(config)?;
    for split in config.task.eval_splits.iter().chain([&config.task.train_split]) {
        benchmark.tasks(split)?;
    }
    References::open(&config.task.references)?;
    Ok(())
}

fn import_trinity(
    file: &Path,
    import: &trinity::Import,
    partial: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    write!(out, "{}", import.to_toml())?;
    if !import.unmapped.is_empty() {
        writeln!(out, "\n# Without a counterpart:")?;
        for unmapped in &import.unmapped {
            writeln!(out, "#   {}: {}", unmapped.from, unmapped.reason)?;
        }
    }
    out.flush()?;
    let unknown: Vec<&str> = import
        .unmapped
        .iter()
        .filter(|unmapped| unmapped.is_unknown())
        .map(|unmapped| unmapped.from.as_str())
        .collect();
    if !unknown.is_empty() {
        say(&format!("warning: {}: unknown keys: {}", file.display(), unknown.join(", ")));
    }
    match &import.unknown_algorithm {
        None => Ok(()),
        Some(algorithm) => {
            let message =
                format!("{}: the algorithm \"{algorithm}\" has no counterpart", file.display());
            if partial {
                say(&format!("warning: {message}"));
                return Ok(());
            }
            Err(Failure::user_with_hint(
                message,
                "pass --partial to use the rest of the file with a method of your choice",
            ))
        }
    }
}
