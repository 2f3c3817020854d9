//! The tokenizer inside a GGUF file, written out as `tokenizer.json` and its companions.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

use super::metadata::Metadata;
use super::value::Value;
use crate::checkpoint::Companions;
use crate::error::LmError;

/// Kinds of tokens, as GGUF numbers them.
const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;
const UNUSED: u64 = 5;

/// Splits words, single digits, marks and spaces (Qwen2 and later).
const QWEN2_SPLIT: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The same with up to three digits together (Llama 3).
const LLAMA3_SPLIT: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// One entry of the token list.
struct Token<'a> {
    id: usize,
    text: &'a str,
    kind: u64,
}

/// The tokenizer files. Fails when the file has no tokenizer or one that cannot be written as `tokenizer.json`.
pub(super) fn companions(metadata: &Metadata<'_>) -> Result<Companions, LmError> {
    let model = metadata.text("tokenizer.ggml.model")?.ok_or_else(|| LmError::Missing {
        path: metadata.path.to_owned(),
        hint: "the file holds no tokenizer; take one from the model it was made from".to_owned(),
    })?;
    let tokens = tokens(metadata)?;
    let tokenizer = match model {
        "gpt2" => byte_level(metadata, &tokens)?,
        "llama" => sentence_pieces(metadata, &tokens)?,
        other => {
            return Err(unreadable(
                metadata,
                &format!("its kind `{other}` cannot be written as tokenizer.json"),
            ));
        }
    };
    let mut files = BTreeMap::new();
    files.insert("tokenizer.json".to_owned(), format!("{tokenizer:#}\n").into_bytes());
    files.insert("tokenizer_config.json".to_owned(), tokenizer_config(metadata, &tokens)?);
    if let Some(template) = metadata.text("tokenizer.chat_template")? {
        files.insert("chat_template.jinja".to_owned(), template.as_bytes().to_vec());
    }
    let mut ends = Vec::new();
    for name in ["eos", "eot"] {
        ends.extend(metadata.id(&format!("tokenizer.ggml.{name}_token_id"))?);
    }
    ends.dedup();
    if !ends.is_empty() {
        let generation = json!({"eos_token_id": ends});
        files.insert("generation_config.json".to_owned(), format!("{generation:#}\n").into_bytes());
    }
    Ok(Companions { directory: metadata.path.to_owned(), files })
}

fn unreadable(metadata: &Metadata<'_>, problem: &str) -> LmError {
    LmError::Tokenizer {
        path: metadata.path.to_owned(),
        problem: format!("{problem}; give the folder of the original model's tokenizer instead"),
    }
}

/// The token list without the entries that only fill up the embedding.
fn tokens<'a>(metadata: &Metadata<'a>) -> Result<Vec<Token<'a>>, LmError> {
    let (key, kinds_key) = ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type");
    let texts =
        metadata.array(key)?.ok_or_else(|| LmError::config(metadata.path, key, "is missing"))?;
    let kinds = metadata.array(kinds_key)?.unwrap_or_default();
    if !kinds.is_empty() && kinds.len() != texts.len() {
        let problem = format!("has {} entries for {} tokens", kinds.len(), texts.len());
        return Err(LmError::config(metadata.path, kinds_key, problem));
    }
    let mut list = Vec::with_capacity(texts.len());
    for (id, text) in texts.iter().enumerate() {
        let text = text
            .as_str()
            .ok_or_else(|| LmError::config(metadata.path, key, format!("is no text at {id}")))?;
        let kind = kinds.get(id).and_then(Value::as_u64).unwrap_or(1);
        if kind != UNUSED {
            list.push(Token { id, text, kind });
        }
    }
    Ok(list)
}

