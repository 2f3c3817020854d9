//! Any text is an action of WebShop: it is carried out or changes nothing, and the reward stays between 0 and 1.
#![no_main]

use std::sync::LazyLock;

use lens_env::webshop::{ObservationMode, Session, Shop, ShopSettings, generator};
use libfuzzer_sys::fuzz_target;

static SHOP: LazyLock<Shop> = LazyLock::new(|| {
    generator::shop(generator::BUILT_IN_SEED, ShopSettings::default()).expect("it is built in")
});

fuzz_target!(|text: &str| {
    let mut session = Session::start(&SHOP, 0).expect("there is a goal");
    for action in text.lines().take(20) {
        let outcome = session.step(&SHOP, action);
        assert!((0.0..=1.0).contains(&outcome.reward));
        session.observation(&SHOP, ObservationMode::TextRich);
    }
});
