//! First come, first served.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A lock that is handed on in the order it was asked for. A plain one may go to the thread that returns fastest:
/// optimizer steps that follow each other would keep scoring out until the last of them.
#[derive(Debug, Default)]
pub(super) struct Turns {
    numbers: Mutex<Numbers>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Numbers {
    /// The number that the next to ask is given.
    next: u64,
    /// The number whose turn it is.
    current: u64,
}

/// Held while it is one's turn.
#[derive(Debug)]
pub(super) struct Turn<'a>(&'a Turns);

impl Turns {
    /// Waits until all who asked before are done.
    pub(super) fn wait(&self) -> Turn<'_> {
        let mut numbers = self.numbers();
        let mine = numbers.next;
        numbers.next += 1;
        while numbers.current != mine {
            numbers = self.changed.wait(numbers).unwrap_or_else(PoisonError::into_inner);
        }
        Turn(self)
    }

    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.numbers().current += 1;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::thread;

    use super::Turns;

    #[test]
    fn a_turn_goes_to_the_one_who_waited_longest() {
        let (turns, order) = (Turns::default(), Mutex::new(Vec::new()));
        thread::scope(|scope| {
            let first = turns.wait();
            for number in 0..8_u64 {
                let (turns, order) = (&turns, &order);
                scope.spawn(move || {
                    let _turn = turns.wait();
                    order.lock().expect("held").push(number);
                });
                while turns.numbers().next < number + 2 {
                    thread::yield_now();
                }
            }
            drop(first);
            // A thread that comes back at once waits behind all of them.
            let _turn = turns.wait();
            order.lock().expect("held").push(8);
        });
        assert_eq!(order.into_inner().expect("held"), (0..=8).collect::<Vec<u64>>());
    }
}
