"use strict";
// The list of episodes: filters in the address, rows drawn only where they are seen.
const ROW = 34;
const COLUMNS = [
  ["batch", "batch", (r) => r.batch], ["episode", "ep.", (r) => r.episode], ["task", "task", (r) => r.task], ["kind", "kind", (r) => r.kind],
  ["end", "end", (r) => r.end], ["success", "solved", (r) => Number(r.success)], ["turns", "turns", (r) => r.turns],
  ["divergence", "max D", (r) => r.divergence], ["gain", "gain", (r) => r.gain], ["fork", "fork", (r) => (r.accepted === null ? -1 : Number(r.accepted))],
];

function matches(row, q) {
  const between = (value, low, high) => (low === "" || low === undefined || (value !== null && value >= Number(low))) && (high === "" || high === undefined || (value !== null && value <= Number(high)));
  return (!q.batch || String(row.batch) === q.batch) && (!q.kind || row.kind === q.kind) && (!q.end || row.end === q.end)
    && (!q.success || String(row.success) === q.success) && between(row.gain, q.gain_min, q.gain_max) && between(row.divergence, q.d_min, undefined)
    && (!q.fork || (q.fork === "accepted" ? row.accepted === true : q.fork === "closed" ? row.accepted === false : row.accepted !== null));
}

function ordered(rows, q) {
  const column = COLUMNS.find(([key]) => key === q.sort) || COLUMNS[0];
  const down = q.sort ? q.order !== "up" : false;
  const value = column[2];
  const sorted = rows.slice().sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === y) return a.batch - b.batch || a.episode - b.episode;
    if (x === null) return 1;
    if (y === null) return -1;
    return (x < y ? -1 : 1) * (down ? -1 : 1);
  });
  return sorted;
}

// The rows of the last list, for walking from episode to episode.
const walk = { id: null, rows: [] };

