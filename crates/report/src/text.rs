//! A run and its episodes as plain text, for people on ssh.

use lens_records::EpisodeLine;
use lens_records::episodes::{BranchTurn, ForkLine, TurnLine};

use crate::doctor::Finding;
use crate::summary::{Curve, Summary};

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A curve as a row of bars, at most `width` wide; gaps are spaces.
pub fn sparkline(curve: &[Option<f64>], width: usize) -> String {
    let values: Vec<Option<f64>> = resample(curve, width);
    let known = values.iter().flatten().copied();
    let (low, high) =
        (known.clone().fold(f64::INFINITY, f64::min), known.fold(f64::NEG_INFINITY, f64::max));
    let bar = |value: f64| {
        let place = if high > low { (value - low) / (high - low) } else { 0.5 };
        BARS[((place * 7.0).round() as usize).min(7)]
    };
    values.into_iter().map(|value| value.map_or(' ', bar)).collect()
}

/// Means of as many equal pieces as fit.
fn resample(curve: &[Option<f64>], width: usize) -> Curve {
    if curve.len() <= width || width == 0 {
        return curve.to_vec();
    }
    let piece = |index: usize| {
        let (start, end) = (index * curve.len() / width, (index + 1) * curve.len() / width);
        crate::stats::mean(curve[start..end].iter().flatten().copied())
    };
    (0..width).map(piece).collect()
}

/// A run in some twenty lines.
pub fn summary(summary: &Summary, findings: &[Finding]) -> String {
    let head = &summary.head;
    let planned = head.planned.map_or_else(String::new, |steps| format!(" of {steps}"));
    let mut text = format!(
        "{}  [{}]\n{} on {}, student {}; step {}{planned}, batch {}, {} episodes, {} forks ({} complete, {} accepted)\n\n",
        clean(&head.label),
        head.state,
        clean(&head.method),
        clean(&head.benchmark),
        clean(&head.student),
        head.step,
        head.batch,
        head.episodes,
        head.forks.0,
        head.forks.1,
        head.forks.2
    );
    for curve in &summary.evals {
        let values: Curve = curve.points.iter().map(|point| Some(point.success.estimate)).collect();
        if let (Some(first), Some(last)) = (curve.points.first(), curve.points.last()) {
            text.push_str(&format!(
                "{:<22} {:>6.1} -> {:>5.1} %  [{:.1}, {:.1}] of {} tasks  {}\n",
                clean(&curve.split),
                first.success.estimate,
                last.success.estimate,
                last.success.low,
                last.success.high,
                last.tasks,
                sparkline(&values, 30)
            ));
        }
    }
    text.push('\n');
    let batches = &summary.batches;
    let rows: [(&str, &Curve); 14] = [
        ("rollout success", &batches.success),
        ("horizon K", &batches.horizon),
        ("pace v", &batches.pace),
        ("competence C", &batches.competence),
        ("mean gain", &batches.gain),
        ("accepted share", &batches.accepted),
        ("guided token share", &batches.guided_share),
        ("internalization gap", &batches.gap),
        ("KL, nats", &batches.kl),
        ("response tokens", &batches.response_tokens),
        ("parsed share", &batches.parsed),
        ("loss", &summary.steps.loss),
        ("gradient norm", &summary.steps.grad_norm),
        ("stale rows", &batches.stale),
    ];
    for (name, curve) in rows {
        let known: Vec<f64> = curve.iter().flatten().copied().collect();
        if let (Some(first), Some(last)) = (known.first(), known.last()) {
            let line = sparkline(curve, 40);
            text.push_str(&format!(
                "{name:<22} {:>8} -> {:>8}  {line}\n",
                short(*first),
                short(*last)
            ));
        }
    }
    if !summary.stages.is_empty() {
        let stages: Vec<String> = summary
            .stages
            .iter()
            .map(|stage| {
                format!("{} {:.0} s ({:.0} %)", stage.stage, stage.seconds, 100.0 * stage.share)
            })
            .collect();
        text.push_str(&format!("\n{:<22} {}\n", "time", stages.join(", ")));
    }
    if !summary.reasons.is_empty() {
        let reasons: Vec<String> = summary
            .reasons
            .iter()
            .map(|(reason, count)| format!("{} {count}", clean(reason)))
            .collect();
        text.push_str(&format!("{:<22} {}\n", "gate closed because", reasons.join(", ")));
    }
    for problem in &summary.problems {
        text.push_str(&format!("unreadable: {}\n", clean(problem)));
    }
    for finding in findings {
        text.push_str(&format!(
            "{}: {} ({})\n",
            finding.severity.word(),
            finding.title,
            finding.evidence
        ));
    }
    text
}

