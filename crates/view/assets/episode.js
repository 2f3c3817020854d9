"use strict";
// One episode, and one of its forks.
const mean = (values) => values.length ? values.reduce((a, b) => a + b, 0) / values.length : null;
function divergence(turn) {
  const masked = new Set(turn.masked || []);
  return mean((turn.kl || []).filter((value, i) => value !== null && !masked.has(i)));
}

function pager(id, line, forks) {
  const here = walk.id === id ? walk.rows.findIndex((row) => row.batch === line.batch && row.episode === line.episode) : -1;
  const to = (row) => `#/run/${id}/batch/${row.batch}/episode/${row.episode}` + (forks && row.fork_turn !== null ? `/turn/${row.fork_turn}/fork` : "");
  const [before, after] = [walk.rows[here - 1], here >= 0 ? walk.rows[here + 1] : undefined];
  return { node: el("div", { class: "pager" }, el("a", { href: `#/run/${id}/episodes`, text: "← episodes" }),
    before ? el("a", { href: to(before), text: "previous (p)" }) : null, after ? el("a", { href: to(after), text: "next (n)" }) : null,
    here >= 0 ? el("span", { class: "quiet", text: `${here + 1} of ${walk.rows.length}` }) : null),
  previous: before && to(before), next: after && to(after) };
}

const titleOf = (line) => el("h1", {}, line.goal || line.task, " ", el("span", { class: "chip " + (line.success ? "yes" : "no"), text: line.success ? "solved" : "not solved" }));

async function episodePage(id, batch, key, at) {
  const line = await get(`run/${id}/episode/${batch}/${key}`);
  if (!heat.chosen) heat.measure = "kl";
  const turns = line.turns || [], forks = line.forks || [];
  const largest = Math.max(1e-9, ...turns.map((turn) => divergence(turn) || 0));
  const pages = pager(id, line);
  const base = `#/run/${id}/batch/${batch}/episode/${key}`;
  const nodes = turns.map((turn) => {
    const fork = forks.find((one) => one.turn === turn.turn);
    const d = divergence(turn);
    const bar = el("span", { class: "d" });
    bar.style.opacity = d === null ? 0 : Math.max(0.06, d / largest).toFixed(2);
    return el("article", { class: "turn" + (fork ? " fork" : ""), id: `turn-${turn.turn}`, "data-turn": turn.turn, "aria-label": `Turn ${turn.turn}` },
      el("div", { class: "margin" }, el("b", { text: String(turn.turn) }), turn.actor, el("br"), d === null ? null : `D ${number(d, 3)}`, bar),
      el("div", { class: "body" },
        el("p", { class: "env", text: turn.observation }), heatText(turn, line.token_text, turn.response),
        el("div", {}, turn.action ? el("span", { class: "action", text: turn.action }) : el("span", { class: "chip no", text: "no action" }), turn.dropped ? el("span", { class: "chip no", text: "not trained: " + words(turn.dropped) }) : null),
        fork ? el("p", {}, el("a", { href: `${base}/turn/${turn.turn}/fork`, text: "Forked here" }), " — ", forkWords(fork), fork.hint ? el("span", { class: "quiet", text: ` Hint: “${fork.hint}”` }) : null) : null,
        turn.prompt ? el("details", {}, el("summary", { text: "prompt" }), el("pre", { text: turn.prompt })) : null));
  });
  let current = at === undefined ? -1 : turns.findIndex((turn) => turn.turn === at);
  const show = (place, scroll = true) => {
    if (!nodes.length) return;
    current = Math.max(0, Math.min(nodes.length - 1, place));
    nodes.forEach((node, i) => i === current ? node.setAttribute("aria-current", "true") : node.removeAttribute("aria-current"));
    if (scroll) nodes[current].scrollIntoView({ block: "start" });
    history.replaceState(null, "", `${base}/turn/${turns[current].turn}`);
  };
  if (current >= 0) requestAnimationFrame(() => show(current));
  keys.page = (key) => {
    if (key === "j" || key === "ArrowDown") show(current + 1);
    else if (key === "k" || key === "ArrowUp") show(current - 1);
    else if (key === "f" && forks.length) location.hash = `${base}/turn/${forks[0].turn}/fork`;
    else if (key === "n" && pages.next) location.hash = pages.next;
    else if (key === "p" && pages.previous) location.hash = pages.previous;
    else return false;
    return true;
  };
  return [pages.node, titleOf(line),
    el("p", { class: "quiet", text: `batch ${line.batch}, episode ${line.episode} · ${line.task} · horizon ${line.horizon} · ${words(line.end)}${line.prefix ? ` · ${line.prefix} turns replayed` : ""} · student after ${line.version} steps` }),
    line.failure ? el("p", { class: "bad", text: line.failure }) : null, heatBar(), nodes];
}

