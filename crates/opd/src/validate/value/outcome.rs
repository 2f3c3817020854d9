//! Whether the task was solved.

use super::Branch;
use crate::validate::fork::BranchEnd;

/// 1 if the branch ended with the task solved, else 0.
///
/// `V = 1[solved]`. Branches are played on to the end of the episode for it.
pub fn outcome(branch: &Branch) -> f64 {
    f64::from(u8::from(branch.end == BranchEnd::Ended { success: true }))
}

#[cfg(test)]
mod tests {
    use super::super::example::branch;
    use super::*;

    #[test]
    fn only_a_solved_task_is_worth_something() {
        let ending = |end| outcome(&Branch { end, ..branch(Vec::new()) });
        assert_eq!(ending(BranchEnd::Ended { success: true }), 1.0);
        for end in [BranchEnd::Ended { success: false }, BranchEnd::TurnLimit, BranchEnd::Horizon] {
            assert_eq!(ending(end), 0.0, "{end:?}");
        }
    }
}