/// A finding with its cause and advice.
pub fn finding(finding: &Finding) -> String {
    format!(
        "{}: {} [{}]\n  seen:   {}\n  likely: {}\n  try:    {}\n",
        finding.severity.word(),
        finding.title,
        finding.code,
        finding.evidence,
        finding.cause,
        finding.advice
    )
}

/// An episode, or one turn of it with everything about the turn.
pub fn episode(line: &EpisodeLine, turn: Option<u64>) -> String {
    let mut text = format!(
        "batch {} episode {}: {} ({})\n{}\nhorizon {}, {}, {}\n",
        line.batch,
        line.episode,
        clean(&line.task),
        clean(&line.task_kind),
        clean(line.goal.as_deref().unwrap_or("")),
        line.horizon,
        clean(&line.end),
        if line.success { "solved" } else { "not solved" }
    );
    for turn in line.turns.iter().filter(|one| turn.is_none_or(|turn| one.turn == turn)) {
        text.push_str(&turn_text(turn));
        if let Some(fork) = line.forks.iter().find(|fork| fork.turn == turn.turn) {
            text.push_str(&fork_text(fork));
        }
    }
    if let Some(number) = turn
        && let Some(turn) = line.turns.iter().find(|one| one.turn == number)
    {
        text.push_str(&token_table(line, turn));
    }
    text
}

fn turn_text(turn: &TurnLine) -> String {
    let divergence = turn.divergence().map_or_else(String::new, |d| format!("  D {d:.3}"));
    let dropped = turn
        .dropped
        .as_deref()
        .map_or_else(String::new, |why| format!("  dropped: {}", clean(why)));
    format!(
        "\n[{}] {}{divergence}{dropped}\n  sees: {}\n  says: {}\n  does: {}\n",
        turn.turn,
        clean(&turn.actor),
        indent(&turn.observation),
        indent(&turn.response),
        clean(turn.action.as_deref().unwrap_or("(no action)"))
    )
}

fn fork_text(fork: &ForkLine) -> String {
    let verdict = fork.record.as_ref();
    let mut text = format!(
        "  fork: {}\n  hint: {}\n",
        verdict.map_or_else(|| "no verdict".to_owned(), in_words),
        indent(fork.hint.as_deref().unwrap_or("(none)"))
    );
    let turns = fork.base.len().max(fork.guided.len());
    let column = |turn: Option<&BranchTurn>| {
        let text = turn.map_or("", |turn| turn.action.as_deref().unwrap_or("(no action)"));
        let value = turn.and_then(|turn| turn.likelihood);
        let value = value.map_or_else(String::new, |value| format!(" {value:.3}"));
        format!("{}{value}", clean(text))
    };
    text.push_str(&format!("  {:<46} {}\n", "without the hint", "with the hint"));
    for index in 0..turns {
        let (base, guided) = (fork.base.get(index), fork.guided.get(index));
        text.push_str(&format!("  {:<46} {}\n", column(base), column(guided)));
    }
    text
}

/// A fork's verdict in words.
pub fn in_words(fork: &lens_records::metrics::ForkSummary) -> String {
    let verdict = &fork.verdict;
    match (verdict.base_value, verdict.guided_value, verdict.gain) {
        (Some(base), Some(guided), Some(gain)) => format!(
            "{} because V_H - V_B = {guided:.4} - ({base:.4}) = {gain:+.4}",
            if verdict.accepted { "accepted" } else { "closed" }
        ),
        _ if verdict.accepted => "accepted by its outcome".to_owned(),
        _ => format!("closed: {}", reason_in_words(fork.reason.as_deref().unwrap_or("unknown"))),
    }
}

