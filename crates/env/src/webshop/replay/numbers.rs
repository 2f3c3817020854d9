//! Recorded draws of CPython's and numpy's generators.

use serde_json::Value;

use super::{Checker, Replayer, index};
use crate::webshop::random::PythonRandom;

pub(super) fn draws(_: &Replayer, line: &Value, checker: &mut Checker) -> Option<()> {
    let seed = line["seed"].as_u64()?;
    let op = line["op"].as_str()?;
    let out = &line["out"];
    let mut random = PythonRandom::seed(seed);
    match op {
        "random" | "uniform" => {
            let recorded: Vec<f64> = numbers(out)?;
            let bounds: Vec<f64> =
                if op == "uniform" { numbers(&line["args"])? } else { vec![0.0, 1.0] };
            let &[low, high] = bounds.as_slice() else { return None };
            let ours: Vec<f64> = recorded
                .iter()
                .map(|_| if op == "random" { random.random() } else { random.uniform(low, high) })
                .collect();
            checker.equal(op, &ours, &recorded);
        }
        "shuffle" => {
            let mut ours: Vec<usize> = (0..index(&line["n"])?).collect();
            random.shuffle(&mut ours);
            checker.equal(op, &ours, &indices(out)?);
        }
        "sample" => {
            let population = indices(&line["pop"])?;
            for recorded in out.as_array()? {
                let ours = random.sample_two(&population).map(|(a, b)| vec![a, b]);
                checker.equal(op, &ours, &Some(indices(recorded)?));
            }
        }
        "choices_az" => {
            let ours = random.lower_case_letters(index(&line["k"])?);
            checker.equal(op, &ours.as_str(), &out.as_str()?);
        }
        "numpy_choice_noreplace" => {
            let (low, high) = (index(&line["lo"])?, index(&line["hi"])?);
            let ours = PythonRandom::numpy_seed(u32::try_from(seed).ok()?).numpy_choice(
                low,
                high,
                index(&line["size"])?,
            );
            checker.equal(op, &ours, &indices(out)?);
        }
        _ => return None,
    }
    Some(())
}

fn numbers(value: &Value) -> Option<Vec<f64>> {
    value.as_array()?.iter().map(Value::as_f64).collect()
}

fn indices(value: &Value) -> Option<Vec<usize>> {
    value.as_array()?.iter().map(index).collect()
}
