//! From a configuration to the method and the loss it names.

use lens_opd::locate::proposal::Proposal;
use lens_opd::methods::MethodParams;
use lens_opd::methods::futurebridge::FutureBridgeParams;
use lens_opd::methods::guided::GuidedParams;
use lens_opd::methods::lens::{Clock, LensParams, LocateParams, RefineParams, ValidateParams};
use lens_opd::methods::opd::OpdParams;
use lens_opd::methods::tcod_b2f::TcodB2fParams;
use lens_opd::methods::tcod_f2b::TcodF2bParams;
use lens_opd::objective::{Estimator, LossParams};
use lens_opd::validate::fork::Feedback;
use lens_opd::validate::gate::Terminal;

use crate::schema::{
    ClockName, Config, EstimatorName, HintPrompt, MethodName, ProposalName, TerminalRule,
};

/// The method a configuration names, with its knobs.
pub fn method_params(config: &Config) -> MethodParams {
    match config.method {
        MethodName::Lens => MethodParams::Lens(lens_params(config)),
        MethodName::Opd => MethodParams::Opd(OpdParams::default()),
        MethodName::TcodF2b => MethodParams::TcodF2b(TcodF2bParams {
            start: config.tcod.start,
            eta: config.tcod.growth,
        }),
        MethodName::TcodB2f => MethodParams::TcodB2f(TcodB2fParams { eta: config.tcod.growth }),
        MethodName::Guided => MethodParams::Guided(GuidedParams {
            share_start: config.guided.start,
            share_end: config.guided.end,
            decay: config.guided.decay_share,
            // The paper's runs count batches and optimiser steps alike (N = 250).
            total_batches: config.train.steps,
            ..GuidedParams::default()
        }),
        MethodName::Futurebridge => MethodParams::FutureBridge(FutureBridgeParams {
            eta: config.tcod.growth,
            continuation_turns: config.validate.horizon,
        }),
    }
}

fn lens_params(config: &Config) -> LensParams {
    let (locate, validate, refine) = (&config.locate, &config.validate, &config.refine);
    LensParams {
        locate: LocateParams {
            clock: match locate.clock {
                ClockName::GapAdaptive => Clock::GapAdaptive,
                ClockName::FixedF2b => Clock::FixedF2b,
                ClockName::Full => Clock::Full,
            },
            eta: locate.residence,
            k_max: (locate.max_horizon > 0).then_some(locate.max_horizon),
            eps: locate.epsilon,
            proposal: match locate.proposal {
                ProposalName::TopKl => Proposal::TopKl,
                ProposalName::LastTurn => Proposal::LastTurn,
                ProposalName::Random => Proposal::Random,
                ProposalName::KlRange => Proposal::KlRange,
            },
            proposals: locate.proposals_per_episode,
            ..LocateParams::default()
        },
        validate: ValidateParams {
            continuation_turns: validate.horizon,
            tau: validate.temperature,
            terminal: match validate.terminal {
                TerminalRule::Exclude => Terminal::Exclude,
                TerminalRule::Outcome => Terminal::Outcome,
            },
            feedback: match validate.hint_prompt {
                HintPrompt::FeedbackIncorporation => Feedback::Incorporate,
                HintPrompt::Reconsideration => Feedback::Reconsider,
            },
            ..ValidateParams::default()
        },
        refine: RefineParams {
            internalize: refine.internalize,
            lambda_gi: refine.internalize_weight,
            focus: refine.focus,
            beta: refine.focus_scale,
            c_tok: refine.weight_cap,
            eps: locate.epsilon,
        },
    }
}

/// The token loss a configuration names.
pub fn loss_params(config: &Config) -> LossParams {
    LossParams {
        estimator: match config.loss.estimator {
            EstimatorName::RklFull => Estimator::RklFull,
            EstimatorName::RklTopk => Estimator::RklTopk,
            EstimatorName::K1Pg => Estimator::K1Pg,
        },
        kl_coef: config.loss.kl_coef,
        clip_range: config.loss.clip,
        dual_clip: config.loss.dual_clip,
        ..LossParams::default()
    }
}

#[cfg(test)]
mod tests {
    use lens_opd::methods::MethodKind;

    use super::*;

    #[test]
    fn the_default_configuration_is_the_methods_own_defaults() {
        let config = Config::default();
        assert_eq!(method_params(&config), MethodParams::Lens(LensParams::default()));
        assert_eq!(loss_params(&config), LossParams::default());
    }

    #[test]
    fn every_method_and_every_ablation_is_a_key_away() {
        let with = |overrides: &[&str]| {
            let overrides: Vec<String> = overrides.iter().map(|&text| text.to_owned()).collect();
            method_params(&crate::resolve(&[], &overrides).expect("it is right").config)
        };
        let kinds = ["lens", "opd", "tcod-f2b", "tcod-b2f", "guided-opd", "futurebridge-opd"]
            .map(|name| with(&[&format!("method={name}")]).kind());
        assert_eq!(kinds, MethodKind::ALL);
        let lens = |override_text: &str| match with(&[override_text]) {
            MethodParams::Lens(params) => params,
            other => panic!("{other:?}"),
        };
        assert_eq!(lens("locate.clock=fixed-f2b").locate.clock, Clock::FixedF2b);
        assert_eq!(lens("locate.proposal=last-turn").locate.proposal, Proposal::LastTurn);
        assert!(!lens("refine.internalize=false").refine.internalize);
        assert!(!lens("refine.focus=false").refine.focus);
        let reconsider = lens("validate.hint_prompt=reconsideration").validate.feedback;
        assert_eq!(reconsider, Feedback::Reconsider);
        assert_eq!(lens("validate.terminal=outcome").validate.terminal, Terminal::Outcome);
    }
}
