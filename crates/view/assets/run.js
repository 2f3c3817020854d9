"use strict";
// The list of runs, the page of a run, and runs over each other.
const stateChip = (state) => el("span", { class: "state " + state, text: state });
const fact = (label, value, more) => el("div", { class: "fact" }, el("div", { class: "label", text: label }), el("div", { class: "value", text: value }), more ? el("div", { class: "more", text: more }) : null);

async function runsPage() {
  const runs = await get("runs");
  if (runs.length === 1) { location.replace("#/run/" + runs[0].id); return null; }
  const rows = runs.map((run) => el("tr", { class: "row-link" },
    el("td", {}, el("a", { href: "#/run/" + run.id, text: run.label })), el("td", {}, stateChip(run.state)),
    el("td", { text: run.method }), el("td", { text: run.benchmark }), el("td", { text: run.student }),
    el("td", { class: "num", text: run.planned ? `${run.step} / ${run.planned}` : String(run.step) }),
    el("td", { class: "num", text: String(run.episodes) }),
    el("td", {}, run.evals.map((split) => {
      const last = split.points[split.points.length - 1];
      return last ? el("div", { class: "num", text: `${split.split} ${number(last.success.estimate, 1)} % [${number(last.success.low, 0)}, ${number(last.success.high, 0)}]` }) : null;
    }))));
  return [el("h1", { text: "Runs" }),
    el("table", {}, el("thead", {}, el("tr", {}, ["run", "state", "method", "benchmark", "student"].map((name) => el("th", { text: name })),
      ["step", "episodes", "last success"].map((name) => el("th", { class: "num", text: name })))), el("tbody", {}, rows))];
}

function evalCharts(evals) {
  if (!evals.length) return [];
  const of = (value) => evals.map((split, i) => ({ name: split.split, color: i, kind: "line", points: true, digits: 1, x: split.points.map((p) => p.step), y: split.points.map(value) }));
  const success = of((p) => p.success.estimate).map((one, i) => ({ ...one, low: evals[i].points.map((p) => p.success.low), high: evals[i].points.map((p) => p.success.high) }));
  const charts = [chart({ title: "Success", note: "%, 95 % interval", x: "step", range: [0, 100], legend: true, series: success }),
    chart({ title: "Rounds", note: "mean turns, limit where not solved", x: "step", legend: true, series: of((p) => p.rounds) })];
  if (evals.some((split) => split.points.some((p) => p.score !== null))) charts.push(chart({ title: "Score", x: "step", legend: true, series: of((p) => p.score) }));
  return charts;
}

const ENDS = [["completed", 2], ["turn_limit", 1], ["curriculum_cutoff", 5], ["prompt_too_long", 3], ["failed", 6]];

