"use strict";
const report = JSON.parse(document.getElementById("data").textContent);
const tasks = report.tasks;
const byId = (id) => document.getElementById(id);
const ms = (value) => value === null ? "–" : Number(value.toPrecision(3)).toString();
const percent = (value) => value === null ? "–" : (100 * value).toFixed(0) + " %";
// plotly reads a little markup in its texts: what comes from records must not be any.
const plain = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
const short = (text) => plain(text.length > 60 ? text.slice(0, 57) + "…" : text);

function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function layout(title, extra = {}) {
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  const axis = { gridcolor: color("--line"), zerolinecolor: color("--line"), automargin: true };
  const made = {
    title: { text: title, x: 0, font: { size: 15 } }, paper_bgcolor: color("--paper"), plot_bgcolor: color("--paper"),
    font: { color: color("--ink") }, margin: { l: 60, r: 20, t: 40, b: 50 }, xaxis: { ...axis, ...extra.xaxis },
    yaxis: { ...axis, ...extra.yaxis }, colorway: [color("--accent")], showlegend: false,
  };
  return { ...extra, ...made };
}

function draw(id, traces, form) {
  Plotly.react(id, traces, form, { responsive: true, displaylogo: false });
}

// A table whose columns sort by a button in their head; `columns` are [title, value of a row, text of a value].
function fillTable(table, columns, rows, label) {
  let sorted = -1, ascending = true;
  const head = element("tr"), body = element("tbody");
  const show = () => {
    const order = sorted < 0 ? rows : [...rows].sort((a, b) => {
      const [x, y] = [columns[sorted][1](a), columns[sorted][1](b)];
      if (x === null || y === null) return (x === null) - (y === null);
      return (x < y ? -1 : x > y ? 1 : 0) * (ascending ? 1 : -1);
    });
    body.replaceChildren(...order.map((row) => {
      const line = element("tr");
      for (const [, value, text] of columns) {
        const found = value(row);
        line.append(element("td", text ? text(found) : found === null ? "–" : String(found),
          typeof found === "number" ? { class: "number" } : {}));
      }
      return line;
    }));
  };
  columns.forEach(([title], i) => {
    const cell = element("th", undefined, { scope: "col" }), button = element("button", title, { type: "button" });
    button.addEventListener("click", () => {
      ascending = sorted === i ? !ascending : true;
      sorted = i;
      for (const other of head.children) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      show();
    });
    cell.append(button);
    head.append(cell);
  });
  const top = element("thead");
  top.append(head);
  table.replaceChildren(element("caption", label, { class: "skip" }), top, body);
  show();
}

function failed(task) {
  return Object.values(task.failures).reduce((sum, n) => sum + n, 0);
}

function showSummary() {
  const sum = (of) => tasks.reduce((total, task) => total + of(task), 0);
  const known = tasks.filter((task) => task.default_ms !== null && task.best_ms !== null);
  const before = known.reduce((total, task) => total + task.default_ms * task.weight, 0);
  const after = known.reduce((total, task) => total + (task.gain ? task.default_ms / task.gain : task.default_ms) * task.weight, 0);
  const facts = [
    ["Tasks", tasks.length], ["Trials", sum((t) => t.n)], ["Failed", sum(failed)],
    ["Time spent", (sum((t) => t.spent_s) / 60).toFixed(1) + " min"],
    [report.weighted ? "Model, all tasks" : "All tasks, each once", `${ms(before)} ms → ${ms(after)} ms`],
  ];
  byId("origin").textContent = report.origin;
  byId("summary").replaceChildren(...facts.flatMap(([name, value]) => [element("dt", name), element("dd", String(value))]));
}

const COLUMNS = [
  ["Task", (t) => t.name], ["Device", (t) => `${t.device} ${t.isa}`], ["Threads", (t) => t.threads],
  ["Share", (t) => t.share, percent], ["Default ms", (t) => t.default_ms, ms], ["Best ms", (t) => t.best_ms, ms],
  ["Gain", (t) => t.gain, (v) => v === null ? "–" : v.toFixed(2) + "×"], ["Trials", (t) => t.n],
  ["Failed", failed], ["To gain", (t) => t.expected, percent],
];

function showTasks() {
  const wanted = byId("filter").value.toLowerCase();
  const chosen = tasks.filter((t) => `${t.name} ${t.device} ${t.isa}`.toLowerCase().includes(wanted));
  fillTable(byId("task-table"), COLUMNS, chosen, "Tasks, those with the largest share first");
  const top = chosen.slice(0, 20).reverse();
  const names = top.map((t, i) => `${top.length - i} ${short(t.name)}`);
  draw("shares", [{ type: "bar", orientation: "h", y: names, x: top.map((t) => 100 * (t.share || 0)) }],
    layout("Share of the time", { xaxis: { title: { text: "%" } } }));
  byId("shares-text").textContent = (report.weighted ? "Share of the model's time by its kernels' defaults"
    : "Share of the time of all tasks' defaults, each counted once") + `; ${top.length} of ${chosen.length} tasks.`;
}

