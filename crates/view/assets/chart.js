"use strict";
// Line, band, dot, area and bar charts as SVG, with a readout under the pointer.
const PLOT = { width: 340, height: 176, left: 42, right: 10, top: 8, bottom: 26 };

function niceTicks(low, high, count) {
  if (!(high > low)) return [low];
  const raw = (high - low) / count;
  const power = Math.pow(10, Math.floor(Math.log10(raw)));
  const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= raw * 0.999);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i <= Math.floor(high / step + 1e-9); i++) ticks.push(i * step);
  return ticks;
}

function tickText(value, ticks) {
  const step = ticks.length > 1 ? ticks[1] - ticks[0] : 1;
  if (value !== 0 && Math.abs(value) < 1e-3) return value.toExponential(0);
  const digits = step >= 1 ? 0 : Math.min(4, Math.ceil(-Math.log10(step)));
  return value.toFixed(digits).replace("-", "−");
}

// options: title, note, x (label), range [low, high], series: [{name, kind, color, x[], y[], low[], high[]}]
// kinds: line, dash, dots, band, area (stacked in order), bars (x[], x2[], y[])
function chart(options) {
  const { width, height, left, right, top, bottom } = PLOT;
  const series = options.series.filter((one) => one.y.some((y) => y !== null && y !== undefined));
  const box = el("figure", { class: "chart" },
    el("figcaption", {}, options.title, options.note ? el("small", { text: options.note }) : null));
  if (!series.length) {
    box.append(el("p", { class: "quiet", text: "no data" }));
    return box;
  }
  const stacked = series.filter((one) => one.kind === "area");
  const floors = [];
  for (const one of stacked) {
    one.base = one.y.map((_, i) => floors[i] || 0);
    one.y.forEach((y, i) => { floors[i] = (floors[i] || 0) + (y || 0); });
    one.top = floors.slice();
  }
  const known = (list) => (list || []).filter((v) => v !== null && v !== undefined && isFinite(v));
  const xs = series.flatMap((one) => known(one.x).concat(known(one.x2)));
  let [x0, x1] = [Math.min(...xs), Math.max(...xs)];
  if (x0 === x1) { x0 -= 1; x1 += 1; }
  const ys = series.flatMap((one) => known(one.top || one.y).concat(known(one.low), known(one.high), one.kind === "bars" ? [0] : []));
  let [y0, y1] = options.range || [Math.min(...ys), Math.max(...ys)];
  if (!options.range) {
    if (y0 === y1) { const pad = Math.abs(y0) * 0.1 || 1; y0 -= pad; y1 += pad; }
    const ticks = niceTicks(y0, y1, 4);
    const step = ticks.length > 1 ? ticks[1] - ticks[0] : (y1 - y0) / 4;
    y0 = Math.floor(y0 / step + 1e-9) * step;
    y1 = Math.ceil(y1 / step - 1e-9) * step;
  }
  const X = (v) => left + (v - x0) / (x1 - x0) * (width - left - right);
  const Y = (v) => height - bottom - (v - y0) / (y1 - y0) * (height - top - bottom);
  const plot = svg("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": describe(options, series) });
  const yTicks = niceTicks(y0, y1, 5);
  for (const tick of yTicks) {
    plot.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: Y(tick), y2: Y(tick) }),
      svg("text", { x: left - 5, y: Y(tick) + 4, "text-anchor": "end", text: tickText(tick, yTicks) }));
  }
  // The label of the axis stands at its end; ticks keep clear of it.
  const room = options.x ? 9 + 6 * options.x.length : 0;
  const xTicks = niceTicks(x0, x1, 5).filter((t) => (options.real || Number.isInteger(t)) && X(t) < width - right - room);
  for (const tick of xTicks) {
    plot.append(svg("text", { x: X(tick), y: height - 9, "text-anchor": "middle", text: tickText(tick, xTicks) }));
  }
  if (options.x) plot.append(svg("text", { x: width - right, y: height - 9, "text-anchor": "end", class: "xlabel", text: options.x }));
  plot.append(svg("line", { class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }));
  for (const one of series) plot.append(...shapes(one, X, Y, y0));
  const cross = svg("line", { class: "cross", y1: top, y2: height - bottom, visibility: "hidden" });
  plot.append(cross);
  plot.addEventListener("pointermove", (event) => {
    const frame = plot.getBoundingClientRect();
    const at = x0 + ((event.clientX - frame.left) / frame.width * width - left) / (width - left - right) * (x1 - x0);
    const all = series.filter((one) => one.kind !== "bars");
    if (!all.length) return;
    const places = all[0].x;
    let best = 0;
    places.forEach((x, i) => { if (Math.abs(x - at) < Math.abs(places[best] - at)) best = i; });
    cross.setAttribute("x1", X(places[best]));
    cross.setAttribute("x2", X(places[best]));
    cross.setAttribute("visibility", "visible");
    tip.show(readout(options, all, places[best]), event.clientX, event.clientY);
  });
  plot.addEventListener("pointerleave", () => { tip.hide(); cross.setAttribute("visibility", "hidden"); });
  const names = series.filter((one) => one.name);
  box.append(el("div", { class: "legend" }, names.length > 1 || options.legend ? names.map((one) => el("span", { class: "s" + one.color, text: one.name })) : null), plot);
  return box;
}

