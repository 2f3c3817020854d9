//! Arrays as vLLM sends them: a `.npy` file of 32-bit floats in base64.

use base64::Engine as _;

/// The rows of a two-dimensional array; `None` if it is not one of `rows` rows of little-endian 32-bit floats in C order.
pub(crate) fn rows(text: &str, rows: usize) -> Option<Vec<Vec<f32>>> {
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).ok()?;
    let (header, data) = split(&bytes)?;
    let plain = header.contains("'<f4'") && header.contains("'fortran_order': False");
    let shape = header.split_once("'shape': (")?.1.split_once(')')?.0;
    let sizes: Option<Vec<usize>> = shape
        .split(',')
        .map(str::trim)
        .filter(|size| !size.is_empty())
        .map(|size| size.parse().ok())
        .collect();
    let [found, width] = sizes?[..] else { return None };
    let whole = found.checked_mul(width)?.checked_mul(4)?;
    if !plain || found != rows || data.len() != whole {
        return None;
    }
    let values: Vec<f32> = data
        .chunks_exact(4)
        .map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]]))
        .collect();
    Some((0..rows).map(|row| values[row * width..(row + 1) * width].to_vec()).collect())
}

/// The header's text and the data behind it.
fn split(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let rest = bytes.strip_prefix(b"\x93NUMPY")?;
    let (version, rest) = rest.split_at_checked(2)?;
    let (length, rest) = if version[0] == 1 {
        let (size, rest) = rest.split_at_checked(2)?;
        (usize::from(u16::from_le_bytes([size[0], size[1]])), rest)
    } else {
        let (size, rest) = rest.split_at_checked(4)?;
        (u32::from_le_bytes([size[0], size[1], size[2], size[3]]) as usize, rest)
    };
    let (header, data) = rest.split_at_checked(length)?;
    Some((std::str::from_utf8(header).ok()?, data))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, values: &[f32]) -> String {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.bytes());
        bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        base64::engine::general_purpose::STANDARD.encode(bytes)
    }

    #[test]
    fn an_array_is_read_and_a_damaged_one_refused() {
        let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }          \n";
        let text = file(header, &[-0.5, -1.0, f32::NEG_INFINITY, -2.0, -3.0, -4.0]);
        let found = rows(&text, 2).expect("readable");
        assert_eq!(found[1], [-2.0, -3.0, -4.0]);
        assert!(rows(&text, 3).is_none(), "another number of rows");
        assert!(rows(&text[..text.len() - 8], 2).is_none(), "cut off");
        assert!(rows(&text[..5], 2).is_none() && rows("!", 2).is_none());
        assert!(rows(&file(&header.replace("<f4", "<f8"), &[0.0; 6]), 2).is_none());
        assert!(rows(&file(&header.replace("False", "True"), &[0.0; 6]), 2).is_none());
    }
}
