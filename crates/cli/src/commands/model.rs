//! `lens model`: look at a model, convert it, make a fresh one.

mod compare;
mod inspect;

use std::io::Write;
use std::path::{Path, PathBuf};

use lens_lm::checkpoint::{
    Checkpoint, Companions, Dtype, ModelFiles, ModelTokens, SaveOptions, TensorSource, save,
};
use lens_lm::gguf::GgufModel;
use lens_lm::init::{FreshWeights, InitSpec};

use crate::failure::Failure;

/// Inspect, convert and create models
#[derive(Debug, clap::Subcommand)]
#[command(after_help = "\
Examples:
  lens model inspect assets/lab/teacher --check
  lens model convert model.gguf models/converted --dtype bf16")]
pub(crate) enum Model {
    /// Show a model's shape, weights, tokenizer and the memory it needs
    Inspect {
        /// A model directory or a GGUF file.
        model: PathBuf,
        /// List every tensor instead of one line per kind.
        #[arg(long)]
        tensors: bool,
        /// Read all weights and check that they are finite.
        #[arg(long)]
        check: bool,
        /// Load the model as f32, bf16, bf16-dot and int8 and measure what rounding its weights costs on built-in text.
        #[arg(long)]
        compare: bool,
        /// Print JSON for scripts.
        #[arg(long)]
        json: bool,
    },
    /// Convert a GGUF file to a model directory, or a directory's weights to another type
    Convert {
        /// A model directory or a GGUF file.
        source: PathBuf,
        /// The directory to write.
        target: PathBuf,
        /// Store the weights as f32, bf16 or f16; without it, as the source stores them (f32 for quantized files).
        #[arg(long)]
        dtype: Option<Dtype>,
        /// Take the tokenizer from this folder instead of the GGUF file.
        #[arg(long, value_name = "FOLDER")]
        tokenizer: Option<PathBuf>,
        #[command(flatten)]
        writing: Writing,
    },
    /// Create a model with random weights from a TOML description
    Init {
        /// The description: family, sizes, seed, tokenizer.
        spec: PathBuf,
        /// The directory to write.
        target: PathBuf,
        /// Store the weights as f32, bf16 or f16.
        #[arg(long, default_value = "f32")]
        dtype: Dtype,
        /// Take the tokenizer from this folder, whatever the description says.
        #[arg(long, value_name = "FOLDER")]
        tokenizer: Option<PathBuf>,
        /// Draw the weights from this seed, whatever the description says.
        #[arg(long)]
        seed: Option<u64>,
        #[command(flatten)]
        writing: Writing,
    },
}

/// How the target is written.
#[derive(Debug, clap::Args)]
pub(crate) struct Writing {
    /// Write into a directory that already exists.
    #[arg(long)]
    force: bool,
    /// Start another weight file beyond this many megabytes.
    #[arg(long, value_name = "MB", default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1..))]
    shard_megabytes: u64,
}

impl Model {
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        match self {
            Self::Inspect { model, tensors, check, compare, json } => {
                inspect::run(&model, inspect::Wanted { tensors, check, compare, json }, out)
            }
            Self::Convert { source, target, dtype, tokenizer, writing } => {
                convert(&source, &target, dtype, tokenizer.as_deref(), &writing, out)
            }
            Self::Init { spec, target, dtype, tokenizer, seed, writing } => {
                init(&spec, &target, dtype, tokenizer, seed, &writing, out)
            }
        }
    }
}

impl Writing {
    fn save(
        &self,
        target: &Path,
        files: &ModelFiles,
        source: &dyn TensorSource,
        dtype: Dtype,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let occupied = std::fs::read_dir(target).is_ok_and(|mut entries| entries.next().is_some());
        if occupied && !self.force {
            return Err(Failure::user_with_hint(
                format!("{} is not empty", target.display()),
                "choose another directory, or replace the model in it with --force",
            ));
        }
        let options = SaveOptions { dtype, shard_limit: self.shard_megabytes * 1_000_000 };
        save(target, files, source, &options)?;
        let parameters = inspect::thousands(files.config.parameter_count());
        writeln!(out, "{}: {parameters} parameters in {dtype}", target.display())?;
        if !files.companions.files.contains_key("tokenizer.json") {
            writeln!(
                out,
                "it has no tokenizer yet: copy tokenizer files into it, or use --tokenizer FOLDER"
            )?;
        }
        Ok(())
    }
}

/// Whether a path means a single file, which must then be GGUF.
pub(crate) fn is_single_file(path: &Path) -> bool {
    path.is_file() || path.extension().is_some_and(|end| end == "gguf")
}

fn convert(
    source: &Path,
    target: &Path,
    dtype: Option<Dtype>,
    tokenizer: Option<&Path>,
    writing: &Writing,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let companions = tokenizer.map(tokenizer_files).transpose()?;
    if is_single_file(source) {
        let model = GgufModel::open(source)?;
        let files = match companions {
            Some(companions) => model.files_with(companions),
            None => model.files()?,
        };
        files.tokenizer()?;
        let dtype = dtype.unwrap_or_else(|| model.lossless_dtype());
        return writing.save(target, &files, &model, dtype, out);
    }
    let mut checkpoint = Checkpoint::open(source)?;
    if let Some(companions) = companions {
        checkpoint.files.companions = companions;
        checkpoint.files.tokenizer()?;
    }
    let same_place = match (source.canonicalize(), target.canonicalize()) {
        (Ok(source), Ok(target)) => source == target,
        _ => false,
    };
    if same_place {
        return Err(Failure::user_with_hint(
            format!("{} cannot be read and written at the same time", source.display()),
            "choose another directory",
        ));
    }
    let dtype = dtype.unwrap_or_else(|| checkpoint.weights.main_dtype());
    writing.save(target, &checkpoint.files, &checkpoint.weights, dtype, out)
}

fn init(
    spec_path: &Path,
    target: &Path,
    dtype: Dtype,
    tokenizer: Option<PathBuf>,
    seed: Option<u64>,
    writing: &Writing,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let text = std::fs::read_to_string(spec_path).map_err(|error| {
        Failure::user(format!("{}: cannot read it: {error}", spec_path.display()))
    })?;
    let spec = InitSpec::parse(spec_path, &text)?;
    let companions = match tokenizer.or_else(|| spec.tokenizer.clone()) {
        Some(folder) => tokenizer_files(&folder)?,
        None => Companions::default(),
    };
    let loaded = match companions.files.get("tokenizer.json") {
        Some(json) => Some(lens_lm::tokenizer::Tokenizer::from_json(
            &companions.path("tokenizer.json"),
            json,
        )?),
        None => None,
    };
    let config =
        spec.config(spec_path, loaded.as_ref().map(lens_lm::tokenizer::Tokenizer::real_tokens))?;
    let mut tokens = ModelTokens::default();
    if let Some(loaded) = &loaded {
        for (key, slot) in [
            ("bos_token", &mut tokens.bos),
            ("eos_token", &mut tokens.eos),
            ("pad_token", &mut tokens.pad),
        ] {
            *slot = companions.special_token(key)?.and_then(|token| loaded.id(&token));
        }
    }
    let weights =
        FreshWeights::new(config.clone(), seed.unwrap_or(spec.seed), spec.initializer_range);
    let files = ModelFiles::new(config, &tokens, companions);
    writing.save(target, &files, &weights, dtype, out)
}

/// The tokenizer's files of a folder, which must hold a `tokenizer.json`.
fn tokenizer_files(folder: &Path) -> Result<Companions, Failure> {
    let companions = Companions::read(folder)?;
    companions.tokenizer_json()?;
    Ok(companions)
}
