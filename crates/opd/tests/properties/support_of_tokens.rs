use lens_opd::episode::TopPair;
use lens_opd::locate::support::soft_support;
use lens_opd::refine::focus::Conflict;
use proptest::prelude::*;

proptest! {
    /// Rounding and ties can make the "other" token the likelier one; support stays a share and
    /// resistance is never negative.
    #[test]
    fn support_is_a_share_and_resistance_is_its_counterpart(
        own in -8.0_f32..0.0, other in -8.0_f32..0.0, decision in 0.0_f32..8.0,
    ) {
        let top = TopPair {
            student_top: 1,
            teacher_top: 2,
            student_at_student: Some(own),
            student_at_teacher: Some(other),
            teacher_at_teacher: Some(-0.1),
            teacher_at_student: Some(-0.1 - decision),
        };
        let support = soft_support(&top, None, 0).expect("all values are there");
        prop_assert!((0.0..=1.0).contains(&support));
        prop_assert_eq!(support == 1.0, other >= own);
        let conflict = Conflict::at(&top, None, 0).expect("all values are there");
        prop_assert!((conflict.student_resistance + support.ln()).abs() < 1e-9);
        prop_assert!((0.5..=1.0).contains(&conflict.teacher_decision));
        let agreed = TopPair { teacher_top: 1, ..top };
        prop_assert_eq!(soft_support(&agreed, None, 0).expect("agreement"), 1.0);
        prop_assert_eq!(Conflict::at(&agreed, None, 0).expect("agreement").score(), 0.0);
    }
}