function showParallel(task) {
  const good = task.rows.filter((r) => r[0] !== null).sort((a, b) => a[0] - b[0]).slice(0, 60);
  const axes = task.knobs.map((name, i) => {
    const values = [...new Set(good.map((r) => r[3 + i]))];
    values.sort((a, b) => typeof a === "number" && typeof b === "number" ? a - b : String(a) < String(b) ? -1 : 1);
    return { name, values };
  }).filter((axis) => axis.values.length > 1);
  const place = (axis, value) => axis.values.indexOf(value) / (axis.values.length - 1);
  const traces = good.map((row, rank) => ({
    type: "scatter", mode: "lines+markers", opacity: 1 - 0.85 * rank / Math.max(1, good.length - 1),
    line: { width: rank === 0 ? 3 : 1 }, x: axes.map((a) => short(a.name)),
    y: axes.map((a) => place(a, row[3 + task.knobs.indexOf(a.name)])),
    text: axes.map((a) => `${short(a.name)} = ${plain(row[3 + task.knobs.indexOf(a.name)])}`),
    hovertemplate: `%{text}<br>${ms(row[0])} ms<extra></extra>`,
  })).reverse();
  draw("parallel", traces, layout("Parallel coordinates", { yaxis: { showticklabels: false } }));
}

function showPairs(task) {
  const [x, y] = [byId("knob-x").value, byId("knob-y").value].map((name) => 3 + task.knobs.indexOf(name));
  const best = new Map(), values = [new Set(), new Set()];
  for (const row of task.rows) {
    if (row[0] === null || x < 3 || y < 3) continue;
    const key = JSON.stringify([String(row[x]), String(row[y])]);
    best.set(key, Math.min(best.get(key) ?? Infinity, row[0]));
    values[0].add(String(row[x]));
    values[1].add(String(row[y]));
  }
  const sorted = values.map((set) => [...set].sort((a, b) => Number(a) - Number(b) || (a < b ? -1 : 1)));
  const z = sorted[1].map((b) => sorted[0].map((a) => best.get(JSON.stringify([a, b])) ?? null));
  draw("pairs", [{ type: "heatmap", x: sorted[0].map(plain), y: sorted[1].map(plain), z, colorscale: "Viridis", reversescale: true }],
    layout("Pairs of knobs", { xaxis: { type: "category" }, yaxis: { type: "category" } }));
}

function showTask() {
  const task = tasks[Number(byId("chosen").value)];
  if (!task) return;
  byId("winner").textContent = task.winner === null ? "No winner has been named."
    : `Winner: ${task.winner}` + (task.gain === null ? "" : `, ${task.gain.toFixed(2)} times as fast as the default.`);
  draw("convergence", [{ type: "scatter", mode: "lines", line: { shape: "hv" }, x: task.steps.map((s) => s[0]), y: task.steps.map((s) => s[1]) }],
    layout("Convergence", { xaxis: { title: { text: "trials" } }, yaxis: { title: { text: "best ms" }, rangemode: "tozero" } }));
  const last = task.steps.at(-1);
  byId("convergence-text").textContent = last ? `After ${last[0]} trials the best is ${ms(last[1])} ms.` : "Nothing has worked.";
  const ranked = [...task.importance].reverse();
  draw("importance", [{ type: "bar", orientation: "h", y: ranked.map((k) => short(k[0])), x: ranked.map((k) => k[1]) }],
    layout("Knob importance", { xaxis: { range: [0, 1] }, yaxis: { type: "category" } }));
  byId("importance-text").textContent = `How: ${report.importance_how}.`;
  const kinds = Object.entries(task.failures);
  draw("failures", [{ type: "bar", x: kinds.map((k) => plain(k[0])), y: kinds.map((k) => k[1]) }], layout("Failures by kind"));
  byId("failures-text").textContent = kinds.length ? kinds.map(([k, n]) => `${n} ${k}`).join(", ") + "." : "Nothing has failed.";
  for (const [id, rank] of [["knob-x", 0], ["knob-y", 1]]) {
    const names = task.importance.map((k) => k[0]).concat(task.knobs.filter((n) => !task.importance.some((k) => k[0] === n)));
    byId(id).replaceChildren(...names.map((name) => element("option", name, { value: name })));
    byId(id).selectedIndex = Math.min(rank, names.length - 1);
  }
  showParallel(task);
  showPairs(task);
  byId("sources").replaceChildren(...Object.entries(task.sources).map(([title, text]) => {
    const part = element("section");
    part.append(element("h3", title), element("pre", text, { tabindex: "0" }));
    return part;
  }));
  const columns = [["ms", (r) => r[0], ms], ["Status", (r) => r[1]], ["Mark", (r) => r[2]],
    ...task.knobs.map((name, i) => [name, (r) => r[3 + i] ?? null])];
  fillTable(byId("trial-table"), columns, task.rows, "Trials");
}

byId("chosen").replaceChildren(...tasks.map((t, i) => element("option", `${t.name} (${t.threads} threads)`, { value: String(i) })));
byId("filter").addEventListener("input", showTasks);
byId("chosen").addEventListener("change", showTask);
for (const id of ["knob-x", "knob-y"]) byId(id).addEventListener("change", () => showPairs(tasks[Number(byId("chosen").value)]));
const showAll = () => { showSummary(); showTasks(); showTask(); };
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showAll);
showAll();
document.documentElement.dataset.ready = "yes";
