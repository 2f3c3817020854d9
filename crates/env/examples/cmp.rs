use lens_env::webshop::*;
use std::sync::Arc;
fn main() {
    let mk =
        |g| Arc::new(generator::shop(0, ShopSettings { goals: g, ..Default::default() }).unwrap());
    let r =
        replay::Replayer { synthetic: mk(GoalKind::Synthetic), human: Some(mk(GoalKind::Human)) };
    for f in std::env::args().skip(1) {
        match r.compare(std::path::Path::new(&f)) {
            Ok(x) => {
                println!("{f}: {} compared {} mismatches {}", x.kind, x.compared, x.mismatches);
                for d in x.described.iter().take(4) {
                    println!("   {}", d.chars().take(1500).collect::<String>())
                }
            }
            Err(e) => println!("{f}: {e}"),
        }
    }
}
