//! Any bytes are a GGUF file or an error, and accepted tensors lie inside the file.
#![no_main]

use std::path::Path;

use lens_lm::gguf::header::Header;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let length = bytes.len() as u64;
    if let Ok(header) = Header::read(Path::new("fuzz"), &mut &bytes[..], length) {
        for tensor in header.tensors.values() {
            if let Ok(kind) = tensor.kind {
                let blocks = tensor.shape.iter().product::<usize>() / kind.values();
                assert!(tensor.offset + (blocks * kind.bytes()) as u64 <= length);
            }
        }
    }
});
