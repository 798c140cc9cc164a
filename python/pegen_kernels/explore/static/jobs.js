// Check, bench and train of the active description: beside it, while they run and after.
import { active, bench, status } from "./workbench.js";
import { ask, element, element_of, panes_of } from "./common.js";
import { embed } from "./figures.js";

const EVERY = 700; // milliseconds
let timer;

export async function start_job(kind) {
  const panes = panes_of({ ...bench.state, variants: null }), mine = panes[bench.state.active];
  const other = panes.find(pane => pane !== mine);
  try {
    await ask("jobs", { kind, panes: kind === "train" && other ? [mine, other] : [mine], place: mine.id });
  } catch (error) { status(error.message); }
  show_jobs();
}

function time_of(seconds) { return seconds < 90 ? `${Math.ceil(seconds)} s` : `${Math.ceil(seconds / 60)} min`; }

function words_of(job) {
  if (job.state === "waits") return "waits for the others";
  if (job.state !== "runs") return `${job.state === "done" ? "" : `${job.state}: `}${job.message} (${time_of(job.seconds)})`;
  const left = job.left == null ? "longer than usual" : `about ${time_of(job.left)} left`;
  return `runs for ${time_of(job.seconds)}, ${left}`;
}

function result_of(job) {
  if (job.kind === "check" && job.result) {
    const { worst, failed } = job.result;
    const told = worst ? `Largest error: ${(worst.error / worst.bound).toPrecision(2)} of its bound (${worst.what}, ${worst.type})` : "";
    return [told, ...failed.map(check => `FAILS: ${check.what}, ${check.type}: ${check.error == null ? check.found : `${check.error} > ${check.bound}`}`)].filter(Boolean);
  }
  if (job.kind === "bench" && job.result) {
    return job.result.map(row => {
      const limits = (row.limits ?? []).map(limit => limit.seconds), least = Math.min(...limits);
      return `${row.layout ?? ""} ${row.in_place ? "in place" : ""}: ${(row.seconds * 1e6).toPrecision(3)} µs${limits.length ? `, ${(least / row.seconds).toPrecision(2)} of the limit` : ""}`;
    });
  }
  return [];
}

function curve_of(job) {
  const table = Object.fromEntries(["variant", "epoch", "test", "loss"].map(name => [name, job.curve.map(point => point[name])]));
  return { tables: { table }, spec: { data: { name: "table" }, width: 230, height: 110,
    mark: { type: "line", point: true }, encoding: { x: { field: "epoch", type: "quantitative", axis: { tickMinStep: 1 } },
      y: { field: "test", type: "quantitative", scale: { zero: false } }, tooltip: [{ field: "variant" }, { field: "epoch" }, { field: "test", format: ".3g" }, { field: "loss", format: ".3g" }],
      color: { field: "variant", type: "nominal", legend: { title: null, orient: "bottom", columns: 1, labelLimit: 0 }, scale: { range: ["#0072b2", "#e69f00"] } } } } };
}

const items = new Map();

async function show(job) {
  let item = items.get(job.number);
  if (!item) {
    item = element_of("li", {});
    items.set(job.number, item);
    item.append(element_of("div", {}, element_of("b", {}, job.kind), element_of("span", {}, job.label),
      element_of("button", { "aria-label": `Stop ${job.kind} of ${job.label}`, onclick: () => ask(`jobs/${job.number}`, undefined, "DELETE").then(show_jobs) }, "Stop")),
    element_of("progress", { max: 1, "aria-label": `Progress of ${job.kind}` }), element_of("div", { role: "status" }), element_of("div", { class: "curve" }));
  }
  const runs = job.state === "runs" || job.state === "waits", [head, progress, words, curve] = item.children;
  head.querySelector("button").hidden = !runs;
  progress.hidden = !runs;
  progress.value = job.share;
  words.className = job.state;
  words.replaceChildren(words_of(job), ...result_of(job).map(text => element_of("div", {}, text)));
  if (job.curve.length && curve.count !== job.curve.length) {
    curve.count = job.curve.length;
    await embed(curve, curve_of(job));
  }
  return item;
}

// Of the active description the newest first.
export async function show_jobs() {
  clearTimeout(timer);
  let found;
  try { ({ jobs: found } = await ask("jobs")); } catch { timer = setTimeout(show_jobs, 3 * EVERY); return; }
  const mine = found.filter(job => job.pane === active()?.id).reverse();
  element("jobs").replaceChildren(...await Promise.all(mine.map(show)));
  timer = setTimeout(show_jobs, found.some(job => job.state === "runs" || job.state === "waits") ? EVERY : 3 * EVERY);
}
