//! Adapters on the disk, in PEFT's layout: `adapter_config.json` and `adapter_model.safetensors`.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use super::companions::{parse_object, read_optional};
use super::dtype::Dtype;
use super::safetensors::SafetensorsFile;
use super::save::{pretty, write_tensors};
use super::write;
use crate::error::LmError;
use crate::tensor::{Parameters, Tensor};
use crate::train::{LoraOptions, Projection};

const CONFIG: &str = "adapter_config.json";
const WEIGHTS: &str = "adapter_model.safetensors";

/// Writes adapters (PEFT's names) of the model `base` as a folder that `peft` loads.
pub fn save_adapter(
    directory: &Path,
    base: &str,
    options: &LoraOptions,
    tensors: &Parameters,
) -> Result<(), LmError> {
    let targets: Vec<&str> = options.targets.iter().map(Projection::name).collect();
    let config = json!({
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": options.rank,
        "lora_alpha": options.alpha,
        "lora_dropout": 0.0,
        "target_modules": targets,
        "bias": "none",
        "fan_in_fan_out": false,
        "init_lora_weights": true,
        "inference_mode": true,
        "use_rslora": false,
        "use_dora": false,
        "modules_to_save": null,
    });
    write::fill_directory(directory, |inside| {
        write_tensors(&inside.join(WEIGHTS), tensors, Dtype::F32)?;
        write::write_file(&inside.join(CONFIG), pretty(&config).as_bytes())
    })
}

/// Reads the adapters of a folder, which must be of the kind `options` describes; values are widened to f32.
pub fn read_adapter(directory: &Path, options: &LoraOptions) -> Result<Parameters, LmError> {
    let path = directory.join(CONFIG);
    let Some(bytes) = read_optional(&path)? else {
        let hint = "an adapter is a folder with adapter_config.json and adapter_model.safetensors";
        return Err(LmError::Missing { path, hint: hint.to_owned() });
    };
    check_config(&path, &parse_object(&path, &bytes)?, options)?;
    let file = SafetensorsFile::open(&directory.join(WEIGHTS))?;
    let mut tensors = Parameters::new();
    for (name, entry) in file.entries() {
        // Refuses a type that is not known before memory is taken: nothing binds its shape to the bytes that are there.
        file.read_f32(name, 0, &mut [])?;
        let mut tensor = Tensor::zeros(&entry.shape);
        file.read_f32(name, 0, &mut tensor.data)?;
        tensors.insert(name.clone(), tensor);
    }
    Ok(tensors)
}

/// Refuses adapters of another kind, and variants that would change the results if they were ignored.
fn check_config(
    path: &Path,
    config: &serde_json::Map<String, Value>,
    options: &LoraOptions,
) -> Result<(), LmError> {
    let wrong = |problem: String| Err(LmError::malformed(path, problem));
    let get = |key: &str| config.get(key).unwrap_or(&Value::Null);
    if get("peft_type") != "LORA" {
        return wrong(format!("`peft_type` is {}; only \"LORA\" is read", get("peft_type")));
    }
    if get("r").as_u64() != Some(options.rank as u64) {
        return wrong(format!("the rank `r` is {}, expected {}", get("r"), options.rank));
    }
    if get("lora_alpha").as_f64() != Some(options.alpha) {
        let found = get("lora_alpha");
        return wrong(format!("`lora_alpha` is {found}, expected {}", options.alpha));
    }
    let wanted: BTreeSet<&str> = options.targets.iter().map(Projection::name).collect();
    let found: Option<BTreeSet<&str>> =
        get("target_modules").as_array().and_then(|list| list.iter().map(Value::as_str).collect());
    if found.as_ref() != Some(&wanted) {
        let wanted: Vec<&str> = wanted.into_iter().collect();
        return wrong(format!(
            "`target_modules` is {}, expected {}",
            get("target_modules"),
            wanted.join(", ")
        ));
    }
    for key in ["use_rslora", "use_dora", "fan_in_fan_out"] {
        if get(key) == &Value::Bool(true) {
            return wrong(format!("`{key}` is true, which is not supported"));
        }
    }
    if !matches!(get("bias"), Value::Null) && get("bias") != "none" {
        return wrong(format!("`bias` is {}; only \"none\" is supported", get("bias")));
    }
    for key in ["modules_to_save", "rank_pattern", "alpha_pattern", "layers_to_transform"] {
        let empty = match get(key) {
            Value::Null => true,
            Value::Array(list) => list.is_empty(),
            Value::Object(object) => object.is_empty(),
            _ => false,
        };
        if !empty {
            return wrong(format!("`{key}` is {}, which is not supported", get(key)));
        }
    }
    Ok(())
}
