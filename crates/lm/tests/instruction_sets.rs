//! Training with every instruction set of the processor, in one process: the same bytes.

mod train_common;

use lens_lm::config::ModelConfig;
use lens_lm::kernels::dispatch::Isa;
use lens_lm::train::{AdamWConfig, Head, Heads, TrainRow, Trainer, TrainerOptions};
use train_common::*;

#[test]
fn training_gives_the_same_bytes_with_every_instruction_set() {
    for family in FAMILIES {
        let config = ModelConfig {
            hidden_size: 80,
            intermediate_size: 1100,
            head_dim: 24,
            vocab_size: 1030,
            max_position: 256,
            ..tiny(family)
        };
        let width = 40;
        let mut stream = stream(5);
        let rows: Vec<TrainRow> = (0..KINDS.len())
            .map(|index| {
                let (kind, length) = (KINDS[index], 20 + 11 * index);
                random_row(kind, config.vocab_size, width, length, length / 2, &mut stream)
            })
            .collect();
        let teacher = noise(config.vocab_size * width, 0.3, &mut stream);
        let head = Some(Head { weight: (&teacher).into(), hidden: width });
        let heads = Heads { teacher: head, snapshot: head };
        let mut results = Isa::available().into_iter().map(|isa| {
            isa.activate();
            assert_eq!(Isa::chosen(), Ok(isa));
            let parameters = random_parameters(&config, 3);
            let mut trainer = Trainer::new(config.clone(), parameters, TrainerOptions::default())
                .expect("valid model");
            trainer.accumulate(&rows, &heads).expect("valid rows");
            trainer.step(&AdamWConfig { lr: 1e-3, ..AdamWConfig::default() }).expect("a step");
            let state = trainer.optimizer_state().expect("writing to memory");
            (trainer.into_parameters(), state)
        });
        let plain = results.next().expect("plain Rust is always there");
        for other in results {
            assert!(plain == other, "{family:?}");
        }
    }
}
