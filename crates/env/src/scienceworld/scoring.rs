//! How the simulator's numbers become the benchmark's.

use super::simulator::Standing;
use crate::environment::{Status, View};

/// The score from 0 to 100, or -100 after a fatal mistake: rounded to even, as the simulator's Python package does.
pub fn score(standing: Standing) -> f64 {
    (standing.score * 100.0).round_ties_even()
}

/// Where an episode stands. The simulator itself goes on after a fatal mistake and for ever; the benchmark does not.
pub fn status(standing: Standing, move_limit: i32) -> Status {
    let failed = score(standing) < 0.0;
    // A world in which the simulator itself failed calls itself completed, with a score of -1.
    let success = standing.completed && !failed;
    if standing.completed || failed || standing.moves > move_limit {
        Status::Ended { success }
    } else {
        Status::Running
    }
}

/// What an episode that ended here counts in the benchmark's mean: its last score, and 0 for a fatal mistake.
pub fn final_score(view: &View) -> f64 {
    view.score.max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Actions;

    fn standing(score: f64, completed: bool, moves: i32) -> Standing {
        Standing { score, completed, moves }
    }

    #[test]
    fn scores_round_half_to_even() {
        assert_eq!(score(standing(0.125, false, 0)), 12.0);
        assert_eq!(score(standing(0.375, false, 0)), 38.0);
        assert_eq!(score(standing(0.33, false, 0)), 33.0);
        assert_eq!(score(standing(-1.0, false, 0)), -100.0);
    }

    #[test]
    fn what_ends_an_episode() {
        assert_eq!(status(standing(0.5, false, 100), 100), Status::Running);
        assert_eq!(status(standing(0.5, false, 101), 100), Status::Ended { success: false });
        assert_eq!(status(standing(-1.0, false, 3), 100), Status::Ended { success: false });
        assert_eq!(status(standing(-1.0, true, 3), 100), Status::Ended { success: false });
        assert_eq!(status(standing(1.0, true, 3), 100), Status::Ended { success: true });
        assert_eq!(status(standing(1.0, true, 200), 100), Status::Ended { success: true });
    }

    #[test]
    fn a_fatal_mistake_counts_nothing() {
        let mut view = View {
            task: String::new(),
            observation: String::new(),
            actions: Actions::Commands(Vec::new()),
            turn: 3,
            score: -100.0,
            status: Status::Ended { success: false },
        };
        assert_eq!(final_score(&view), 0.0);
        view.score = 42.0;
        assert_eq!(final_score(&view), 42.0);
    }
}
