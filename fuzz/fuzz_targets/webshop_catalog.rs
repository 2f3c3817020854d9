//! Any bytes are a WebShop product file or an error that says what is wrong.
#![no_main]

use lens_env::webshop::{Shop, ShopSettings};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let folder = std::env::temp_dir().join(format!("lens-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("items_shuffle.json"), bytes).expect("a file");
    std::fs::write(folder.join("items_ins_v2.json"), "{}").expect("a file");
    if let Err(error) = Shop::open(&folder, None, ShopSettings::default()) {
        assert!(error.to_string().len() > 10);
    }
});