function trainingCharts(run) {
  const b = run.batches, s = run.steps;
  const by = (name, y, color = 0, kind = "line", digits = 3) => ({ name, color, kind, x: b.batch, y, digits });
  const step = (name, y, color = 0, kind = "line") => ({ name, color, kind, x: s.step, y });
  const ends = ENDS.concat(Object.keys(b.terminations).filter((end) => !ENDS.some(([known]) => known === end)).map((end) => [end, 7]));
  const stacked = ends.filter(([end]) => b.terminations[end]).map(([end, color]) => by(words(end), b.terminations[end], color, "area"));
  return {
    Locate: [
      chart({ title: "Horizon K", note: "turns", x: "batch", series: [by("horizon", b.horizon)] }),
      chart({ title: "Clock pace v", note: "1 is the fixed clock", x: "batch", legend: true, series: [by("recorded", b.pace, 5, "dots"), by("7-batch mean", b.pace_smooth)] }),
      chart({ title: "Competence C at the frontier", x: "batch", series: [by("competence", b.competence)] }),
      chart({ title: "How episodes end", note: "share of episodes", x: "batch", range: [0, 1], legend: true, series: stacked }),
    ],
    Validate: [
      chart({ title: "Future scores", note: "complete pairs, nats per token", x: "batch", legend: true, series: [by("with the hint", b.guided_value, 2), by("without", b.base_value, 6, "dash")] }),
      histogram("Gains", run.gains, `${run.gains.length} pairs`),
      chart({ title: "Gate", note: "share of forks", x: "batch", range: [0, 1], legend: true, series: [by("accepted", b.accepted, 2), by("complete", b.complete, 6, "dash")] }),
      chart({ title: "Mean gain", x: "batch", series: [by("gain", b.gain, 2)] }),
    ],
    Refine: [
      chart({ title: "Guided share of tokens", x: "batch", series: [by("share", b.guided_share, 4)] }),
      chart({ title: "Internalization gap", note: "nats", x: "batch", series: [by("gap", b.gap, 0)] }),
      chart({ title: "Disagreement tokens", note: "in focused turns", x: "batch", range: [0, 1], legend: true, series: [by("share of weight", b.target_mass, 1), by("share of tokens", b.target_tokens, 6, "dash")] }),
    ],
    Learn: [
      chart({ title: "Loss", x: "step", legend: true, series: [step("all", s.loss, 7), step("focused", s.focus_loss, 0), step("internalization", s.internalization_loss, 4)] }),
      chart({ title: "Gradient norm", note: "before clipping", x: "step", series: [step("norm", s.grad_norm)] }),
      chart({ title: "Rows", x: "batch", legend: true, series: [by("waiting", b.waiting, 0, "line", 0), by("dropped for age", b.stale, 1, "line", 0)] }),
    ],
    Rollout: [
      chart({ title: "Success in rollouts", note: "share of episodes", x: "batch", range: [0, 1], series: [by("success", b.success, 2)] }),
      chart({ title: "KL(student ‖ teacher)", note: "nats per token", x: "batch", series: [by("KL", b.kl, 1)] }),
      chart({ title: "Negative log-likelihood", note: "of sampled tokens, nats", x: "batch", legend: true, series: [by("student (entropy)", b.student_nll, 0), by("teacher", b.teacher_nll, 1)] }),
      chart({ title: "Response length", note: "tokens", x: "batch", series: [by("tokens", b.response_tokens, 0, "line", 1)] }),
      chart({ title: "Turns with an action", note: "share", x: "batch", range: [0, 1], series: [by("parsed", b.parsed, 0)] }),
      chart({ title: "Turns per episode", x: "batch", series: [by("turns", b.rounds, 0, "line", 1)] }),
    ],
  };
}

const barList = (items, format) => {
  const most = Math.max(...items.map((item) => item[1]), 1e-9);
  return el("div", { class: "bars" }, items.map(([name, value]) => {
    const fill = el("div", { class: "fill" });
    fill.style.width = (100 * value / most).toFixed(1) + "%";
    return [el("span", { text: name }), el("div", { class: "track" }, fill), el("span", { class: "num", text: format(value) })];
  }));
};

const findingItem = (finding) => el("li", { class: "finding " + finding.severity },
  el("span", { class: "tag", text: finding.code }), el("b", { text: `${finding.severity}: ${finding.title}` }),
  el("p", { text: finding.evidence }), el("p", { class: "quiet", text: "Likely: " + finding.cause + "." }), el("p", { text: "Try: " + finding.advice + "." }));