/// GPT-2's scheme: bytes written as letters, merges in a list.
fn byte_level(metadata: &Metadata<'_>, tokens: &[Token<'_>]) -> Result<Json, LmError> {
    let key = "tokenizer.ggml.merges";
    let listed =
        metadata.array(key)?.ok_or_else(|| LmError::config(metadata.path, key, "is missing"))?;
    let mut merges = Vec::with_capacity(listed.len());
    for (number, merge) in listed.iter().enumerate() {
        let pair = merge.as_str().and_then(|text| text.split_once(' '));
        let (left, right) = pair.ok_or_else(|| {
            LmError::config(metadata.path, key, format!("is no pair at {number}"))
        })?;
        merges.push(json!([left, right]));
    }
    let bytes = |use_regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": use_regex});
    let split = |pattern: &str| {
        json!({"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false},
            bytes(false),
        ]})
    };
    let pre = metadata.text("tokenizer.ggml.pre")?.unwrap_or("gpt-2");
    let (normalizer, pre_tokenizer) = match pre {
        "gpt-2" => (Json::Null, bytes(true)),
        "smollm" => {
            let digits = json!({"type": "Digits", "individual_digits": true});
            (Json::Null, json!({"type": "Sequence", "pretokenizers": [digits, bytes(true)]}))
        }
        "qwen2" => (json!({"type": "NFC"}), split(QWEN2_SPLIT)),
        "llama-bpe" => (Json::Null, split(LLAMA3_SPLIT)),
        other => {
            return Err(unreadable(
                metadata,
                &format!(
                    "its way to split words, `{other}`, is not known (gpt-2, smollm, qwen2 and llama-bpe are)"
                ),
            ));
        }
    };
    let model = json!({
        "type": "BPE",
        "dropout": null,
        "unk_token": null,
        "continuing_subword_prefix": null,
        "end_of_word_suffix": null,
        "fuse_unk": false,
        "byte_fallback": false,
        // Llama 3 takes a word that is a token as it is, even when the merges lead elsewhere.
        "ignore_merges": pre == "llama-bpe",
        "vocab": vocab(tokens),
        "merges": merges,
    });
    tokenizer_json(metadata, tokens, &normalizer, &pre_tokenizer, &bytes(true), &model)
}

