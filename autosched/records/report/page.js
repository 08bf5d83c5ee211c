"use strict";
const report = JSON.parse(document.getElementById("data").textContent);
const tasks = report.tasks;
for (const task of tasks) {  // names and values of columns are kept once for all tasks
  const trials = task.trials ??= { ms: [], s: [], status: [0], mark: [0], knobs: [] };
  const column = ([place, codes]) => ({ name: report.columns[place][0], values: report.columns[place][1], codes });
  Object.assign(trials, { status: column(trials.status), mark: column(trials.mark), knobs: trials.knobs.map(column) });
}
const byId = (id) => document.getElementById(id);
const digits = (value, n = 3) => Math.abs(value) >= 10 ** n ? Math.round(value).toString() : Number(value.toPrecision(n)).toString();
const ms = (value) => value === null ? "–" : digits(value);
const percent = (value) => value === null ? "–" : digits(100 * value, 2) + " %";
const times = (value) => value === null ? "–" : value.toFixed(2) + "×";
const clock = (s) => s >= 3600 ? `${Math.floor(s / 3600)} h ${Math.round(s % 3600 / 60)} min` : s >= 60 ? `${(s / 60).toFixed(1)} min` : `${Math.round(s)} s`;
const many = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;
// plotly reads a little markup in its texts: what comes from records must not be any.
const plain = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
const cut = (text, n) => text.length > n ? text.slice(0, n - 1) + "…" : text;
const short = (text, n = 44) => plain(cut(String(text), n));
const order = (a, b) => typeof a === "number" && typeof b === "number" ? a - b : String(a) < String(b) ? -1 : String(a) > String(b) ? 1 : 0;

function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

// ---- charts

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const isDark = () => getComputedStyle(document.documentElement).colorScheme === "dark";
// From fast to slow: two ramps of one lightness step each, so that the order shows without the hue.
const ramp = () => isDark() ? ["#ffd166", "#f2996e", "#c76a8a", "#8a5a9e", "#4f5785"] : ["#0b3d91", "#2f7fb8", "#5fb0a5", "#a9cfa0", "#d9dccf"];

// Charts are drawn one by one, the page answering in between; the last wish for a place counts.
const waiting = new Map();
function draw(id, ...what) {
  if (!waiting.size) setTimeout(drawNext);
  waiting.delete(id);
  waiting.set(id, what);
  delete document.documentElement.dataset.ready;
}

function drawNext() {
  if (!globalThis.Plotly) return;
  const [[id, what]] = waiting;
  waiting.delete(id);
  drawNow(id, ...what);
  if (waiting.size) setTimeout(drawNext);
  else document.documentElement.dataset.ready = "yes";
}

function drawNow(id, traces, title, extra = {}) {
  const axis = { gridcolor: color("--line"), linecolor: color("--line"), zerolinecolor: color("--line"), automargin: true };
  const form = {
    ...extra, title: { text: title, x: 0, xref: "container", pad: { l: 4 }, font: { size: 15 } }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: color("--ink"), family: getComputedStyle(document.body).fontFamily, size: 12 }, margin: { l: 55, r: 15, t: 42, b: 45 },
    xaxis: { ...axis, ...extra.xaxis }, yaxis: { ...axis, ...extra.yaxis }, showlegend: extra.showlegend ?? false,
    hoverlabel: { bgcolor: color("--panel"), bordercolor: color("--line"), font: { color: color("--ink") } },
  };
  Plotly.react(id, traces, form, { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] });
}

// What charts of progress have along: the number of a trial, or the time of tuning until it, without long pauses.
const byTime = () => byId("axis").value === "time";
const along = (points) => byTime() ? points.map((p) => p[2] / 60) : points.map((p) => p[0]);
const alongTitle = () => ({ title: { text: byTime() ? "minutes of tuning" : "trials" } });
const alongText = () => byTime() ? "%{x:.1f} min" : "%{x} trials";

function showProgress() {
  const points = report.progress;
  byId("progress-figure").hidden = points.length < 2;
  if (points.length < 2) return;
  const what = report.weighted ? "model" : "tasks, each once";
  const line = (found, name, shade) => ({ type: "scatter", mode: "lines", name: short(name, 24), line: { shape: "hv", color: color(shade), width: 2 },
    x: along(found), y: found.map((p) => p[1]), hovertemplate: `${alongText()}: %{y:.4g} ms<extra></extra>` });
  const traces = [line(points, report.compare?.b ?? "", "--accent"), ...(report.compare ? [line(report.compare.progress, report.compare.a, "--second")] : [])];
  draw("progress", traces, `Time of the ${what}, by the best known of each task`,
  { xaxis: alongTitle(), yaxis: { title: { text: "ms" } }, showlegend: traces.length > 1 });
  const [first, last] = [points[0], points.at(-1)];
  byId("progress-text").textContent = `From ${ms(first[1])} ms after ${many(first[0], "trial")}, when each task had a time, to ${ms(last[1])} ms after ${last[0].toLocaleString("en")}; `
    + "single measurements: the summary counts only what the last comparisons confirmed.";
}

