//! WebShop on the built-in catalog: everything a fresh clone can check.

mod bad_input;
mod catalog;
mod expert;
mod properties;
mod recordings;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use lens_env::webshop::generator::{self, BUILT_IN_SEED};
use lens_env::webshop::{GoalKind, ObservationMode, Shop, ShopSettings, WebShop};

/// The built-in shop, made once for all tests.
fn shop() -> &'static Arc<Shop> {
    static SHOP: OnceLock<Arc<Shop>> = OnceLock::new();
    SHOP.get_or_init(|| Arc::new(built_in(GoalKind::Synthetic)))
}

fn built_in(goals: GoalKind) -> Shop {
    let settings = ShopSettings { goals, ..ShopSettings::default() };
    generator::shop(BUILT_IN_SEED, settings).expect("the built-in catalog is sound")
}

fn benchmark() -> Arc<WebShop> {
    Arc::new(WebShop::new(Arc::clone(shop()), ObservationMode::TextRich))
}

/// A file beside these tests.
fn beside(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/webshop").join(name)
}
