fn main() {
    let a: Vec<String> = std::env::args().collect();
    lens_env::webshop::generator::write(std::path::Path::new(&a[1]), 0, a[2].parse().unwrap())
        .unwrap();
}
