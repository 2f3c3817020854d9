//! Running the peers: small Python scripts that do the same work with what people use otherwise.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::measurement::{Measurement, printed};
use crate::failure::Failure;

/// A peer's script and how to call it.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    /// For the table.
    pub(super) name: &'static str,
    /// What it has to import: one module of each group.
    pub(super) needs: &'static [&'static [&'static str]],
    pub(super) script: &'static str,
    pub(super) arguments: Vec<String>,
}

/// The modules peers are made of.
const MODULES: [&str; 6] = ["torch", "transformers", "numpy", "trl", "llama_cpp", "xllamacpp"];

/// A Python and what it can import.
#[derive(Debug)]
pub(super) struct Python {
    program: Option<PathBuf>,
    /// Module to version; the ones that cannot be imported are left out.
    versions: Vec<(&'static str, String)>,
}

impl Python {
    /// Asks a Python what it can import. Without one there are no peers.
    pub(super) fn find(program: Option<&Path>) -> Self {
        let Some(program) = program else {
            return Self { program: None, versions: Vec::new() };
        };
        let versions = MODULES
            .into_iter()
            .filter_map(|module| {
                let code = format!("import {module}; print({module}.__version__)");
                let output = Command::new(program).args(["-c", &code]).output().ok()?;
                let version = String::from_utf8(output.stdout).ok()?.trim().to_owned();
                output.status.success().then_some((module, version))
            })
            .collect();
        Self { program: Some(program.to_owned()), versions }
    }

    /// Whether it can import a module.
    pub(super) fn has(&self, module: &str) -> bool {
        self.versions.iter().any(|(known, _)| *known == module)
    }

    pub(super) fn can_run(&self, peer: &Peer) -> bool {
        peer.needs.iter().all(|group| group.iter().any(|module| self.has(module)))
    }

    pub(super) fn run(&self, peer: &Peer) -> Result<Measurement, Failure> {
        let Some(program) = &self.program else {
            return Err(Failure::user("no Python is given; use --python"));
        };
        let output =
            Command::new(program).args(["-c", peer.script]).args(&peer.arguments).output()?;
        printed(peer.name, &output)
    }

    /// Who takes part and who does not, in a few words each.
    pub(super) fn sentences(&self) -> Vec<String> {
        let Some(program) = &self.program else {
            return vec![
                "no peers: give a Python that can import torch and transformers with --python or LENS_PYTHON"
                    .to_owned(),
            ];
        };
        let version = |module: &str| {
            let found = self.versions.iter().find(|(known, _)| *known == module);
            found.map(|(module, version)| format!("{module} {version}"))
        };
        let absent =
            |what: &str| format!("{} cannot import {what}: no such peer", program.display());
        vec![
            match (version("torch"), version("transformers")) {
                (Some(torch), Some(transformers)) => format!("{torch}, {transformers}"),
                (Some(torch), None) => {
                    format!("{torch}; {}", absent("transformers, which decoding and scoring use"))
                }
                (None, _) => absent("torch"),
            },
            version("llama_cpp")
                .or_else(|| version("xllamacpp"))
                .unwrap_or_else(|| absent("llama_cpp or xllamacpp")),
        ]
    }

    pub(super) fn facts(&self) -> Value {
        self.versions
            .iter()
            .map(|(module, version)| ((*module).to_owned(), json!(version)))
            .collect()
    }
}
