//! Any bytes are a safetensors file or an error, and an accepted header lies inside the file.
#![no_main]

use std::path::Path;

use lens_lm::checkpoint::safetensors::Header;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let length = bytes.len() as u64;
    if let Ok(header) = Header::read(Path::new("fuzz"), &mut &bytes[..], length) {
        for entry in header.entries.values() {
            assert!(header.data_start + entry.end <= length);
            if let Ok(dtype) = entry.dtype {
                assert_eq!((entry.values() * dtype.size()) as u64, entry.end - entry.begin);
            }
        }
    }
});
