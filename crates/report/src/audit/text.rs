//! An audit as a table for people.

use std::fmt::Write;

use lens_opd::stats::bootstrap::Interval;

use super::{AuditReport, GateQuality};

/// The report in plain text, at most 80 columns wide.
pub fn print(report: &AuditReport) -> String {
    let mut text = String::new();
    // Writing into a string cannot fail.
    let _ = summary(report, &mut text);
    let _ = gate_tables(report, &mut text);
    let _ = proposal_table(report, &mut text);
    let _ = learned_table(report, &mut text);
    text
}

fn summary(report: &AuditReport, text: &mut String) -> std::fmt::Result {
    let settings = &report.settings;
    writeln!(text, "{}: {} forks audited", settings.student, report.forks)?;
    if report.dropped > 0 {
        writeln!(text, "  not run: {}", report.dropped)?;
    }
    let continuations = settings.continuations;
    writeln!(
        text,
        "  {continuations} continuations to the end from each branch; seed {}",
        settings.seed
    )?;
    writeln!(text, "  solved without the hint  {}", percent(report.base_success.as_ref()))?;
    writeln!(text, "  solved with it           {}", percent(report.guided_success.as_ref()))?;
    writeln!(text, "  change by the hint       {}", points(report.utility.as_ref()))?;
    writeln!(text, "  forks whose hint helps   {}", percent(report.helpful.as_ref()))?;
    if let Some(unchanged) = report.unchanged {
        writeln!(text, "  hints that leave the action as it was  {:.0} %", 100.0 * unchanged)?;
    }
    writeln!(text, "  intervals: 95 %, whole episodes resampled; points are of success")
}

fn gate_tables(report: &AuditReport, text: &mut String) -> std::fmt::Result {
    let mut gates: Vec<String> = Vec::new();
    for quality in &report.gates {
        if !gates.contains(&quality.variant.gate()) {
            gates.push(quality.variant.gate());
        }
    }
    for gate in gates {
        writeln!(text, "\ngate: {gate}")?;
        writeln!(
            text,
            "  {:<33} {:>8} {:>5} {:>6}  rank correlation",
            "value", "accepted", "prec.", "recall"
        )?;
        for quality in report.gates.iter().filter(|quality| quality.variant.gate() == gate) {
            gate_row(quality, text)?;
        }
    }
    Ok(())
}

fn gate_row(quality: &GateQuality, text: &mut String) -> std::fmt::Result {
    let share = |interval: &Option<Interval>| {
        interval.map_or("-".to_owned(), |interval| format!("{:.0} %", 100.0 * interval.estimate))
    };
    let correlation = quality.correlation.map_or("-".to_owned(), |interval| {
        format!("{:+.2} [{:+.2}, {:+.2}]", interval.estimate, interval.low, interval.high)
    });
    let accepted = format!("{}/{}", quality.accepted, quality.forks);
    writeln!(
        text,
        "  {:<33} {accepted:>8} {:>5} {:>6}  {correlation}",
        quality.variant.value(),
        share(&quality.precision),
        share(&quality.recall)
    )?;
    writeln!(
        text,
        "    accepted {}, refused {}",
        points(quality.accepted_utility.as_ref()),
        points(quality.refused_utility.as_ref())
    )
}

fn proposal_table(report: &AuditReport, text: &mut String) -> std::fmt::Result {
    if report.proposals.is_empty() {
        return Ok(());
    }
    writeln!(text, "\nwhat each rule of proposal finds, on episodes audited turn by turn")?;
    writeln!(text, "  {:<12} {:>17}  change by the hint", "rule", "forks per episode")?;
    for rule in &report.proposals {
        let utility = points(rule.utility.as_ref());
        writeln!(text, "  {:<12} {:>17.1}  {utility}", rule.rule, rule.forks_per_episode)?;
    }
    Ok(())
}

fn learned_table(report: &AuditReport, text: &mut String) -> std::fmt::Result {
    if report.learned.is_empty() {
        return Ok(());
    }
    writeln!(text, "\nthe same states after training")?;
    for group in &report.learned {
        writeln!(text, "  {} ({} forks)", group.group, group.forks)?;
        writeln!(
            text,
            "    before: {:.1} % without the hint, {:.1} % with it; after: {:.1} %, {:.1} %",
            100.0 * group.base,
            100.0 * group.guided,
            100.0 * group.after,
            100.0 * group.after_guided
        )?;
        writeln!(text, "    hint worth before {}", points(group.utility.as_ref()))?;
        writeln!(text, "    gained without it {}", points(group.gained.as_ref()))?;
        writeln!(text, "    hint worth after  {}", points(group.left.as_ref()))?;
    }
    Ok(())
}

fn percent(interval: Option<&Interval>) -> String {
    interval.map_or("-".to_owned(), |at| {
        format!("{:.1} % [{:.1}, {:.1}]", 100.0 * at.estimate, 100.0 * at.low, 100.0 * at.high)
    })
}

fn points(interval: Option<&Interval>) -> String {
    interval.map_or("-".to_owned(), |at| {
        let scaled = [at.estimate, at.low, at.high].map(|value| 100.0 * value);
        format!("{:+.1} [{:+.1}, {:+.1}]", scaled[0], scaled[1], scaled[2])
    })
}
