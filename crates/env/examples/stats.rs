use lens_env::webshop::*;
fn q(name: &str, mut v: Vec<f64>) {
    v.sort_by(f64::total_cmp);
    let n = v.len();
    let p = |x: f64| v[((n - 1) as f64 * x) as usize];
    println!(
        "{name}: min {} p25 {} p50 {} p75 {} p95 {} max {} mean {:.2}",
        v[0],
        p(0.25),
        p(0.5),
        p(0.75),
        p(0.95),
        v[n - 1],
        v.iter().sum::<f64>() / n as f64
    );
}
fn main() {
    let n = std::env::args().nth(1).map_or(1000, |x| x.parse().unwrap());
    let shop =
        generator::shop(0, ShopSettings { products: Some(n), ..Default::default() }).unwrap();
    let ps = &shop.catalogue().products;
    println!(
        "products {} goals {} terms {}",
        ps.len(),
        shop.goals().len(),
        shop.index().term_count()
    );
    let mut qs = std::collections::HashSet::new();
    for p in ps {
        qs.insert(p.query.clone());
    }
    println!("queries {}", qs.len());
    q("depth", ps.iter().map(|p| p.product_category.split('›').count() as f64).collect());
    q("title words", ps.iter().map(|p| p.title.split_whitespace().count() as f64).collect());
    q("title chars", ps.iter().map(|p| p.title.chars().count() as f64).collect());
    q("description", ps.iter().map(|p| p.description.chars().count() as f64).collect());
    q("bullets", ps.iter().map(|p| p.bullets.len() as f64).collect());
    q(
        "bullet chars",
        ps.iter().flat_map(|p| p.bullets.iter().map(|b| b.chars().count() as f64)).collect(),
    );
    q("price", shop.prices().to_vec());
    for d in 0..4 {
        println!("dims {d}: {}", ps.iter().filter(|p| p.options.len() == d).count());
    }
    q("values", ps.iter().flat_map(|p| p.options.iter().map(|o| o.values.len() as f64)).collect());
    q("attrs", ps.iter().map(|p| p.attributes.len() as f64).collect());
    println!("no attrs {}", ps.iter().filter(|p| p.attributes.is_empty()).count());
    let mut a = std::collections::HashSet::new();
    for p in ps {
        for x in &p.attributes {
            a.insert(x.clone());
        }
    }
    println!("attr vocab {}", a.len());
    let with: Vec<_> =
        ps.iter().filter(|p| !matches!(p.instructions, catalogue::Instructions::None)).collect();
    println!("with instruction {}", with.len());
    q(
        "goals per",
        with.iter()
            .map(|p| p.options.iter().map(|o| o.values.len()).product::<usize>() as f64)
            .collect(),
    );
    q(
        "doc tokens",
        ps.iter().map(|p| search::analyzer::terms(&p.search_text()).len() as f64).collect(),
    );
    for i in [0, 1, 2, 3, 500] {
        let p = &ps[i];
        println!(
            "{} | {} | {} | {} | {:?} | {:?} | {:?}",
            p.asin,
            p.title,
            p.product_category,
            p.pricing.tag(),
            p.attributes,
            p.options,
            p.instructions
        );
    }
    for g in 0..5 {
        println!("{}", shop.goal(g).unwrap().text)
    }
}