function showShares(chosen) {
  const top = chosen.slice(0, 16).reverse();
  const names = top.map((t, i) => `${short(t.name, innerWidth < 700 ? 18 : 52)} (${top.length - i})`);
  const default_ = top.map((t) => 100 * (t.share ?? 0));
  const best = top.map((t, i) => default_[i] / (t.gain ?? 1));
  byId("shares").style.height = `${Math.max(9, 5 + 1.5 * top.length)}rem`;
  draw("shares", [
    { type: "bar", orientation: "h", name: "with the winner", y: names, x: best, marker: { color: color("--accent") }, hovertemplate: "winner: %{x:.1f} %<extra></extra>",
      error_x: { type: "data", array: best.map((share, i) => share * (top[i].noise ?? 0)), color: color("--ink"), thickness: 1.5, width: 3 } },
    { type: "bar", orientation: "h", name: "saved", y: names, x: default_.map((d, i) => d - best[i]), marker: { color: color("--bar") }, hovertemplate: "saved: %{x:.1f} %<extra></extra>" },
  ], report.weighted ? "Share of the model's time" : "Share of the time of all tasks", { barmode: "stack", showlegend: true, bargap: .3,
    legend: { orientation: "h", x: 1, xanchor: "right", y: 1.02, yanchor: "bottom", traceorder: "normal" }, xaxis: { title: { text: "% of the untuned time" } }, yaxis: { type: "category" } });
  byId("shares-text").textContent = (report.weighted ? "Each kernel's default times its calls in the model" : "Each task's default, counted once (give --model for a model's weights)")
    + `; ${top.length} of ${many(chosen.length, "task")} shown.` + (chosen[0] ? ` The largest: ${chosen[0].name}, ${percent(chosen[0].share)}.` : "");
}

function showRoofline() {
  const known = tasks.filter((t) => t.roofline);
  byId("roofline").hidden = !known.length;
  if (!known.length) {
    byId("roofline-text").textContent = report.peaks.length ? "No task's arithmetic is known." : "Not shown: the peaks of the tasks' devices are not known here.";
    return;
  }
  const ends = known.map((t) => t.roofline.intensity), low = Math.min(0.25, ...ends) / 1.5, high = Math.max(64, ...ends) * 1.5;
  const lines = [];
  for (const peak of report.peaks) {
    for (const [i, [name, rate]] of peak.levels.entries()) {
      const knee = peak.gflops / rate;
      const [x0, x1] = [low, Math.min(Math.max(knee, low), high)];
      lines.push({ type: "scatter", mode: "lines", x: [x0, x1], y: [x0 * rate, Math.min(peak.gflops, x1 * rate)], line: { color: color("--soft"), width: 1, dash: ["solid", "dash", "dashdot", "dot"][i % 4] },
        name: `${name} ${digits(rate)} GB/s`, hovertemplate: `${plain(name)}: ${digits(rate)} GB/s<extra></extra>` });
    }
    lines.push({ type: "scatter", mode: "lines", x: [peak.gflops / peak.levels[0][1], high], y: [peak.gflops, peak.gflops], line: { color: color("--ink"), width: 2 },
      name: `${digits(peak.gflops)} GFLOP/s, ${many(peak.threads, "thread")}`, hovertemplate: `${digits(peak.gflops)} GFLOP/s on ${many(peak.threads, "thread")}<extra></extra>` });
  }
  lines.push({ type: "scatter", mode: "markers", name: "tasks", x: ends, y: known.map((t) => t.roofline.gflops), text: known.map((t) => `${short(t.name, 70)}<br>${ms(t.best_ms)} ms, ${percent(t.roofline.share)} of what ${plain(t.roofline.bound)} allows`),
    marker: { color: color("--accent"), size: known.map((t) => 8 + 26 * Math.sqrt(t.share ?? 0)), opacity: .8, line: { color: color("--paper"), width: 1 } },
    hovertemplate: "%{text}<br>%{y:.3g} GFLOP/s at %{x:.3g} FLOP/byte<extra></extra>" });
  draw("roofline", lines, "Best time of each task against the device's peaks", { showlegend: true, legend: { font: { size: 11 } },
    xaxis: { type: "log", title: { text: "FLOP per byte of its arguments" } }, yaxis: { type: "log", title: { text: "GFLOP/s" } } });
  const ranked = [...known].sort((a, b) => (b.share ?? 0) - (a.share ?? 0)), first = ranked[0];
  byId("roofline-text").textContent = `${known.length} of ${many(tasks.length, "task")}: arithmetic as the operator names it (Winograd may pass the peak), each argument read or written once; `
    + `the larger, the more of the time. The heaviest is at ${percent(first.roofline.share)} of what ${first.roofline.bound} allows.`;
}

// ---- tables

