#![allow(unsafe_code)]
//! dev only
use lens_lm::kernels::{dispatch::Isa, matrix::Matrix, packed::*, peak};
struct Cpu(u64);
unsafe extern "C" {
    fn clock_gettime(id: i32, ts: *mut [i64; 2]) -> i32;
}
fn cpu() -> u64 {
    let mut t = [0i64; 2];
    unsafe {
        clock_gettime(3, &mut t);
    }
    t[0] as u64 * 1_000_000_000 + t[1] as u64
}
impl Cpu {
    fn now() -> Self {
        Self(cpu())
    }
    fn secs(&self) -> f64 {
        (cpu() - self.0) as f64 / 1e9
    }
}
fn main() {
    let isa = Isa::detect();
    let threads: usize = std::env::args().nth(1).map_or(1, |t| t.parse().unwrap());
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    pool.install(|| {
        let mut best = 0.0f64;
        for _ in 0..40 {
            let t = Cpu::now();
            let v = peak::multiply_add_rounds(isa, 100_000, 0.5);
            best = best.max((100_000 * peak::FLOPS_PER_ROUND) as f64 / t.secs());
            assert!(v > 0.0);
        }
        println!("peak {:.1} GFLOP/s", best / 1e9);
        for format in [WeightFormat::F32, WeightFormat::Bf16, WeightFormat::Int8] {
            for (m, k, n, copies) in [
                (1, 1024, 3072, 24),
                (2, 1024, 3072, 24),
                (4, 1024, 3072, 24),
                (8, 1024, 3072, 24),
                (16, 1024, 3072, 24),
                (32, 1024, 3072, 24),
                (16, 1024, 3072, 1),
                (512, 1024, 3072, 1),
                (2048, 576, 1536, 1),
                (480, 128, 512, 1),
                (480, 128, 128, 1),
                (480, 512, 128, 1),
                (120, 1024, 512, 1),
            ] {
                let w: Vec<f32> =
                    (0..k * n).map(|i| ((i * 7919) % 1000) as f32 / 1000.0 - 0.5).collect();
                let packs: Vec<Packed> =
                    (0..copies).map(|_| Packed::pack(format, k, &[&w])).collect();
                let mut x = Matrix::zeros(m, k);
                for r in 0..m {
                    for c in 0..k {
                        x.row_mut(r)[c] = ((r * 31 + c * 17) % 100) as f32 / 100.0;
                    }
                }
                let mut out = Matrix::zeros(m, n);
                let flops = 2.0 * (m * k * n) as f64;
                let reps = (1e8 / (flops * copies as f64)).ceil() as usize;
                let mut best = 0.0f64;
                for _ in 0..40 {
                    let t = Cpu::now();
                    for _ in 0..reps {
                        for p in &packs {
                            p.matmul(isa, &x, &mut out, threads > 1);
                        }
                    }
                    best = best.max(flops * (reps * copies) as f64 / t.secs());
                }
                println!("{format:5} {m:5}x{k}x{n} copies {copies}: {:.1} GFLOP/s", best / 1e9);
            }
        }
    });
}
