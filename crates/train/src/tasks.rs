//! The order of tasks: passes over the split, each in its own keyed order.

use lens_env::Task;
use lens_opd::random::{Purpose, StreamKey};

/// The endless sequence of training tasks.
#[derive(Debug, Clone)]
pub struct TaskOrder {
    tasks: Vec<Task>,
    seed: u64,
}

impl TaskOrder {
    /// Orders `tasks` by `seed`.
    pub fn new(tasks: Vec<Task>, seed: u64) -> Self {
        Self { tasks, seed }
    }

    /// The tasks of explorer batch `batch` (from 1), `size` of them. A function of its arguments alone.
    pub fn batch(&self, batch: u64, size: usize) -> Vec<Task> {
        let count = self.tasks.len() as u64;
        if count == 0 {
            return Vec::new();
        }
        let first = (batch.max(1) - 1) * size as u64;
        let mut order: Vec<u32> = Vec::new();
        let mut pass = u64::MAX;
        (first..first + size as u64)
            .map(|place| {
                if place / count != pass {
                    pass = place / count;
                    order = (0..count as u32).collect();
                    StreamKey::new(self.seed, pass, 0, Purpose::TaskOrder, 0)
                        .open()
                        .shuffle(&mut order);
                }
                self.tasks[order[(place % count) as usize] as usize].clone()
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pass_shows_every_task_once_in_another_order() {
        let tasks: Vec<Task> =
            (0..10).map(|id| Task { id: id.to_string(), kind: "k".to_owned() }).collect();
        let order = TaskOrder::new(tasks.clone(), 42);
        let sequence: Vec<Task> = (1..=5).flat_map(|batch| order.batch(batch, 4)).collect();
        let (first, second) = sequence.split_at(10);
        assert_ne!(first, second);
        for pass in [first, second] {
            let mut sorted = pass.to_vec();
            sorted.sort();
            assert_eq!(sorted, tasks);
        }
        assert_eq!(order.batch(3, 4), sequence[8..12]);
        assert!(TaskOrder::new(Vec::new(), 1).batch(1, 4).is_empty());
    }
}