// A table whose columns sort by a button in their head. A column is {title, value(row), text(value), number, bar, press(row)}.
function makeTable(table, label, { page = Infinity, count, current, mark } = {}) {
  let columns = [], rows = [], chosen = [], by = -1, ascending = true, shown = page;
  const head = element("thead"), body = element("tbody");
  table.replaceChildren(element("caption", label), head, body);
  const cell = (row, column) => {
    const found = column.value(row), text = found === null || found === undefined ? "–" : column.text ? column.text(found) : String(found);
    const made = element("td", column.press ? undefined : text, column.number ? { class: column.bar ? "number bar" : "number" } : {});
    if (column.bar && typeof found === "number") made.style.setProperty("--share", `${100 * found / column.bar}%`);
    if (column.press) {
      const button = element("button", text, { type: "button" });
      button.addEventListener("click", () => column.press(row));
      made.append(button);
    }
    return made;
  };
  const show = () => {
    const found = by < 0 ? chosen : [...chosen].sort((a, b) => {
      const [x, y] = [columns[by].value(a) ?? null, columns[by].value(b) ?? null];
      return x === null || y === null ? (x === null) - (y === null) : order(x, y) * (ascending ? 1 : -1);
    });
    body.replaceChildren(...found.slice(0, shown).map((row) => {
      const line = element("tr", undefined, { ...(mark?.(row) ? { class: mark(row) } : {}), ...(current?.(row) ? { "aria-current": "true" } : {}) });
      line.append(...columns.map((column) => cell(row, column)));
      return line;
    }));
    count?.(Math.min(shown, found.length), chosen.length, rows.length);
  };
  const fill = (newColumns, newRows) => {
    [columns, rows, chosen, by, shown] = [newColumns, newRows, newRows, -1, page];
    const line = element("tr");
    columns.forEach(({ title, number }, i) => {
      const made = element("th", undefined, { scope: "col", ...(number ? { class: "number" } : {}) }), button = element("button", title, { type: "button" });
      button.addEventListener("click", () => {
        ascending = by === i ? !ascending : true;
        by = i;
        for (const other of line.children) other.removeAttribute("aria-sort");
        made.setAttribute("aria-sort", ascending ? "ascending" : "descending");
        show();
      });
      made.append(button);
      line.append(made);
    });
    head.replaceChildren(line);
    show();
  };
  return { fill, show, filter: (keep) => { chosen = rows.filter(keep); shown = page; show(); }, more: () => { shown += page; show(); }, rows: () => chosen, columns: () => columns };
}

const failed = (task) => Object.values(task.failures).reduce((sum, n) => sum + n, 0);
let selected = tasks[0];