function forkWords(fork) {
  const record = fork.record;
  if (!record) return "no verdict";
  const v = record.verdict;
  if (v.gain !== null && v.gain !== undefined) return el("span", { class: v.accepted ? "good" : "bad", text: `${v.accepted ? "accepted" : "closed"}, gain ${signed(v.gain, 4)}.` });
  return el("span", { class: v.accepted ? "good" : "bad", text: v.accepted ? "accepted by its outcome." : `closed: ${reason(record.reason || "unknown")}.` });
}

// The equation of a branch's value with its numbers.
function valueEquation(name, turns, value) {
  const scored = turns.slice(1).filter((turn) => turn.likelihood !== null && turn.likelihood !== undefined && turn.content_tokens);
  if (!scored.length) return el("div", { text: `${name} = ${number(value, 4)}` });
  const tokens = scored.reduce((sum, turn) => sum + turn.content_tokens, 0);
  const terms = scored.map((turn) => `${turn.content_tokens}·(${number(turn.likelihood, 3)})`).join(" + ");
  return el("div", { text: `${name} = (${terms}) / ${tokens} = ${number(value, 4)}` });
}

function why(line, fork) {
  const record = fork.record;
  if (!record) return null;
  const v = record.verdict, request = record.request;
  const rows = line.turns.map((turn) => [turn.turn, divergence(turn)]).filter(([, d]) => d !== null);
  const ratio = fork.evaluator === "token_ratio";
  const rule = ratio ? "V: share of continuation tokens the teacher finds likelier than the student does" : "V: mean teacher log-likelihood of the continuation's content tokens";
  return el("div", { class: "card" }, el("h3", { text: v.accepted ? "Why was this accepted?" : "Why was this not accepted?" }),
    el("div", { class: "eq" },
      el("div", { text: `t* = argmax D_t = ${request.turn}, D_t* = ${number(request.divergence, 4)}` }),
      rows.length ? el("div", { class: "quiet", text: rows.map(([turn, d]) => `D_${turn} ${number(d, 3)}`).join("  ") }) : null,
      el("div", { class: "quiet", text: `${rule}; H = ${request.continuation_turns}, τ = ${request.score_temperature}` }),
      v.gain === null || v.gain === undefined ? el("div", { text: record.reason ? `no gain: ${reason(record.reason)}` : "no gain" }) : [
        ratio ? null : valueEquation("V_H", fork.guided, v.guided_value), ratio ? null : valueEquation("V_B", fork.base, v.base_value),
        el("div", { text: `Δ = V_H − V_B = ${number(v.guided_value, 4)} − (${number(v.base_value, 4)}) = ${signed(v.gain, 4)}` }),
        el("div", { text: `g = 1[Δ > 0] = ${v.accepted ? 1 : 0}` })],
      record.internalization_gap !== null && record.internalization_gap !== undefined ? el("div", { text: `internalization gap: mean KL(q_H ‖ p_0) = ${number(record.internalization_gap, 4)}` }) : null,
      record.focus ? el("div", { text: `focus: ${record.focus.target_tokens} of ${record.focus.content_tokens} tokens disagree and carry ${percent(record.focus.target_mass / record.focus.content_mass)} of the weight` }) : null));
}

