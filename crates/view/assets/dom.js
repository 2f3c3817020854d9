"use strict";
// Building pages without markup: every text becomes a text node, so nothing in a run can become an element.
const SVG = "http://www.w3.org/2000/svg";

function put(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "text") node.textContent = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(3)) {
    if (child !== null && child !== undefined && child !== false) node.append(child);
  }
  return node;
}
const el = (tag, attributes, ...children) => put(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => put(document.createElementNS(SVG, tag), attributes, children);

const embedded = (() => {
  const block = document.getElementById("data");
  return block ? JSON.parse(block.textContent) : null;
})();

// Answers come from the server, or from the file itself when it was exported.
async function get(path) {
  if (embedded) {
    if (path in embedded) return embedded[path];
    throw new Error("not in this file: the export holds a sample of episodes");
  }
  const response = await fetch("/api/" + path);
  const body = await response.json();
  if (!response.ok) throw new Error(body.error || response.statusText);
  return body;
}

const number = (x, digits = 3) => x === null || x === undefined || !isFinite(x) ? "–" : Number(x).toFixed(digits).replace("-", "−");
const signed = (x, digits = 3) => x === null || x === undefined ? "–" : (x > 0 ? "+" : "") + number(x, digits);
const percent = (x, digits = 0) => x === null || x === undefined ? "–" : number(100 * x, digits) + " %";
const words = (code) => String(code || "").replace(/[_-]/g, " ");
function duration(seconds) {
  if (!isFinite(seconds)) return "–";
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

// A gate's reason in words; the same sentences as in the terminal.
function reason(code) {
  const [side, cause] = code.includes(".") ? code.split(".") : ["", code];
  const causes = {
    not_better: "the guided future is not better", timeout: "time ran out",
    engine_failure: "an engine or the environment failed", prompt_too_long: "a prompt grew beyond the limit",
    unparsed_action: "a response held no action", no_response: "there is no response to train on",
    no_continuation: "the episode was over at the fork turn", ended_early: "it ended before the turns asked for",
    no_content: "the continuation has no content tokens", unscored: "the teacher could not score a turn",
    restore_mismatch: "the restored state differs from the recorded one", restore_failed: "the state could not be restored",
    hint_empty: "the hint was empty", hint_failed: "the teacher gave no hint", inadmissible_action: "the action is not admissible",
  };
  const text = causes[cause] || words(cause);
  return side === "base" ? "without the hint: " + text : side === "guided" ? "with the hint: " + text : text;
}

const tip = {
  node: document.getElementById("tip"),
  show(content, x, y) {
    this.node.replaceChildren(content);
    this.node.hidden = false;
    const box = this.node.getBoundingClientRect();
    const left = Math.min(x + 14, innerWidth - box.width - 8);
    const top = y + 18 + box.height > innerHeight ? y - box.height - 12 : y + 18;
    this.node.style.left = Math.max(4, left) + "px";
    this.node.style.top = Math.max(4, top) + "px";
  },
  hide() { this.node.hidden = true; },
};