const TASK_COLUMNS = [
  { title: "Task", value: (t) => t.name, press: (t) => { select(t); byId("task").scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" }); byId("chosen").focus({ preventScroll: true }); } },
  { title: "Share", value: (t) => t.share, text: percent, number: true, bar: Math.max(...tasks.map((t) => t.share ?? 0)) },
  ...(report.weighted ? [{ title: "×", value: (t) => t.weight, number: true }] : []),
  ...(new Set(tasks.map((t) => t.device)).size > 1 ? [{ title: "Device", value: (t) => `${t.device} ${t.isa}` }] : []),
  ...(new Set(tasks.map((t) => t.threads)).size > 1 ? [{ title: "Threads", value: (t) => t.threads, number: true }] : []),
  { title: "Default ms", value: (t) => t.default_ms, text: ms, number: true },
  { title: "Best ms", value: (t) => t.best_ms, text: ms, number: true },
  { title: "Gain", value: (t) => t.gain, text: times, number: true },
  { title: "± (noise)", value: (t) => t.noise, text: percent, number: true },
  ...(tasks.some((t) => t.roofline) ? [{ title: "Of peak", value: (t) => t.roofline?.share ?? null, text: percent, number: true }] : []),
  { title: "Trials", value: (t) => t.n, number: true },
  { title: "Failed", value: failed, number: true },
  { title: "May gain", value: (t) => t.expected, text: percent, number: true },
];
const taskTable = makeTable(byId("task-table"), "Tasks, those with the largest share first", {
  page: 400, current: (t) => t === selected,
  count: (shown, chosen, all) => {
    byId("task-count").textContent = (chosen === all ? many(all, "task") : `${chosen} of ${many(all, "task")}`) + (shown < chosen ? `, ${shown} shown: filter or sort to see the others` : "");
  },
});
const trialTable = makeTable(byId("trial-table"), "Trials of the task in the order they were measured", {
  page: 100, mark: (r) => r.mark === "winner" ? "winner" : "",
  count: (shown, chosen, all) => {
    byId("trial-count").textContent = `${shown.toLocaleString("en")} of ${many(chosen, "trial")} shown` + (all < selected.n ? `; the page holds ${all.toLocaleString("en")} of ${selected.n.toLocaleString("en")}, the faster ones` : "");
    byId("more").hidden = shown >= chosen;
  },
});

// ---- one task

// Trials are kept by columns, each value once; rows are made for the task that is looked at.
function rowsOf(task) {
  const t = task.trials, code = (codes, i) => codes === undefined ? 0 : typeof codes === "string" ? parseInt(codes[i], 36) : codes[i];
  const at = (column, i) => column.values[code(column.codes, i)];
  return t.ms.map((ms, i) => ({ n: t.n ? t.n[i] : i + 1, ms, status: at(t.status, i), s: t.s[i], mark: at(t.mark, i), knobs: t.knobs.map((knob) => at(knob, i)) }));
}

function showConvergence(task) {
  const traces = [{ type: "scatter", mode: "lines", line: { shape: "hv", color: color("--accent"), width: 2.5 }, x: along(task.steps), y: task.steps.map((s) => s[1]), hovertemplate: `best after ${alongText()}: %{y:.4g} ms<extra></extra>` }];
  if (task.confirmed && task.steps.length && task.best_ms !== null) {
    const bar = { type: "data", array: [task.best_ms * (task.noise ?? 0)], color: color("--second"), thickness: 1.5, width: 5 };
    traces.push({ type: "scatter", mode: "markers", x: along([task.steps.at(-1)]), y: [task.best_ms], error_y: bar, marker: { color: color("--second"), size: 8, symbol: "diamond" },
      hovertemplate: `winner, compared with the default: %{y:.4g} ms ± ${percent(task.noise ?? 0)}<extra></extra>` });
  }
  const good = task.rows.filter((r) => r.ms !== null), ceiling = 2.5 * (task.default_ms ?? task.best_ms ?? 0);
  const near = good.filter((r) => r.ms <= ceiling);
  traces.unshift({ type: "scatter", mode: "markers", x: along(near.map((r) => [r.n, r.ms, r.s])), y: near.map((r) => r.ms), text: near.map((r) => `trial ${r.n}`), marker: { color: color("--soft"), size: 4, opacity: .5 }, hovertemplate: "%{text}: %{y:.4g} ms<extra></extra>" });
  const shapes = task.default_ms === null ? [] : [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: task.default_ms, y1: task.default_ms, line: { color: color("--second"), width: 1.5, dash: "dash" } }];
  const annotations = task.default_ms === null ? [] : [{ xref: "paper", x: 1, y: task.default_ms, text: "default", showarrow: false, xanchor: "right", yanchor: "bottom", font: { color: color("--second") } }];
  draw("convergence", traces, "Convergence", { shapes, annotations, xaxis: alongTitle(), yaxis: { title: { text: "ms" } } });
  const last = task.steps.at(-1), away = good.length - near.length;
  byId("convergence-text").textContent = !last ? "Nothing has worked." : `The best single one of ${many(last[0], "measurement")} took ${ms(last[1])} ms. `
    + (task.confirmed ? `Compared at the end: the winner ${ms(task.best_ms)} ms, the default ${ms(task.default_ms)} ms.` : `The default took ${ms(task.default_ms)} ms.`)
    + (away > 0 ? ` ${many(away, "slower trial")} not drawn.` : "");
}

function showImportance(task) {
  const ranked = task.importance.slice(0, 12).reverse();
  draw("importance", [{ type: "bar", orientation: "h", y: ranked.map((k) => short(k[0], 24)), x: ranked.map((k) => 100 * k[1]), marker: { color: color("--accent") }, hovertemplate: "%{y}: %{x:.0f} %<extra></extra>" }],
    "Knob importance", { bargap: .35, xaxis: { range: [0, 100], title: { text: "% of the variance" } }, yaxis: { type: "category" } });
  byId("importance-text").textContent = (task.importance.length ? task.importance.slice(0, 3).map(([name, share]) => `${name} ${percent(share)}`).join(", ") + ". " : "Too few times. ") + `How computed: ${report.importance_how}.`;
}

function showParallel(task) {
  const good = task.rows.filter((r) => r.ms !== null).sort((a, b) => a.ms - b.ms).slice(0, 200);
  const rank = new Map(task.importance.map(([name], i) => [name, i]));
  const axes = task.trials.knobs.map((knob, i) => ({ i, name: knob.name, values: [...new Set(good.map((r) => r.knobs[i]))].filter((v) => v !== null && v !== undefined).sort(order) }))
    .filter((axis) => axis.values.length > 1).sort((a, b) => (rank.get(a.name) ?? 99) - (rank.get(b.name) ?? 99)).slice(0, 10);
  const place = (axis, value) => value === null || value === undefined ? null : axis.values.indexOf(value) / (axis.values.length - 1);
  // A group of lines in one trace, with a gap after each line.
  const lines = (rows, look) => ({ type: "scatter", mode: "lines", connectgaps: false, ...look,
    x: rows.flatMap(() => [...axes.map((_, i) => i), null]), y: rows.flatMap((r) => [...axes.map((a) => place(a, r.knobs[a.i])), null]),
    text: rows.flatMap((r) => [...axes.map((a) => `${short(a.name)} = ${short(r.knobs[a.i])}<br>${ms(r.ms)} ms`), ""]), hovertemplate: "%{text}<extra></extra>" });
  const palette = ramp(), groups = palette.map((_, g) => good.filter((_, i) => Math.min(4, Math.floor(5 * i / good.length)) === g));
  const traces = groups.map((rows, g) => lines(rows, { name: rows.length ? `${ms(rows[0].ms)}–${ms(rows.at(-1).ms)} ms` : "", line: { color: palette[g], width: g === 0 ? 1.8 : 1 }, opacity: .75 })).filter((t) => t.x.length).reverse();
  const pick = (mark) => good.filter((r) => r.mark === mark).slice(-1);
  if (pick("default").length) traces.push(lines(pick("default"), { name: "default", line: { color: color("--second"), width: 2.5, dash: "dash" } }));
  if (pick("winner").length) traces.push(lines(pick("winner"), { name: "winner", line: { color: color("--good"), width: 3.5 } }));
  const labels = axes.flatMap((axis, i) => axis.values.filter((_, k, all) => all.length <= 9 || k % Math.ceil(all.length / 8) === 0 || k === all.length - 1)
    .map((value) => ({ x: i, y: place(axis, value), text: short(value, 14), showarrow: false, xanchor: "right", xshift: -5, font: { size: 10.5, color: color("--ink") }, bgcolor: color("--paper"), opacity: .85 })));
  draw("parallel", traces, "Parallel coordinates", { annotations: labels, showlegend: true, legend: { traceorder: "reversed", font: { size: 11 } }, hovermode: "closest",
    xaxis: { tickvals: axes.map((_, i) => i), ticktext: axes.map((a) => short(a.name, 18)), range: [-0.45, Math.max(1, axes.length) - 0.7], zeroline: false },
    yaxis: { showticklabels: false, showgrid: false, zeroline: false, range: [-0.06, 1.06] } });
  byId("parallel-text").textContent = axes.length ? `The ${many(good.length, "fastest trial")}, a line each, coloured by time; knobs from left to right by importance.` : "No knob had two values among what worked.";
}

function showPairs(task) {
  const [x, y] = ["knob-x", "knob-y"].map((id) => task.trials.knobs.findIndex((knob) => knob.name === byId(id).value));
  const cells = new Map(), text = (value) => value === null || value === undefined ? "none" : String(value), seen = [new Map(), new Map()];
  for (const row of task.rows) {
    if (row.ms === null || x < 0 || y < 0) continue;
    const [a, b] = [text(row.knobs[x]), text(row.knobs[y])], key = JSON.stringify([a, b]), cell = cells.get(key) ?? { best: Infinity, n: 0 };
    cells.set(key, { best: Math.min(cell.best, row.ms), n: cell.n + 1 });
    seen[0].set(a, row.knobs[x]);
    seen[1].set(b, row.knobs[y]);
  }
  const [xs, ys] = seen.map((values) => [...values].sort((a, b) => order(a[1], b[1])).map(([name]) => name));
  const get = (what) => ys.map((b) => xs.map((a) => cells.get(JSON.stringify([a, b]))?.[what] ?? null));
  const small = xs.length * ys.length <= 90 && xs.length <= 10, palette = ramp();
  draw("pairs", [{ type: "heatmap", x: xs.map((v) => short(v, 16)), y: ys.map((v) => short(v, 16)), z: get("best"), customdata: get("n"), xgap: 2, ygap: 2,
    colorscale: palette.map((c, i) => [i / (palette.length - 1), c]), colorbar: { title: { text: "ms" }, thickness: 12 }, texttemplate: small ? "%{z:.3g}" : undefined,
    hovertemplate: "%{x}, %{y}: best %{z:.4g} ms of %{customdata} trials<extra></extra>", hoverongaps: false }], "Pairs of knobs",
  { xaxis: { type: "category", title: { text: short(byId("knob-x").value, 30) }, showgrid: false }, yaxis: { type: "category", title: { text: short(byId("knob-y").value, 30) }, showgrid: false } });
  byId("pairs-text").textContent = `Best time in ms of each pair of values; empty where nothing was measured or nothing worked. ${cells.size} of ${xs.length * ys.length} pairs.`;
}

function showFailures(task) {
  const kinds = Object.entries(task.failures).sort((a, b) => b[1] - a[1]);
  byId("failure-part").hidden = !kinds.length;
  if (kinds.length) {
    draw("failures", [{ type: "bar", x: kinds.map((k) => plain(k[0])), y: kinds.map((k) => k[1]), width: 0.5 * Math.min(1, kinds.length / 4), marker: { color: color("--second") }, hovertemplate: "%{x}: %{y}<extra></extra>" }], "Failures by kind",
      { xaxis: { type: "category" }, yaxis: { title: { text: "trials" }, tickformat: "d" } });
  }
  byId("failures-text").textContent = kinds.length ? `${failed(task)} of ${many(task.n, "trial")}: ${kinds.map(([k, n]) => `${n} ${k}`).join(", ")}.` : "";
  byId("reasons").replaceChildren(...task.reasons.map(([kind, text, n]) => element("li", `${n} × ${kind}${text ? ": " + text : ""}`)));
}

function showSources(task) {
  const texts = Object.entries(task.sources);
  byId("sources-part").hidden = !texts.length;
  byId("sources").replaceChildren(...texts.map(([title, text]) => {
    const part = element("div");
    part.append(element("h4", title), element("pre", text, { tabindex: "0", "aria-label": title }));
    return part;
  }));
}

function showTrials(task) {
  const columns = [
    { title: "#", value: (r) => r.n, number: true }, { title: "ms", value: (r) => r.ms, text: ms, number: true },
    { title: "over best", value: (r) => r.ms === null || !task.best_ms ? null : r.ms / task.best_ms, text: times, number: true },
    { title: "after s", value: (r) => r.s, number: true }, { title: "status", value: (r) => r.status }, { title: "mark", value: (r) => r.mark, text: (v) => v },
    ...task.trials.knobs.map((knob, i) => ({ title: knob.name, value: (r) => r.knobs[i] ?? null, number: knob.values.every((v) => v === null || typeof v === "number") })),
  ];
  trialTable.fill(columns, task.rows);
  filterTrials();
}

// A condition as --where takes it, on one trial: true, false, or null where the trial has no such value.
// Fields are those of --where that a trial of this page has, and the names of knobs. Throws what is wrong with the text.
function parseWhere(text, task) {
  const tokens = [], token = /\s*(?:(!=|<=|>=|[=<>~()])|"([^"]*)"|'([^']*)'|([^\s"'=<>!~()]+))/y;
  for (; text.slice(token.lastIndex).trim();) {
    const start = token.lastIndex, found = token.exec(text);
    if (!found) throw `cannot read "${text.slice(start).trim().slice(0, 20)}"`;
    tokens.push([found[1] ?? found[4] ?? found[2] ?? found[3], found[1] === undefined && found[4] === undefined]);
  }
  const knobs = task.trials.knobs.map((knob) => knob.name), isDefault = new Set(task.rows.filter((r) => r.mark === "default").map((r) => JSON.stringify(r.knobs)));
  const fields = {
    ms: (r) => r.ms, threads: () => task.threads, status: (r) => r.status, workload: () => task.name, device: () => task.device, family: () => task.isa,
    winner: (r) => r.mark === "winner", default: (r) => r.mark === "default" || isDefault.has(JSON.stringify(r.knobs)),
  };
  let at = 0;
  const take = (word) => at < tokens.length && tokens[at][0] === word && !tokens[at][1] && ++at > 0;
  const all = (values) => values.includes(false) ? false : values.includes(null) ? null : true;
  const not = (value) => value === null ? null : !value;
  const any = () => { const parts = [both()]; while (take("or")) parts.push(both()); return (r) => not(all(parts.map((part) => not(part(r))))); };
  const both = () => { const parts = [one()]; while (take("and")) parts.push(one()); return (r) => all(parts.map((part) => part(r))); };
  const one = () => {
    if (take("not")) { const part = one(); return (r) => not(part(r)); }
    if (take("(")) { const part = any(); if (!take(")")) throw "a parenthesis is not closed"; return part; }
    if (tokens.length - at < 3) throw "it ends too early";
    const [[name], [sign, quoted], [value]] = tokens.slice(at, at += 3);
    const place = knobs.indexOf(name), read = fields[name] ?? (place >= 0 ? (r) => r.knobs[place] ?? null : null);
    if (!read) throw `no field "${name}"; fields: ${[...Object.keys(fields), ...knobs].join(", ")}`;
    if (quoted || !["!=", "<=", ">=", "=", "<", ">", "~"].includes(sign)) throw `"${sign}" is no operator`;
    if (name === "winner" || name === "default") {
      if (!["yes", "no", "true", "false"].includes(value) || !["=", "!="].includes(sign)) throw `${name} is yes or no`;
      return (r) => (read(r) === ["yes", "true"].includes(value)) === (sign === "=");
    }
    const isNumber = name === "ms" || name === "threads", number = Number(value);
    if (isNumber && (Number.isNaN(number) || sign === "~")) throw `${name} is a number`;
    if (sign === "~" || name === "workload" || name === "device") return (r) => read(r) === null ? null : String(read(r)).includes(value) === (sign !== "!=");
    if ("<=>=".includes(sign) && sign !== "=" && !isNumber && place < 0) throw `${name} is text: compare it with =, != or ~`;
    return (r) => {
      const found = read(r);
      if (found === null) return null;
      const order_ = typeof found === "number" ? found - number : String(found) === value ? 0 : String(found) < value ? -1 : 1;
      return { "=": order_ === 0, "!=": order_ !== 0, "<": order_ < 0, "<=": order_ <= 0, ">": order_ > 0, ">=": order_ >= 0 }[sign];
    };
  };
  const condition = any();
  if (at < tokens.length) throw `"${tokens[at][0]}" after the end`;
  return (r) => condition(r) === true;
}