/// A reason code in words.
pub fn reason_in_words(code: &str) -> String {
    let (side, cause) = code.split_once('.').unwrap_or(("", code));
    let cause = match cause {
        "not_better" => "the guided future is not better",
        "timeout" => "time ran out",
        "engine_failure" => "an engine or the environment failed",
        "prompt_too_long" => "a prompt grew beyond the limit",
        "unparsed_action" => "a response held no action",
        "no_response" => "there is no response to train on",
        "no_continuation" => "the episode was over at the fork turn",
        "ended_early" => "it ended before the turns asked for",
        "no_content" => "the continuation has no content tokens",
        "unscored" => "the teacher could not score a turn",
        "restore_mismatch" => "the restored state differs from the recorded one",
        "restore_failed" => "the state could not be restored",
        "hint_empty" => "the hint was empty",
        "hint_failed" => "the teacher gave no hint",
        "inadmissible_action" => "the action is not admissible",
        other => {
            return code.replace('_', " ").replace('.', ": ")
                + if other.is_empty() { "unknown" } else { "" };
        }
    };
    match side {
        "base" => format!("without the hint: {cause}"),
        "guided" => format!("with the hint: {cause}"),
        _ => cause.to_owned(),
    }
}

fn token_table(line: &EpisodeLine, turn: &TurnLine) -> String {
    let tokens = &turn.tokens;
    let mut text = format!(
        "\n  {:<24} {:>8} {:>8} {:>8} {:>7}  favorites (student / teacher)\n",
        "token", "student", "teacher", "KL", "weight"
    );
    let name = |id: u32| match line.token_text.get(&id) {
        Some(text) => format!("{:?}", clean(text)),
        None => format!("#{id}"),
    };
    let number = |column: &[Option<f32>], index: usize| {
        column.get(index).copied().flatten().map_or_else(|| "-".to_owned(), |x| format!("{x:.3}"))
    };
    for (index, &id) in tokens.ids.iter().enumerate() {
        let weight =
            tokens.weights.get(index).map_or_else(|| "-".to_owned(), |w| format!("{w:.2}"));
        let favorites = tokens.favorites.as_ref().map_or_else(String::new, |both| {
            let of = |ids: &[Option<u32>]| {
                ids.get(index).copied().flatten().map_or_else(String::new, name)
            };
            format!("{} / {}", of(&both.student), of(&both.teacher))
        });
        text.push_str(&format!(
            "  {:<24} {:>8} {:>8} {:>8} {:>7}  {favorites}{}\n",
            name(id),
            number(&tokens.student_logprobs, index),
            number(&tokens.teacher_logprobs, index),
            number(&tokens.kl, index),
            weight,
            if tokens.is_content(index) { "" } else { "  (masked)" }
        ));
    }
    text
}

fn indent(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(clean).filter(|line| !line.is_empty()).collect();
    lines.join("\n        ")
}

/// Text without control characters: a terminal must not obey what an episode says.
pub fn clean(text: &str) -> String {
    let visible = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(visible).collect::<String>().trim_end().to_owned()
}

fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        large if large >= 100.0 => format!("{value:.0}"),
        middle if middle >= 0.01 => format!("{value:.3}"),
        _ => format!("{value:.1e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparklines_span_their_range_and_keep_gaps() {
        assert_eq!(sparkline(&[Some(0.0), None, Some(1.0)], 10), "▁ █");
        assert_eq!(sparkline(&vec![Some(2.0); 100], 4).chars().count(), 4);
    }

    #[test]
    fn a_terminal_does_not_obey_an_episode() {
        assert!(!clean("\u{1b}[2J\u{7}hello\r").contains(char::is_control));
    }
}
