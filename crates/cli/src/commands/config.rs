//! `lens config`: look at a configuration before running it.

use std::io::Write;
use std::path::PathBuf;

use anstyle::{AnsiColor, Style};
use lens_config::render::Line;
use lens_config::{Origin, Resolved, render, resolve, schema, trinity};

use crate::failure::Failure;

const DIM: Style = Style::new().dimmed();
const SECTION: Style = AnsiColor::Cyan.on_default().bold();

/// Files and overrides, as every command that takes a configuration accepts them.
#[derive(Debug, clap::Args)]
pub(crate) struct ConfigArgs {
    /// Configuration files, later ones win; none means the defaults, which are the paper's settings.
    pub(crate) files: Vec<PathBuf>,
    /// Override one value, such as --set train.steps=100; may be given many times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) overrides: Vec<String>,
}

impl ConfigArgs {
    /// Reads the files, applies the overrides and checks the result.
    pub(crate) fn resolve(&self) -> Result<Resolved, Failure> {
        Ok(resolve(&self.files, &self.overrides)?)
    }
}

/// What to do with a configuration.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print the resolved configuration and where each value came from.
    Show {
        #[command(flatten)]
        config: ConfigArgs,
        /// Print the values only, as a file that can be read back.
        #[arg(long)]
        plain: bool,
    },
    /// Say whether a configuration can be used; exit code 1 if not.
    Check {
        #[command(flatten)]
        config: ConfigArgs,
    },
    /// Print the JSON schema of configuration files, for editors.
    Schema,
    /// Read a Trinity-RFT (TCOD) YAML file and print the configuration it amounts to.
    ImportTrinity {
        /// The YAML file.
        file: PathBuf,
    },
}

impl ConfigCommand {
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        match self {
            Self::Show { config, plain: true } => {
                write!(out, "{}", render::to_toml(&config.resolve()?.config))?;
            }
            Self::Show { config, plain: false } => show(&config.resolve()?, out)?,
            Self::Check { config } => {
                let resolved = config.resolve()?;
                let set = resolved.origins.len();
                let name = &resolved.config.name;
                writeln!(out, "ok: \"{name}\", {set} values set, the rest are defaults")?;
            }
            Self::Schema => {
                let schema = serde_json::to_string_pretty(&schema::json_schema())
                    .map_err(|error| Failure::Runtime(error.into()))?;
                writeln!(out, "{schema}")?;
            }
            Self::ImportTrinity { file } => import_trinity(&trinity::import(&file)?, out)?,
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

fn import_trinity(import: &trinity::Import, out: &mut dyn Write) -> Result<(), Failure> {
    write!(out, "{}", import.to_toml())?;
    if !import.unmapped.is_empty() {
        writeln!(out, "\n# Without a counterpart:")?;
        for unmapped in &import.unmapped {
            writeln!(out, "#   {}: {}", unmapped.from, unmapped.reason)?;
        }
    }
    Ok(())
}