// A condition, or words that must all be there, of which "knob=value" means exactly that value.
function filterTrials() {
  const text = byId("trial-filter").value, words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const names = selected.trials.knobs.map((knob) => knob.name.toLowerCase());
  let keep = (r) => words.every((word) => {
    const [name, value] = word.split("="), i = names.indexOf(name);
    return value !== undefined && i >= 0 ? String(r.knobs[i]).toLowerCase() === value : [r.status, r.mark, ...r.knobs].some((v) => String(v ?? "").toLowerCase().includes(word));
  }), problem = "";
  if (words.some((word) => /[=<>~()]/.test(word))) {
    try { keep = parseWhere(text, selected); } catch (error) {
      if (typeof error !== "string") throw error;
      problem = words.some((word) => /[<>~()!]/.test(word) || ["and", "or", "not"].includes(word)) ? error : "";
    }
  }
  trialTable.filter(problem ? () => true : keep);
  if (problem) byId("trial-count").textContent = `Not filtered: ${problem}`;
}

function saveTrials() {
  const columns = trialTable.columns(), quote = (value) => `"${String(value ?? "").replaceAll('"', '""')}"`;
  const lines = [columns.map((c) => quote(c.title)), ...trialTable.rows().map((row) => columns.map((c) => quote(c.value(row))))].map((cells) => cells.join(","));
  const link = element("a", undefined, { download: "trials.csv", href: URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "text/csv" })) });
  link.click();
  URL.revokeObjectURL(link.href);
}

