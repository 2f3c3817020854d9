//! Many calls at once, answers by index: which call ends first changes nothing.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

use crate::error::EngineError;

/// Does `count` pieces of work on up to `width` threads. The results are in the order of the pieces. `finished` is told,
/// on the caller's thread, how many have ended. The first error, in that order, ends the work; pieces that have begun
/// are waited for.
pub fn fan_out<R: Send>(
    count: usize,
    width: usize,
    work: impl Fn(usize) -> Result<R, EngineError> + Sync,
    finished: &mut dyn FnMut(usize),
) -> Result<Vec<R>, EngineError> {
    let mut results: Vec<Option<R>> = (0..count).map(|_| None).collect();
    let mut failed: Option<(usize, EngineError)> = None;
    let (next, broken) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        for _ in 0..width.clamp(1, count.max(1)) {
            let (sender, next, broken, work) = (sender.clone(), &next, &broken, &work);
            scope.spawn(move || {
                while !broken.load(Ordering::Relaxed) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        break;
                    }
                    let result = work(index);
                    broken.fetch_or(result.is_err(), Ordering::Relaxed);
                    if sender.send((index, result)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        for (ended, (index, result)) in receiver.into_iter().enumerate() {
            match result {
                Ok(result) => results[index] = Some(result),
                Err(error) if failed.as_ref().is_none_or(|(first, _)| index < *first) => {
                    failed = Some((index, error));
                }
                Err(_) => {}
            }
            finished(ended + 1);
        }
    });
    if let Some((_, error)) = failed {
        return Err(error);
    }
    let lost = || EngineError::Request("a piece of work was lost".to_owned());
    results.into_iter().map(|result| result.ok_or_else(lost)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order_whatever_ends_first() {
        let mut seen = 0;
        let work = |index: usize| {
            std::thread::sleep(std::time::Duration::from_millis(20 - 2 * index as u64));
            Ok(index * index)
        };
        let squares = fan_out(10, 5, work, &mut |ended| seen = ended).expect("no error");
        assert_eq!(squares, (0..10).map(|index| index * index).collect::<Vec<_>>());
        assert_eq!(seen, 10);
        assert!(fan_out(0, 5, work, &mut |_| {}).expect("nothing to do").is_empty());
    }

    #[test]
    fn an_error_ends_the_work() {
        let work = |index: usize| match index {
            3 => Err(EngineError::Request("third".to_owned())),
            _ => Ok(index),
        };
        let error = fan_out(1000, 2, work, &mut |_| {}).expect_err("it fails");
        assert_eq!(error.to_string(), "bad request: third");
    }
}