async function forkPage(id, batch, key, at) {
  const line = await get(`run/${id}/episode/${batch}/${key}`);
  const fork = (line.forks || []).find((one) => one.turn === at);
  if (!fork) throw new Error(`turn ${at} of this episode was not forked`);
  const record = fork.record, v = record ? record.verdict : { accepted: false };
  const pages = pager(id, line, true);
  // Branches are scored by the teacher alone: there is no KL to show.
  if (!heat.chosen) heat.measure = "gap";
  const length = Math.max(fork.base.length, fork.guided.length);
  const differs = Array.from({ length }, (_, i) => i).find((i) => (fork.base[i] || {}).action !== (fork.guided[i] || {}).action);
  const cell = (turn, i, side) => el("div", { class: `cell ${side}` + (i === differs ? " first-difference" : "") }, turn ? [
    el("div", { class: "meta" }, el("span", { text: `turn ${turn.turn ?? at + i}${i === 0 ? " (fork)" : ""}` }),
      turn.likelihood !== null && turn.likelihood !== undefined ? el("span", { title: "mean teacher log-likelihood of the content tokens", text: `${number(turn.likelihood, 3)} nats/token · ${turn.content_tokens} tokens` }) : el("span", { text: i === 0 ? "not valued" : "" })),
    el("p", { class: "env", text: turn.observation }), heatText(turn, line.token_text, turn.response),
    turn.action ? el("span", { class: "action" + (i === differs ? " differs" : ""), text: turn.action }) : el("span", { class: "chip no", text: "no action" })] : el("p", { class: "quiet", text: "(ended)" }));
  const cells = Array.from({ length }, (_, i) => [cell(fork.base[i], i, "base"), cell(fork.guided[i], i, "guided")]);
  const end = (text) => text ? el("span", { class: "quiet", text: words(text) }) : null;
  const bridge = record && record.request.kind === "bridge";
  keys.page = (pressed) => {
    if (pressed === "e" || pressed === "f" || pressed === "Escape") location.hash = `/run/${id}/batch/${batch}/episode/${key}/turn/${at}`;
    else if (pressed === "n" && pages.next) location.hash = pages.next;
    else if (pressed === "p" && pages.previous) location.hash = pages.previous;
    else return false;
    return true;
  };
  return [pages.node, titleOf(line),
    el("p", { class: "quiet" }, `fork at turn ${at} of `, el("a", { href: `#/run/${id}/batch/${batch}/episode/${key}/turn/${at}`, text: `batch ${batch}, episode ${key}` }), ` · ${line.task}`),
    el("div", { class: "hint", id: "hint" }, el("h3", { text: bridge ? "The teacher acts itself" : "The teacher's hint" }), el("q", { text: bridge ? (fork.guided[0] || {}).response || "" : fork.hint || "(none)" })),
    el("div", { class: "verdict" },
      el("div", { class: "card " + (v.accepted ? "accepted" : "closed"), id: "verdict" },
        el("h3", { text: v.accepted ? "Accepted" : "Gate closed" }),
        el("div", { class: "big", id: "gain", text: v.gain === null || v.gain === undefined ? "no gain" : `gain ${signed(v.gain, 4)}` }),
        el("p", { text: v.gain === null || v.gain === undefined ? (record && record.reason ? reason(record.reason) : "accepted by its outcome") : v.accepted ? "The teacher finds the guided future likelier, so the hinted response is internalized and the turn focused." : "The guided future is not better in the teacher's eyes, so the turn stays ordinary OPD." }),
        el("p", { class: "quiet", text: `V_B ${number(v.base_value, 4)} · V_H ${number(v.guided_value, 4)}` })),
      why(line, fork)),
    heatBar(),
    el("div", { class: "sides" },
      el("div", { class: "side-head base" }, el("span", { text: "Without guidance" }), end(fork.base_end)),
      el("div", { class: "side-head guided" }, el("span", { text: bridge ? "After the teacher's turn" : "With the hint" }), end(fork.guided_end)), cells)];
}