function showTask() {
  const task = selected;
  if (!task) return;
  task.rows ??= rowsOf(task);
  const verdict = task.winner === null ? "No winner has been named." : `Winner: ${task.winner}` + (task.gain === null ? "." : task.gain > 1 ? `, ${task.gain.toFixed(2)} times as fast as the default.` : ": nothing measured beats the default beyond doubt.")
    + (failed(task) ? "" : " No trial has failed.");
  const left = task.rows.length < task.n ? ` ${task.rows.length.toLocaleString("en")} of its ${many(task.n, "trial")} are in this page; autosched logs show has all.` : "";
  byId("winner").textContent = verdict + left;
  const at = tasks.indexOf(task);
  byId("previous").disabled = at <= 0;
  byId("next").disabled = at >= tasks.length - 1;
  showConvergence(task);
  showImportance(task);
  showFailures(task);
  const names = task.importance.map((k) => k[0]), others = task.trials.knobs.map((knob) => knob.name).filter((name) => !names.includes(name));
  for (const [id, rank] of [["knob-x", 0], ["knob-y", 1]]) {
    const before = byId(id).value;
    byId(id).replaceChildren(...[...names, ...others].map((name) => element("option", cut(name, 60), { value: name })));
    if (task === shownTask && before) byId(id).value = before;
    else byId(id).selectedIndex = Math.min(rank, names.length + others.length - 1);
  }
  showParallel(task);
  showPairs(task);
  showSources(task);
  if (task !== shownTask) showTrials(task);
  shownTask = task;
}
let shownTask = null;

