//! Every stored form decodes any bytes without a panic: the first byte chooses the form.
#![no_main]

use lens_lm::gguf::blocks::BlockType;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&number, bytes)) = bytes.split_first() else { return };
    if let Some(kind) = BlockType::from_number(u32::from(number)) {
        let mut values = vec![0.0; bytes.len() / kind.bytes() * kind.values()];
        kind.decode(bytes, &mut values);
    }
});