async function runPage(id) {
  const run = await get("run/" + id);
  // The doctor reads episodes; the page does not wait for it.
  const doctor = el("div", { id: "doctor" });
  get(`run/${id}/doctor`).then((findings) => {
    if (findings.length) doctor.append(el("h2", { text: "Doctor" }), el("ul", { class: "findings" }, findings.map(findingItem)));
  }, (error) => doctor.append(el("p", { class: "bad", text: error.message })));
  const head = run.head;
  const [forks, complete, accepted] = head.forks;
  const last = run.evals.map((split) => {
    const first = split.points[0], now = split.points[split.points.length - 1];
    return now ? fact(split.split, number(now.success.estimate, 1) + " %", `[${number(now.success.low, 0)}, ${number(now.success.high, 0)}] of ${now.tasks}; ${number(first.success.estimate, 1)} % at first`) : null;
  });
  const groups = Object.entries(trainingCharts(run)).map(([name, charts]) => {
    const drawn = charts.filter((box) => box.querySelector("svg"));
    return drawn.length ? [el("h2", { text: name }), el("div", { class: "charts" }, drawn)] : null;
  });
  const time = head.time ? head.time[1] - head.time[0] : null;
  return [
    el("h1", {}, head.label, " ", stateChip(head.state)),
    el("p", { class: "quiet", text: `${head.method} on ${head.benchmark}, student ${head.student}` + (time ? `, ${duration(time)}${head.state === "running" ? " so far" : ""}` : "") }),
    head.state === "killed" ? el("p", { class: "bad", text: "This run was killed: lines behind its last checkpoint are cut when it is resumed." }) : null,
    run.problems.length ? el("details", { open: true }, el("summary", { class: "bad", text: `${run.problems.length} lines or files could not be read` }), el("pre", { text: run.problems.join("\n") })) : null,
    el("div", { class: "facts" }, last,
      fact("optimizer steps", head.planned ? `${head.step} / ${head.planned}` : String(head.step), `${head.batch} batches`),
      fact("episodes", String(head.episodes), ""),
      forks ? fact("forks", String(forks), `${complete} complete, ${accepted} accepted`) : null),
    el("p", {}, el("a", { href: `#/run/${id}/episodes`, text: "All episodes" }), forks ? [" · ", el("a", { href: `#/run/${id}/episodes?fork=accepted&sort=gain`, text: "accepted forks by gain" })] : null),
    el("h2", { text: "Evaluation" }), el("div", { class: "charts" }, evalCharts(run.evals)),
    doctor,
    groups,
    run.stages.length ? [el("h2", { text: "Time" }), barList(run.stages.map((stage) => [`${stage.stage} (${percent(stage.share)})`, stage.seconds]), duration)] : null,
    run.reasons.length ? [el("h2", { text: "Why gates stayed closed" }), barList(run.reasons.map(([code, count]) => [reason(code), count]), String)] : null,
    run.dropped_turns.length ? [el("h2", { text: "Turns without a row" }), barList(run.dropped_turns.map(([code, count]) => [words(code), count]), String)] : null,
    el("details", { class: "config" }, el("summary", { text: "Configuration" }), el("pre", { text: await get(`run/${id}/config`).catch((error) => error.message) })),
  ];
}

async function comparePage() {
  const { ids, comparison } = await get("compare");
  const link = (group) => group.runs.map((place) => el("a", { href: "#/run/" + ids[place], text: ids[place] })).flatMap((a, i) => i ? [" · ", a] : [a]);
  const charts = comparison.curves.map((curve) => chart({
    title: curve.split, note: "success, %", x: "step", range: [0, 100], legend: true,
    series: curve.groups.map((points, i) => ({
      name: comparison.groups[i].label, color: i % 8, kind: "line", points: true, digits: 1, x: points.map((p) => p.step), y: points.map((p) => p.mean), low: points.map((p) => p.low), high: points.map((p) => p.high),
    })),
  }));
  return [
    el("h1", { text: "Compare" }),
    el("p", { class: "quiet", text: "Bands: one standard deviation over seeds, or the 95 % interval of a single seed." }),
    el("div", { class: "charts" }, charts),
    el("h2", { text: "Groups" }),
    el("table", {}, el("tbody", {}, comparison.groups.map((group) => el("tr", {}, el("th", { text: group.label }), el("td", {}, link(group)))))),
    comparison.differences.length ? [el("h2", { text: "Differences at the last evaluation" }),
      el("table", {}, el("thead", {}, el("tr", {}, ["split", "group", "against", "success, points", "95 % interval", "tasks", ""].map((name) => el("th", { text: name })))),
        el("tbody", {}, comparison.differences.map((d) => el("tr", {},
          el("td", { text: d.split }), el("td", { text: d.group }), el("td", { text: d.base }),
          el("td", { class: "num", text: signed(d.success.estimate, 1) }), el("td", { class: "num", text: `${signed(d.success.low, 1)} to ${signed(d.success.high, 1)}` }),
          el("td", { text: `${d.tasks}${d.paired ? " paired" : ""}` }),
          el("td", {}, d.clear ? el("span", { class: d.success.estimate > 0 ? "good" : "bad", text: d.success.estimate > 0 ? "better" : "worse" }) : el("span", { class: "quiet", text: "cannot be told from chance" }))))))] : null,
    comparison.settings.length ? [el("h2", { text: "Settings that differ" }),
      el("table", {}, el("thead", {}, el("tr", {}, el("th", { text: "key" }), comparison.groups.map((group) => el("th", { text: group.label })))),
        el("tbody", {}, comparison.settings.map((row) => el("tr", {}, el("td", { class: "mono", text: row.key }),
          row.values.map((value) => el("td", { class: "mono" + (value !== row.values[0] ? " differs" : ""), text: value }))))))] : null,
  ];
}
