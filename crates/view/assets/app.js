"use strict";
// Addresses, keys, theme, news.
const keys = { page: () => false };
const queryText = (q) => {
  const text = new URLSearchParams(Object.entries(q).filter(([, value]) => value)).toString();
  return text ? "?" + text : "";
};

const theme = {
  now: () => document.documentElement.dataset.theme,
  set(value) {
    document.documentElement.dataset.theme = value;
    try { localStorage.setItem("lens-theme", value); } catch { /* a file from disk may have no storage */ }
  },
  start() {
    let kept = null;
    try { kept = localStorage.getItem("lens-theme"); } catch { /* as above */ }
    document.documentElement.dataset.theme = kept || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  },
  flip() { this.set(this.now() === "dark" ? "light" : "dark"); },
};

const lensMark = () => svg("svg", { viewBox: "0 0 20 20", "aria-hidden": "true" },
  svg("circle", { cx: 8.5, cy: 8.5, r: 6, fill: "none", stroke: "currentColor", "stroke-width": 2 }), svg("path", { d: "M13 13l5 5M8.5 5.5v6M5.5 8.5h6", stroke: "currentColor", "stroke-width": 2, "stroke-linecap": "round", fill: "none" }));

function header(route) {
  const link = (href, text, here) => el("a", { href, "aria-current": here ? "page" : null, text });
  const id = route.id;
  document.getElementById("top").replaceChildren(
    el("a", { class: "brand", href: "#/" }, lensMark(), "lens"),
    el("nav", { "aria-label": "Pages" }, link("#/", "Runs", route.page === "runs"), link("#/compare", "Compare", route.page === "compare"),
      id ? [el("span", { class: "crumb", text: id }), link(`#/run/${id}`, "Overview", route.page === "run"), link(`#/run/${id}/episodes`, "Episodes", route.page === "episodes" || route.page === "episode" || route.page === "fork")] : null),
    el("button", { type: "button", id: "theme", "aria-label": "Switch between light and dark", title: "light or dark (t)", text: "◐", onclick: () => theme.flip() }),
    el("button", { type: "button", "aria-label": "Keyboard shortcuts", title: "keys (?)", text: "?", onclick: help }));
}

function help() {
  const rows = [["j k", "next, previous episode or turn"], ["Enter", "open"], ["/", "search"], ["n p", "next, previous episode of the list"], ["f", "the fork of this episode"], ["e", "from a fork to its episode"], ["← →", "token by token, in a response"], ["t", "light or dark"], ["?", "this help"]];
  const box = document.getElementById("help");
  const close = el("button", { type: "button", text: "Close", onclick: () => { box.hidden = true; } });
  box.replaceChildren(el("div", {}, el("h3", { text: "Keys" }), el("table", {}, rows.map(([key, text]) => el("tr", {}, el("td", {}, key.split(" ").map((one) => [el("kbd", { text: one }), " "])), el("td", { text })))), close));
  box.hidden = false;
  close.focus();
}

function parse() {
  const [path, query = ""] = decodeURI(location.hash.replace(/^#/, "") || "/").split("?");
  const parts = path.split("/").filter(Boolean);
  const q = Object.fromEntries(new URLSearchParams(query));
  if (!parts.length) return { page: "runs", draw: () => runsPage() };
  if (parts[0] === "compare") return { page: "compare", draw: () => comparePage() };
  const id = parts[1];
  if (parts[0] === "run" && id && parts.length === 2) return { page: "run", id, draw: () => runPage(id) };
  if (parts[0] === "run" && parts[2] === "episodes") return { page: "episodes", id, draw: () => episodesPage(id, q) };
  const [batch, episode, turn] = [3, 5, 7].map((place) => /^\d+$/.test(parts[place] || "") ? Number(parts[place]) : undefined);
  if (parts[0] === "run" && parts[2] === "batch" && parts[4] === "episode" && batch !== undefined && episode !== undefined) {
    if (parts[8] === "fork" && turn !== undefined) return { page: "fork", id, draw: () => forkPage(id, batch, episode, turn) };
    return { page: "episode", id, draw: () => episodePage(id, batch, episode, turn) };
  }
  return { page: "", draw: async () => { throw new Error("there is no such page"); } };
}

let drawing = 0;
async function show(quietly) {
  const ticket = ++drawing;
  const route = parse();
  const main = document.getElementById("main");
  const scroll = scrollY;
  tip.hide();
  if (!quietly) header(route);
  keys.page = () => false;
  let content;
  try { content = await route.draw(); } catch (error) { content = [el("h1", { text: "Not shown" }), el("p", { text: error.message }), el("p", {}, el("a", { href: "#/", text: "All runs" }))]; }
  if (ticket !== drawing || content === null) return;
  main.replaceChildren(...[content].flat(3).filter(Boolean));
  document.title = `${route.id ? route.id + " · " : ""}lens`;
  document.body.dataset.page = route.page;
  if (quietly) scrollTo(0, scroll); else if (route.page !== "episode") scrollTo(0, 0);
}

function listen() {
  if (embedded) return;
  const news = new EventSource("/events");
  news.addEventListener("message", (event) => {
    const changed = JSON.parse(event.data).runs;
    const route = parse();
    const concerns = route.page === "runs" || route.page === "compare" || changed.includes(route.id);
    // A page someone reads in is left alone; overviews and lists follow the run.
    if (concerns && ["runs", "compare", "run"].includes(route.page)) {
      show(true);
      document.getElementById("status").textContent = "updated";
    }
  });
}

addEventListener("hashchange", () => show(false));
addEventListener("keydown", (event) => {
  const help_box = document.getElementById("help");
  if (!help_box.hidden) { if (event.key === "Escape" || event.key === "?") help_box.hidden = true; return; }
  const field = event.target.closest("input, select, textarea");
  if (field) { if (event.key === "Escape") field.blur(); return; }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Enter" && event.target.closest("a, button, summary")) return;
  const done = keys.page(event.key) || (event.key === "t" && (theme.flip(), true)) || (event.key === "?" && (help(), true))
    || (event.key === "/" && document.body.dataset.page !== "episodes" && parse().id && (location.hash = `/run/${parse().id}/episodes`, true));
  if (done) event.preventDefault();
});
theme.start();
show(false);
listen();