function describe(options, series) {
  const parts = series.filter((one) => one.name).map((one) => {
    const values = one.y.filter((y) => y !== null && y !== undefined);
    return `${one.name} from ${number(values[0])} to ${number(values[values.length - 1])}`;
  });
  return `${options.title}: ${parts.join("; ")}`;
}

function readout(options, series, at) {
  const rows = series.filter((one) => one.name).map((one) => {
    const place = one.x.indexOf(at);
    const y = place < 0 ? null : one.y[place];
    const range = one.low && place >= 0 ? ` [${number(one.low[place], 1)}, ${number(one.high[place], 1)}]` : "";
    return el("tr", {}, el("th", { text: one.name }), el("td", { class: "num", text: number(y, one.digits ?? 3) + range }));
  });
  return el("table", {}, el("tr", {}, el("th", { text: options.x || "x" }), el("td", { class: "num", text: String(at) })), rows);
}

function shapes(one, X, Y, floor) {
  const color = "s" + one.color;
  const line = (xs, ys) => {
    let path = "", pen = "M";
    xs.forEach((x, i) => {
      if (ys[i] === null || ys[i] === undefined) { pen = "M"; return; }
      path += `${pen}${X(x).toFixed(1)} ${Y(ys[i]).toFixed(1)}`;
      pen = "L";
    });
    return path;
  };
  const between = (lows, highs) => {
    const keep = one.x.map((_, i) => i).filter((i) => highs[i] !== null && highs[i] !== undefined && lows[i] !== null && lows[i] !== undefined);
    const up = keep.map((i) => `${X(one.x[i]).toFixed(1)} ${Y(highs[i]).toFixed(1)}`);
    const down = keep.slice().reverse().map((i) => `${X(one.x[i]).toFixed(1)} ${Y(lows[i]).toFixed(1)}`);
    return "M" + up.concat(down).join("L") + "Z";
  };
  const shape = [];
  if (one.kind === "area") shape.push(svg("path", { class: `area ${color}`, d: between(one.base, one.top) }));
  if (one.low) shape.push(svg("path", { class: `band ${color}`, d: between(one.low, one.high) }));
  if (one.kind === "line" || one.kind === "dash") {
    shape.push(svg("path", { class: `line ${color}${one.kind === "dash" ? " dash" : ""}`, d: line(one.x, one.y) }));
  }
  if (one.kind === "dots" || one.points) {
    one.x.forEach((x, i) => {
      if (one.y[i] !== null && one.y[i] !== undefined) shape.push(svg("circle", { class: `dot ${color}`, cx: X(x), cy: Y(one.y[i]), r: one.points ? 3 : 2.2 }));
    });
  }
  if (one.kind === "bars") {
    one.x.forEach((x, i) => {
      const [from, to, y] = [X(x), X(one.x2[i]), Y(one.y[i])];
      shape.push(svg("rect", { class: `bar ${color}`, x: from + 0.5, width: Math.max(0.5, to - from - 1), y, height: Math.max(0, Y(Math.max(0, floor)) - y) }));
    });
  }
  return shape;
}

// A histogram of values with zero on an edge.
function histogram(title, values, note) {
  const bins = 24;
  const widest = Math.max(1e-6, ...values.map(Math.abs));
  const width = 2 * widest / bins;
  const counts = new Array(bins).fill(0);
  for (const value of values) counts[Math.min(bins - 1, Math.max(0, Math.ceil((value + widest) / width) - 1))]++;
  const side = (from, to) => ({ kind: "bars", x: [], x2: [], y: [], from, to });
  const [closed, open] = [side(0, bins / 2), side(bins / 2, bins)];
  for (const one of [closed, open]) {
    for (let bin = one.from; bin < one.to; bin++) {
      one.x.push(-widest + bin * width);
      one.x2.push(-widest + (bin + 1) * width);
      one.y.push(counts[bin]);
    }
  }
  return chart({ title, note, real: true, legend: true, x: "gain", series: values.length ? [{ ...closed, name: "not better", color: 6 }, { ...open, name: "better", color: 2 }] : [] });
}