/// SentencePiece's scheme: pieces with scores, spaces written as a low line, unknown letters as bytes. The merges follow
/// from the scores.
fn sentence_pieces(metadata: &Metadata<'_>, tokens: &[Token<'_>]) -> Result<Json, LmError> {
    let key = "tokenizer.ggml.scores";
    let scores =
        metadata.array(key)?.ok_or_else(|| LmError::config(metadata.path, key, "is missing"))?;
    let ids: BTreeMap<&str, usize> = tokens.iter().map(|token| (token.text, token.id)).collect();
    let mut merges: Vec<(f64, usize, usize, &str, &str)> = Vec::new();
    for token in tokens {
        let score = scores
            .get(token.id)
            .and_then(Value::as_f64)
            .filter(|score| score.is_finite())
            .ok_or_else(|| {
                LmError::config(metadata.path, key, format!("has no number for token {}", token.id))
            })?;
        let mut own: Vec<(usize, usize, &str, &str)> = token
            .text
            .char_indices()
            .skip(1)
            .map(|(at, _)| token.text.split_at(at))
            .filter_map(|(left, right)| Some((*ids.get(left)?, *ids.get(right)?, left, right)))
            .collect();
        own.sort_unstable();
        merges.extend(
            own.into_iter().map(|(_, _, l, r)| (score, l.chars().count(), r.chars().count(), l, r)),
        );
    }
    // Higher scores merge first, then longer parts; the sort is stable, so the token order decides the rest.
    merges.sort_by(|a, b| b.0.total_cmp(&a.0).then((b.1, b.2).cmp(&(a.1, a.2))));
    let merges: Vec<Json> =
        merges.iter().map(|(_, _, _, left, right)| json!([left, right])).collect();

    let unknown = metadata.id("tokenizer.ggml.unknown_token_id")?;
    let unknown = unknown.and_then(|id| tokens.iter().find(|token| token.id == id as usize));
    let prefix = metadata.flag("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
    let spaces = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
    let mut normalizers = vec![spaces];
    let mut decoders = vec![
        json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if prefix {
        normalizers.insert(0, json!({"type": "Prepend", "prepend": "▁"}));
        decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    let model = json!({
        "type": "BPE",
        "dropout": null,
        "unk_token": unknown.map(|token| token.text),
        "continuing_subword_prefix": null,
        "end_of_word_suffix": null,
        "fuse_unk": true,
        "byte_fallback": true,
        "ignore_merges": false,
        "vocab": vocab(tokens),
        "merges": merges,
    });
    tokenizer_json(
        metadata,
        tokens,
        &json!({"type": "Sequence", "normalizers": normalizers}),
        &Json::Null,
        &json!({"type": "Sequence", "decoders": decoders}),
        &model,
    )
}

fn vocab(tokens: &[Token<'_>]) -> Map<String, Json> {
    tokens.iter().map(|token| (token.text.to_owned(), json!(token.id))).collect()
}

fn tokenizer_json(
    metadata: &Metadata<'_>,
    tokens: &[Token<'_>],
    normalizer: &Json,
    pre_tokenizer: &Json,
    decoder: &Json,
    model: &Json,
) -> Result<Json, LmError> {
    let mut seen = BTreeMap::new();
    for token in tokens {
        if let Some(other) = seen.insert(token.text, token.id) {
            let problem = format!("has {:?} twice, as {other} and {}", token.text, token.id);
            return Err(LmError::config(metadata.path, "tokenizer.ggml.tokens", problem));
        }
    }
    let added: Vec<Json> = tokens
        .iter()
        .filter(|token| matches!(token.kind, CONTROL | USER_DEFINED))
        .map(|token| {
            json!({
                "id": token.id,
                "content": token.text,
                "single_word": false,
                "lstrip": false,
                "rstrip": false,
                "normalized": false,
                "special": token.kind == CONTROL,
            })
        })
        .collect();
    // Who asks for special tokens gets the beginning mark the model was trained with.
    let bos = metadata.id("tokenizer.ggml.bos_token_id")?;
    let bos = bos.and_then(|id| tokens.iter().find(|token| token.id == id as usize));
    let post_processor = match bos {
        Some(bos) if metadata.flag("tokenizer.ggml.add_bos_token")? == Some(true) => json!({
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": bos.text, "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "pair": [
                {"SpecialToken": {"id": bos.text, "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": bos.text, "type_id": 1}},
                {"Sequence": {"id": "B", "type_id": 1}},
            ],
            "special_tokens": {(bos.text): {"id": bos.text, "ids": [bos.id], "tokens": [bos.text]}},
        }),
        _ => Json::Null,
    };
    Ok(json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": post_processor,
        "decoder": decoder,
        "model": model,
    }))
}

fn tokenizer_config(metadata: &Metadata<'_>, tokens: &[Token<'_>]) -> Result<Vec<u8>, LmError> {
    let mut config = Map::new();
    config.insert(
        "add_bos_token".to_owned(),
        json!(metadata.flag("tokenizer.ggml.add_bos_token")?.unwrap_or(false)),
    );
    for (key, name) in [("bos", "bos"), ("eos", "eos"), ("pad", "padding"), ("unk", "unknown")] {
        let id = metadata.id(&format!("tokenizer.ggml.{name}_token_id"))?;
        let token = id.and_then(|id| tokens.iter().find(|token| token.id == id as usize));
        config.insert(format!("{key}_token"), json!(token.map(|token| token.text)));
    }
    config.insert("clean_up_tokenization_spaces".to_owned(), json!(false));
    config.insert("tokenizer_class".to_owned(), json!("PreTrainedTokenizerFast"));
    Ok(format!("{:#}\n", Json::Object(config)).into_bytes())
}
