"use strict";
// Tokens as a heat map: one color scale at a time, both favorites under the pointer.
const MEASURES = {
  kl: { name: "KL", unit: "nats", of: (t, i) => at(t.kl, i), clip: [0, 2], about: "KL(student ‖ teacher) at this position" },
  gap: { name: "log-probability gap", unit: "nats", of: (t, i) => minus(at(t.student_logprobs, i), at(t.teacher_logprobs, i)), clip: [-3, 3], about: "log p(student) − log p(teacher) of the token" },
  weight: { name: "weight", unit: "", of: (t, i) => at(t.weights, i), clip: [0, 5], about: "the weight r of the token in the loss" },
  student: { name: "student log p", unit: "nats", of: (t, i) => at(t.student_logprobs, i), clip: [-4, 0], about: "the student's log-probability of the token" },
  teacher: { name: "teacher log p", unit: "nats", of: (t, i) => at(t.teacher_logprobs, i), clip: [-4, 0], about: "the teacher's log-probability of the token" },
};
const at = (list, i) => list && list[i] !== undefined ? list[i] : null;
const minus = (a, b) => a === null || b === null ? null : a - b;
const heat = { measure: "kl", chosen: false };

// A color for a value: white to orange for one-sided scales, blue to orange around zero for two-sided ones.
function heatColor(measure, value) {
  if (value === null) return "transparent";
  const [low, high] = measure.clip;
  const clipped = Math.max(low, Math.min(high, value));
  if (low < 0 && high > 0) {
    const share = clipped / (clipped < 0 ? -low : high);
    return share < 0 ? `rgb(64 140 220 / ${(-share * 0.7).toFixed(3)})` : `rgb(230 110 30 / ${(share * 0.7).toFixed(3)})`;
  }
  const share = high === 0 ? clipped / low : (clipped - low) / (high - low);
  return `rgb(230 110 30 / ${(share * 0.72).toFixed(3)})`;
}

function tokenText(texts, id) {
  const text = texts && texts[id];
  return text === undefined ? `⟨${id}⟩` : text;
}

function tokenCard(tokens, texts, i) {
  const favorite = (ids, own, other) => {
    const id = ids ? at(ids, i) : null;
    if (id === null) return [el("td", { text: "–" }), el("td"), el("td")];
    return [el("td", { class: "mono", text: JSON.stringify(tokenText(texts, id)) }),
      el("td", { class: "num", text: number(at(own, i)) }), el("td", { class: "num", text: number(at(other, i)) })];
  };
  const f = tokens.favorites;
  const masked = (tokens.masked || []).includes(i);
  const rows = [["KL", number(at(tokens.kl, i))], ["weight", number(at(tokens.weights, i), 2)]];
  return el("div", { class: "tokencard" },
    el("div", { class: "mono" }, el("b", { text: JSON.stringify(tokenText(texts, tokens.tokens[i])) }), masked ? el("span", { class: "quiet", text: "  masked: outside the content set" }) : null),
    el("table", {},
      el("tr", {}, el("th"), el("th", { text: "token" }), el("th", { text: "log p student" }), el("th", { text: "log p teacher" })),
      el("tr", {}, el("th", { text: "written" }), el("td", { class: "mono", text: JSON.stringify(tokenText(texts, tokens.tokens[i])) }),
        el("td", { class: "num", text: number(at(tokens.student_logprobs, i)) }), el("td", { class: "num", text: number(at(tokens.teacher_logprobs, i)) })),
      f ? el("tr", {}, el("th", { text: "student's favorite" }), favorite(f.student, f.student_at_student, f.teacher_at_student)) : null,
      f ? el("tr", {}, el("th", { text: "teacher's favorite" }), favorite(f.teacher, f.student_at_teacher, f.teacher_at_teacher)) : null),
    el("div", { class: "quiet", text: rows.map((row) => row.join(" ")).join("   ") }));
}

// The response of a turn, token by token; plain text where no tokens were recorded.
function heatText(tokens, texts, plain) {
  const ids = tokens.tokens || [];
  if (!ids.length || !texts || !Object.keys(texts).length) return el("p", { class: "said", text: plain || "(nothing)" });
  const box = el("p", { class: "said heat", tabindex: 0, role: "group", "aria-label": "Response, token by token; left and right arrows move" });
  let active = -1;
  const spans = ids.map((id, i) => {
    const f = tokens.favorites;
    const differ = f && at(f.student, i) !== null && at(f.student, i) !== at(f.teacher, i);
    const masked = (tokens.masked || []).includes(i);
    const span = el("span", { class: "tok" + (masked ? " masked" : "") + (differ ? " disagree" : ""), "data-i": i, text: tokenText(texts, id) });
    span.heat = () => { span.style.backgroundColor = heatColor(MEASURES[heat.measure], MEASURES[heat.measure].of(tokens, i)); };
    span.heat();
    return span;
  });
  box.append(...spans);
  const show = (i, x, y) => tip.show(tokenCard(tokens, texts, i), x, y);
  box.addEventListener("pointermove", (event) => {
    const span = event.target.closest(".tok");
    if (span) show(Number(span.dataset.i), event.clientX, event.clientY); else tip.hide();
  });
  box.addEventListener("pointerleave", () => tip.hide());
  box.addEventListener("blur", () => { tip.hide(); spans.forEach((span) => span.classList.remove("active")); });
  box.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    if (active >= 0) spans[active].classList.remove("active");
    active = Math.max(0, Math.min(spans.length - 1, active + step));
    spans[active].classList.add("active");
    const place = spans[active].getBoundingClientRect();
    show(active, place.left, place.bottom);
  });
  return box;
}

// The choice of measure and its legend.
function heatBar() {
  const scale = el("span", { class: "scale" });
  const draw = () => {
    const measure = MEASURES[heat.measure];
    const [low, high] = measure.clip;
    const steps = Array.from({ length: 26 }, (_, i) => low + (high - low) * i / 25);
    const strip = svg("svg", { viewBox: "0 0 130 12", role: "img", "aria-label": `${measure.name} from ${low} to ${high}` },
      steps.map((value, i) => { const cell = svg("rect", { x: i * 5, y: 0, width: 5, height: 12 }); cell.style.fill = heatColor(measure, value); return cell; }));
    scale.replaceChildren(el("span", { text: `≤ ${low}` }), strip, el("span", { text: `≥ ${high} ${measure.unit} (clipped)` }));
  };
  const buttons = Object.entries(MEASURES).map(([key, measure]) => el("button", {
    type: "button", title: measure.about, "aria-pressed": String(heat.measure === key), "data-measure": key, text: measure.name,
    onclick: () => {
      heat.measure = key;
      heat.chosen = true;
      buttons.forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.measure === key)));
      draw();
      document.querySelectorAll(".heat .tok").forEach((span) => span.heat());
    },
  }));
  draw();
  return el("div", { class: "heatbar", role: "toolbar", "aria-label": "Color of tokens" }, el("span", { text: "color" }), buttons, scale,
    el("span", {}, el("span", { class: "tok disagree", text: "models disagree" }), " · ", el("span", { class: "tok masked", text: "masked" })));
}
