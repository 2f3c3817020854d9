//! The same page as one file that opens from disk, with a sample of episodes.

use std::collections::BTreeSet;

use lens_report::list::{Row, episodes};
use sha2::{Digest, Sha256};

use crate::api::{Answer, Library, answer};
use crate::assets;
use crate::error::ViewError;

/// Writes a library as one HTML document with at most `sample` episodes per run.
pub fn document(library: &Library, sample: usize) -> Result<String, ViewError> {
    let mut answers: Vec<String> = Vec::new();
    // Answers are JSON already; they are put together as they are.
    let mut add = |path: String, json: Vec<u8>| -> Result<(), ViewError> {
        let name = serde_json::to_string(&path)?;
        answers.push(format!("{name}:{}", String::from_utf8_lossy(&json)));
        Ok(())
    };
    for path in ["runs", "compare"] {
        add(path.to_owned(), answer(library, path, "")?.finish()?)?;
    }
    for shown in library.runs() {
        let base = format!("run/{}", shown.id);
        for page in ["", "/doctor", "/config"] {
            let path = format!("{base}{page}");
            // A run whose configuration cannot be read still has its other pages.
            if let Ok(json) = answer(library, &path, "").and_then(Answer::finish) {
                add(path, json)?;
            }
        }
        let mut kept = Vec::new();
        for row in chosen(episodes(&shown.run), sample) {
            let path = format!("{base}/episode/{}/{}", row.batch, row.episode);
            if let Ok(json) = answer(library, &path, "").and_then(Answer::finish) {
                add(path, json)?;
                kept.push(row);
            }
        }
        add(format!("{base}/episodes"), serde_json::to_vec(&kept)?)?;
    }
    let json = format!("{{{}}}", answers.join(",")).replace('<', "\\u003c");
    let data = format!("<script type=\"application/json\" id=\"data\">{json}</script>");
    let script = assets::script();
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; img-src data:; base-uri 'none'; form-action 'none'",
        base64(&Sha256::digest(script.as_bytes())),
        base64(&Sha256::digest(assets::STYLE.as_bytes()))
    );
    let head = format!(
        "<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n<style>{}</style>",
        assets::STYLE
    );
    Ok(assets::page(&head, &data, &format!("<script>{script}</script>")))
}

/// A sample that shows every outcome: the largest gains, the smallest, and episodes spread over the run.
fn chosen(rows: Vec<Row>, most: usize) -> Vec<Row> {
    if rows.len() <= most {
        return rows;
    }
    let mut by_gain: Vec<usize> =
        (0..rows.len()).filter(|&index| rows[index].gain.is_some()).collect();
    by_gain.sort_by(|&a, &b| rows[b].gain.unwrap_or(0.0).total_cmp(&rows[a].gain.unwrap_or(0.0)));
    let third = most / 3;
    let ends = by_gain.iter().take(third).chain(by_gain.iter().rev().take(third));
    let mut picked: BTreeSet<usize> = ends.copied().collect();
    let stride = (rows.len() / most.max(1)).max(1);
    let spread = (0..rows.len()).step_by(stride).chain(0..rows.len());
    for index in spread {
        if picked.len() >= most {
            break;
        }
        picked.insert(index);
    }
    rows.into_iter()
        .enumerate()
        .filter(|(index, _)| picked.contains(index))
        .map(|(_, row)| row)
        .collect()
}

/// Base64, for the hashes of the policy.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let word = chunk
            .iter()
            .enumerate()
            .fold(0_u32, |word, (place, &byte)| word | u32::from(byte) << (16 - 8 * place));
        for place in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_is_the_standards() {
        // The examples of RFC 4648, section 10.
        for (plain, coded) in
            [("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }
}