async function episodesPage(id, q) {
  const all = await get(`run/${id}/episodes`);
  let found = null;
  if (q.text && embedded) {
    const needle = q.text.toLowerCase();
    found = new Set(Object.entries(embedded).filter(([path, value]) => path.startsWith(`run/${id}/episode/`) && JSON.stringify(value).toLowerCase().includes(needle)).map(([path]) => path.split("/").slice(3).join("/")));
  } else if (q.text) {
    const hits = await get(`run/${id}/search?q=${encodeURIComponent(q.text)}`);
    found = new Set(hits.map((hit) => hit.join("/")));
  }
  const rows = ordered(all.filter((row) => matches(row, q) && (!found || found.has(`${row.batch}/${row.episode}`))), q);
  walk.id = id;
  walk.rows = rows;
  const go = (change) => { location.hash = `/run/${id}/episodes` + queryText({ ...q, ...change }); };
  const choose = (key, label, values, name = words) => el("label", {}, label,
    el("select", { "data-filter": key, onchange: (event) => go({ [key]: event.target.value }) }, el("option", { value: "", text: "any" }),
      values.map((value) => el("option", { value: String(value), selected: String(value) === q[key], text: name(value) }))));
  const bound = (key, label) => el("label", {}, label, el("input", { type: "number", step: "0.05", size: 6, value: q[key] || "", "data-filter": key, onchange: (event) => go({ [key]: event.target.value }) }));
  const unique = (key) => [...new Set(all.map((row) => row[key]))].sort();
  const search = el("input", { type: "search", id: "search", placeholder: "text of prompts, responses, hints", value: q.text || "" });
  search.addEventListener("keydown", (event) => { if (event.key === "Enter") go({ text: search.value }); });
  const list = el("div", { id: "list", role: "listbox", tabindex: 0, "aria-label": `${rows.length} episodes` });
  const space = el("div", { role: "presentation" });
  space.style.height = rows.length * ROW + "px";
  list.append(space);
  let selected = Math.max(0, rows.findIndex((row) => `${row.batch}/${row.episode}` === episodesPage.last));
  const address = (row) => row.fork_turn !== null && (q.fork || q.sort === "gain") ? `#/run/${id}/batch/${row.batch}/episode/${row.episode}/turn/${row.fork_turn}/fork` : `#/run/${id}/batch/${row.batch}/episode/${row.episode}`;
  const draw = () => {
    const first = Math.max(0, Math.floor(list.scrollTop / ROW) - 8);
    const last = Math.min(rows.length, first + Math.ceil(list.clientHeight / ROW) + 16);
    space.replaceChildren(...rows.slice(first, last).map((row, i) => listRow(row, first + i, first + i === selected, () => { episodesPage.last = `${row.batch}/${row.episode}`; location.hash = address(row); })));
    list.setAttribute("aria-activedescendant", rows.length ? `row-${selected}` : "");
  };
  const select = (place) => {
    selected = Math.max(0, Math.min(rows.length - 1, place));
    const top = selected * ROW;
    if (top < list.scrollTop) list.scrollTop = top;
    if (top + ROW > list.scrollTop + list.clientHeight) list.scrollTop = top + ROW - list.clientHeight;
    draw();
  };
  list.addEventListener("scroll", draw);
  keys.page = (key) => {
    if (key === "j" || key === "ArrowDown") select(selected + 1);
    else if (key === "k" || key === "ArrowUp") select(selected - 1);
    else if (key === "Enter" && rows[selected]) { episodesPage.last = `${rows[selected].batch}/${rows[selected].episode}`; location.hash = address(rows[selected]); }
    else if (key === "/") { search.focus(); search.select(); }
    else return false;
    return true;
  };
  requestAnimationFrame(() => { select(selected); list.focus({ preventScroll: true }); });
  const head = COLUMNS.map(([key, label]) => el("button", { type: "button", "aria-pressed": String(q.sort === key), text: label + (q.sort === key ? (q.order === "up" ? " ↑" : " ↓") : ""), onclick: () => go({ sort: key, order: q.sort === key && q.order !== "up" ? "up" : "" }) }));
  return [
    el("h1", { text: "Episodes" }),
    el("div", { class: "filters" },
      el("label", {}, "search", search), choose("batch", "batch", unique("batch"), String), choose("kind", "kind", unique("kind")), choose("end", "end", unique("end")),
      choose("success", "solved", ["true", "false"], (v) => v === "true" ? "yes" : "no"), choose("fork", "fork", ["any", "accepted", "closed"], (v) => v === "any" ? "any fork" : v),
      bound("gain_min", "gain from"), bound("gain_max", "gain to"), bound("d_min", "D from"),
      Object.values(q).some(Boolean) ? el("button", { type: "button", text: "clear", onclick: () => { location.hash = `/run/${id}/episodes`; } }) : null),
    el("p", { class: "quiet", id: "count", text: `${rows.length} of ${all.length} episodes` + (embedded ? " in this file" : "") }),
    el("div", { class: "grid-head" }, head), list,
  ];
}

function listRow(row, place, selected, open) {
  const fork = row.accepted === null ? el("span") : el("span", {}, el("span", { class: "chip " + (row.accepted ? "yes" : "no"), title: row.reason ? reason(row.reason) : "", text: row.accepted ? "accepted" : "closed" }));
  const node = el("div", { class: "grid-row", role: "option", id: `row-${place}`, "aria-selected": String(selected), onclick: open },
    el("span", { class: "num", text: String(row.batch) }), el("span", { class: "num", text: String(row.episode) }), el("span", { title: row.task, text: row.task }),
    el("span", { text: words(row.kind) }), el("span", { text: words(row.end) }), el("span", {}, row.success ? el("span", { class: "chip yes", text: "solved" }) : ""),
    el("span", { class: "num", text: String(row.turns) }), el("span", { class: "num", text: number(row.divergence, 2) }),
    el("span", { class: "num " + (row.gain > 0 ? "good" : row.gain < 0 ? "bad" : ""), text: signed(row.gain, 3) }), fork);
  node.style.top = place * ROW + "px";
  return node;
}