function select(task) {
  selected = task;
  byId("chosen").value = String(tasks.indexOf(task));
  taskTable.show();
  showTask();
}

// ---- the whole page

function wholeChange({ low, high, before_ms, after_ms }) {
  if (low === null) return "the best that is known are the defaults";
  const change = 100 * (after_ms / before_ms - 1), half = 50 * (high - low);
  return low <= 1 && high >= 1 ? `no difference found at ± ${half.toFixed(1)} %` : `${change > 0 ? "+" : "−"}${Math.abs(change).toFixed(1)} %, ± ${half.toFixed(1)}`;
}

function showSummary() {
  const sum = (of) => tasks.reduce((total, task) => total + of(task), 0);
  const known = tasks.filter((task) => task.default_ms !== null);
  const before = known.reduce((total, task) => total + task.default_ms * task.weight, 0);
  const after = known.reduce((total, task) => total + task.default_ms / (task.gain ?? 1) * task.weight, 0);
  const winners = tasks.filter((t) => t.gain !== null && t.gain > 1).length;
  const missing = report.unmeasured + tasks.length - known.length, single = tasks.filter((t) => !t.confirmed).length;
  const apart = (missing ? `; ${many(missing, "kernel")} not measured, and not in it` : "") + (single ? `; ${many(single, "task")} by single trials` : "");
  const whole = report.in_model, noises = tasks.map((t) => t.noise).filter((noise) => noise !== null).sort(order);
  const facts = [
    ...(whole ? [["Model, whole runs", `${ms(whole.before_ms)} → ${ms(whole.after_ms)} ms`, `${wholeChange(whole)}; every kernel in it, tuned or not`]] : []),
    [report.weighted ? "Model, sum of its kernels" : "All tasks, each once", before ? `${ms(before)} → ${ms(after)} ms` : "–", before ? `${times(before / after)} as fast as untuned` + apart : ""],
    ["Tasks", tasks.length.toLocaleString("en"), `${winners} better than their default`],
    ["Trials", sum((t) => t.n).toLocaleString("en"), `${sum(failed).toLocaleString("en")} failed`],
    ...(noises.length ? [["Noise", `± ${percent(noises[noises.length >> 1])}`, `of winners against defaults, the median; ± ${percent(noises.at(-1))} at most`]] : []),
    ["Time spent", clock(sum((t) => t.spent_s)), "measuring and searching"],
  ];
  const devices = [...new Set(tasks.map((t) => `${t.device} (${t.isa})`))], threads = [...new Set(tasks.map((t) => t.threads))].sort(order);
  byId("title").textContent = report.model ? `Tuning report: ${report.model}` : "Tuning report";
  byId("origin").textContent = [devices.length > 3 ? many(devices.length, "device") : devices.join(", "), threads.length ? `threads: ${threads.join(", ")}` : "", report.origin, `made ${report.made}`, `autosched ${report.version}`].filter(Boolean).join(" · ");
  const versions = Object.entries(report.versions).map(([name, found]) => `${name} ${found.join(" and ")}`);
  byId("versions").textContent = versions.length ? `measured with ${versions.join(", ")}` : "";
  byId("summary").replaceChildren(...facts.map(([name, value, more]) => {
    const part = element("div"), number = element("dd", value);
    number.append(element("small", more));
    part.append(element("dt", name), number);
    return part;
  }));
}

