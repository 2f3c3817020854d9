//! The upstream files of a folder.

use std::collections::HashMap;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use super::raw::{RawHumanInstruction, RawInstruction, RawNouns, RawProduct};
use super::stream::{Next, read_array, read_object};
use super::{Catalog, CatalogBuilder, InstructionSource, malformed};
use crate::error::EnvError;
use crate::files;

/// Large reads keep the parser, not the system, busy.
const BUFFER: usize = 1 << 18;

/// Where a catalog's files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogFiles {
    /// `items_shuffle_1000.json` or `items_shuffle.json`.
    pub products: PathBuf,
    /// `items_ins_v2_1000.json` or `items_ins_v2.json`.
    pub instructions: PathBuf,
    /// `items_human_ins.json`, needed for human goals only.
    pub human_instructions: Option<PathBuf>,
    /// `nouns.jsonl`, needed for exact rewards only.
    pub nouns: Option<PathBuf>,
}

impl CatalogFiles {
    /// Looks for the files in a folder. A folder that has both sizes gives the full catalog.
    pub fn find(folder: &Path) -> Result<Self, EnvError> {
        for (products, instructions) in [
            ("items_shuffle.json", "items_ins_v2.json"),
            ("items_shuffle_1000.json", "items_ins_v2_1000.json"),
        ] {
            let products = folder.join(products);
            if !products.is_file() {
                continue;
            }
            let instructions = folder.join(instructions);
            if !instructions.is_file() {
                return Err(EnvError::Missing {
                    what: instructions.display().to_string(),
                    hint: format!("it belongs to {}, from the same source", products.display()),
                });
            }
            return Ok(Self {
                products,
                instructions,
                human_instructions: human_file(folder),
                nouns: Some(folder.join("nouns.jsonl")).filter(|path| path.is_file()),
            });
        }
        Err(EnvError::Missing {
            what: format!("items_shuffle.json or items_shuffle_1000.json in {}", folder.display()),
            hint:
                "run `lens data webshop` to see where the files come from, or leave --data out to \
                   play on the built-in catalog"
                    .to_owned(),
        })
    }
}

/// The file of human instructions; excerpts carry a suffix.
fn human_file(folder: &Path) -> Option<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.starts_with("items_human_ins")
                && path.extension().is_some_and(|extension| extension == "json")
        })
        .collect();
    found.sort();
    found.into_iter().next()
}

fn open(path: &Path) -> Result<impl Read, EnvError> {
    Ok(BufReader::with_capacity(BUFFER, files::open(path)?))
}

/// Reads a catalog; `limit` keeps the first products of the file, `human` takes human goals instead of synthetic.
pub fn load(files: &CatalogFiles, limit: Option<usize>, human: bool) -> Result<Catalog, EnvError> {
    let mut instructions: HashMap<String, RawInstruction> = HashMap::new();
    let name = files.instructions.display().to_string();
    read_object(open(&files.instructions)?, &name, |asin, instruction| {
        instructions.insert(asin, instruction);
    })?;
    let mut written = if human { Some(load_human(files)?) } else { None };
    let mut source =
        written.as_mut().map_or(InstructionSource::Synthetic, InstructionSource::Human);
    let mut builder = CatalogBuilder::default();
    let name = files.products.display().to_string();
    read_array(open(&files.products)?, &name, |at, raw: RawProduct| {
        if limit.is_some_and(|limit| at >= limit) {
            return Ok(Next::Enough);
        }
        let asin = raw.asin.clone();
        let instruction = instructions.remove(&asin);
        builder
            .add(raw, instruction, &mut source)
            .map_err(|message| malformed(&name, at, &asin, &message))?;
        Ok(Next::More)
    })?;
    Ok(builder.finish())
}

fn load_human(files: &CatalogFiles) -> Result<HashMap<String, Vec<RawHumanInstruction>>, EnvError> {
    let path = files.human_instructions.as_ref().ok_or_else(|| EnvError::Missing {
        what: "items_human_ins.json".to_owned(),
        hint: format!("put it beside {} or use synthetic goals", files.products.display()),
    })?;
    let mut written = HashMap::new();
    read_object(open(path)?, &path.display().to_string(), |asin, list| {
        written.insert(asin, list);
    })?;
    Ok(written)
}

/// Reads a noun table: one JSON object with `name` and `nouns` on each line.
pub fn load_nouns(path: &Path) -> Result<Vec<RawNouns>, EnvError> {
    let text = files::text(path)?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(at, line)| {
            serde_json::from_str(line).map_err(|error| EnvError::Malformed {
                path: path.display().to_string(),
                line: Some(at + 1),
                message: error.to_string(),
            })
        })
        .collect()
}