function showCompare() {
  const { a, b, rows } = report.compare;
  const n = (verdict) => rows.filter((r) => r.verdict === verdict).length;
  byId("compare").hidden = false;
  byId("compare-text").textContent = `A: ${a}. B: ${b}, which the rest of this page shows. B is faster on ${many(n("faster"), "task")}, slower on ${n("slower")}, the same on ${n("same")}; `
    + `${n("only in A")} only in A, ${n("only in B")} only in B. Times are those of the winners, each measured in its own tuning.`;
  const devices = rows.some((r) => r.device_a && r.device_b && r.device_a !== r.device_b);
  makeTable(byId("compare-table"), "Winners of A and B in pairs").fill([
    { title: "Task", value: (r) => r.name }, { title: "Threads", value: (r) => r.threads, number: true },
    ...(devices ? [{ title: "Device A", value: (r) => r.device_a }, { title: "Device B", value: (r) => r.device_b }] : []),
    { title: "A ms", value: (r) => r.a_ms, text: ms, number: true }, { title: "B ms", value: (r) => r.b_ms, text: ms, number: true },
    { title: "B is", value: (r) => r.speedup, text: times, number: true }, { title: "Verdict", value: (r) => r.verdict },
  ], rows);
}

function filterTasks() {
  const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  taskTable.filter((t) => words.every((word) => `${t.name} ${t.device} ${t.isa}`.toLowerCase().includes(word)));
  showShares(taskTable.rows());
}

const THEMES = ["system", "light", "dark"];
let theme = 0;
function showCharts() {
  if (tasks.length) for (const show of [showProgress, () => showShares(taskTable.rows()), showRoofline, showTask]) show();
  else document.documentElement.dataset.ready = "yes";
}
byId("theme").addEventListener("click", () => {
  theme = (theme + 1) % THEMES.length;
  if (theme) document.documentElement.dataset.theme = THEMES[theme];
  else delete document.documentElement.dataset.theme;
  byId("theme").textContent = `Theme: ${THEMES[theme]}`;
  showCharts();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showCharts);

byId("chosen").replaceChildren(...tasks.map((t, i) => element("option", `${i + 1}. ${cut(t.name, 110)} (${many(t.threads, "thread")})`, { value: String(i) })));
byId("filter").addEventListener("input", filterTasks);
byId("trial-filter").addEventListener("input", filterTrials);
byId("chosen").addEventListener("change", () => select(tasks[Number(byId("chosen").value)]));
byId("previous").addEventListener("click", () => select(tasks[tasks.indexOf(selected) - 1]));
byId("next").addEventListener("click", () => select(tasks[tasks.indexOf(selected) + 1]));
byId("more").addEventListener("click", trialTable.more);
byId("save").addEventListener("click", saveTrials);
byId("axis").addEventListener("change", () => { showProgress(); if (selected) showConvergence(selected); });
for (const id of ["knob-x", "knob-y"]) byId(id).addEventListener("change", () => showPairs(selected));
showSummary();
if (report.compare) showCompare();
taskTable.fill(TASK_COLUMNS, tasks);
for (const id of tasks.length ? [] : ["tasks", "roof", "task", "progress-figure"]) byId(id).hidden = true;
performance.mark("usable");
