// The workbench: what is typed and chosen is one state; every change of it is drawn, kept and can be undone.
import { controls } from "./controls.js";
import { draw_cards } from "./gallery.js";
import { show_jobs, start_job } from "./jobs.js";
import { draw_figures, draw_table, make_places, told_about } from "./figures.js";
import { state_in, take_away } from "./takeaway.js";
import { ask, element, element_of, label_of, panes_of } from "./common.js";

const PAUSE = 300; // milliseconds without a key, after which a text is read
const NEAR = 250; // pixels beyond the window's edges that are drawn, too
const SAY = 200; // milliseconds after which the page says that it is computing
const SLOW = 400; // that an answer may take before a newer question ends it
const REST = 300; // after a change: then pictures out of sight follow, too, which a slider on its way does not wait for
const tab = sessionStorage.tab ??= crypto.randomUUID();
export const bench = { state: empty(), known: new Map(), sources: new Map(), answer: null, start: null };
let compare_menu, told = 0, looking, past = [], future = [], editor, timer = null, flight = null, waiting = false, changes = 0, changed = 0, asked = 0, shown_text = null, marks = [];

function empty() { return { view: "gallery", active: 0, panes: [], variants: null }; }

export function active() { return bench.state.panes[bench.state.active]; }

export function pane_from(source, options = {}) {
  return { id: crypto.randomUUID().slice(0, 8), name: source.name, origin: source.origin, text: source.text, options,
           grid: null, seed: null, operands: {}, head: null, block: null };
}

// ---- changes ----

// what: names the change, so that a slider's many are one step back.
export function change(what, make, pause = 0) {
  const before = JSON.stringify(bench.state), now = Date.now(), last = past.at(-1);
  make(bench.state);
  if (JSON.stringify(bench.state) === before) return;
  if (!(last && last.what === what && now - last.at < 1000)) past.push({ what, state: before, at: now });
  else last.at = now;
  past = past.slice(-200);
  future = [];
  show(pause);
}

function go(from, to) {
  const step = from.pop();
  if (!step) return;
  to.push({ what: "", state: JSON.stringify(bench.state), at: 0 });
  bench.state = JSON.parse(step.state);
  show(0);
}

export function back() { go(past, future); }
export function forward() { go(future, past); }

function show(pause) {
  const { state } = bench, in_gallery = state.view === "gallery" || !state.panes.length;
  element("gallery").hidden = !in_gallery;
  element("bench").hidden = in_gallery;
  element("take").disabled = in_gallery;
  element("back").disabled = !past.length;
  element("resume").hidden = !state.panes.length;
  clearTimeout(timer);
  timer = null;
  keep();
  if (in_gallery) {
    status("");
    return draw_cards(bench.start);
  }
  state.active = Math.min(state.active, state.panes.length - 1);
  show_panes();
  show_text();
  controls(bench.known.get(active().id));
  changes++;
  changed = performance.now();
  timer = setTimeout(draw, pause); // until then nothing else asks: a text that is being typed is read after the pause
}

let keeping;
function keep() {
  clearTimeout(keeping);
  keeping = setTimeout(() => ask("state", { tab, state: bench.state }).catch(() => 0), 250);
}

// ---- questions and answers ----

async function draw() {
  clearTimeout(timer);
  timer = null;
  if (flight) {
    waiting = true;
    if (performance.now() < flight.until) return;
  }
  waiting = false;
  const change = changes, begun = performance.now(), seen = wanted(0);
  const mine = flight = { until: begun + (seen ? SLOW : 0) };
  const late = told === change ? 0 : setTimeout(() => status("Computing; the pictures are of before", true), SAY);
  const panes = panes_of(bench.state), pictures = seen ?? wanted(NEAR) ?? make_places(bench.start.pictures).filter(key => in_sight(key, NEAR));
  try {
    const answer = await ask("draw", { tab, panes, pictures, asked: asked = Math.max(asked + 1, Date.now()) });
    if (flight !== mine) return;
    if (answer.dropped) throw new Error("A newer question was answered: change something to ask again");
    await show_answer(answer, panes, pictures, () => flight === mine);
    if (flight !== mine) return;
    for (const key of pictures) element(`picture-${key}`).change = change;
    if (answer.panes.some(pane => pane.error)) return;
    if (told !== change) status(`Drawn in ${Math.round(performance.now() - begun)} ms`);
    told = change;
    if (change !== changes) return;
    if (wanted(NEAR)) timer ??= setTimeout(draw, changed + REST - performance.now());
    else document.body.dataset.drawn = change; // all that is near: tests wait for it
  } catch (error) {
    if (flight === mine) status(error.message);
  } finally {
    clearTimeout(late);
    if (flight === mine) {
      flight = null;
      if (waiting && !timer) draw();
    } else if (waiting && !timer && performance.now() > flight.until) draw();
  }
}

function in_sight(key, near) {
  const box = element(`picture-${key}`).getBoundingClientRect();
  return box.top < innerHeight + near && box.bottom > -near;
}

// Pictures in sight, or near it, that are of another state; null: there are none.
function wanted(near) {
  const found = make_places(bench.start.pictures).filter(key => in_sight(key, near) && element(`picture-${key}`).change !== changes);
  return found.length ? found : null;
}

// Pictures that come into sight are drawn when they do.
function look() {
  clearTimeout(looking);
  looking = setTimeout(() => {
    if (!element("bench").hidden && bench.answer && !timer && wanted(NEAR)) draw();
  }, 100);
}

async function show_answer(answer, panes, pictures, is_asked) {
  const { state } = bench, mistakes = answer.panes.filter(pane => pane.error);
  answer.panes.forEach((pane, i) => pane.facts && bench.known.set(panes[i].of, pane.facts));
  const mine = answer.panes.filter((pane, i) => panes[i].of === active().id), error = mine.find(pane => pane.error)?.error;
  mark(error ? [error] : mine[0]?.warnings ?? [], error ? "mistake" : "warning");
  element("pictures").classList.toggle("late", mistakes.length > 0);
  if (mistakes.length) {
    status(mistakes.length === 1 ? `A mistake in ${mistakes[0].label}; the pictures are of before`
                                 : `${mistakes.length} mistakes; the pictures are of before`);
    if (bench.answer || mistakes.length === panes.length) return;
  }
  controls(bench.known.get(active().id));
  bench.answer = answer;
  told_about(answer, panes);
  await draw_figures(answer, pictures, is_asked);
  draw_table(answer);
}

export function status(words, busy = false) {
  element("status").textContent = words;
  element("status").classList.toggle("busy", busy);
}

// ---- the description ----

function show_panes() {
  const { state } = bench;
  const tabs = state.panes.map((pane, i) => {
    const label = label_of(pane);
    const choose = element_of("button", { role: "tab", "aria-selected": String(i === state.active), title: label,
      onclick: () => change("pane", s => { s.active = i; }) }, label);
    const close = element_of("button", { title: `Close ${label}`, "aria-label": `Close ${label}`,
      onclick: () => change("close", s => { s.panes.splice(i, 1); s.variants = null; if (!s.panes.length) s.view = "gallery"; }) }, "×");
    return element_of("span", {}, choose, close);
  });
  compare_menu ??= element_of("select", { "aria-label": "Compare with", onchange: event => { compare(event.target.value); event.target.value = ""; } },
    element_of("option", { value: "" }, "+ Compare with"), element_of("option", { value: "=" }, "a copy of this"),
    ...[...bench.start.given, ...bench.start.gallery.map(spec => spec.name)].map(name => element_of("option", {}, name)));
  element("panes").replaceChildren(...tabs, compare_menu);
}

async function compare(name) {
  if (!name) return;
  if (name === "=") {
    const copy = structuredClone(active());
    return change("copy", s => { s.variants = null; s.panes.push({ ...copy, id: crypto.randomUUID().slice(0, 8) }); s.active = s.panes.length - 1; });
  }
  await open_descriptions([name], true);
}

export async function source_of(name) {
  if (!bench.sources.has(name)) bench.sources.set(name, await ask(`source?name=${encodeURIComponent(name)}`));
  return bench.sources.get(name);
}

// words: rope_axial,base=10. beside: what is there stays.
export async function open_descriptions(words, beside = false) {
  const found = [];
  for (const word of words) {
    const [name, ...rest] = word.split(","), options = {};
    let last;
    for (const part of rest) {
      if (part.includes("=")) options[last = part.slice(0, part.indexOf("="))] = part.slice(part.indexOf("=") + 1);
      else if (last) options[last] += `,${part}`;
    }
    found.push(pane_from(await source_of(name), options));
  }
  change("open", s => {
    const grid = s.panes[s.active]?.grid;
    s.view = "bench";
    s.variants = null;
    s.panes = beside ? [...s.panes, ...found].slice(0, 12) : found;
    s.active = beside ? s.panes.length - 1 : 0;
    if (beside && grid) s.panes[s.active].grid = grid;
  });
}

const NEW = `-- An encoding of your own: Ctrl-Space completes, the line below the editor explains.
local pe = require "pegen"
local base = pe.option("base", 100.0, "frequency base")

return pe.encoding {
  name = "mine",
  axes = { "h", "w" },
  head_dim = 64,
  block = pe.plane(),
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = function(axis, i) return base ^ (-2 * i / 64) * (axis == "h" and 1 or 0.5) end,
}
`;

function make_editor() {
  editor = CodeMirror(element("editor"), {
    mode: "lua", lineNumbers: true, matchBrackets: true, autoCloseBrackets: true, indentUnit: 2, lineWrapping: false,
    inputStyle: "contenteditable", screenReaderLabel: "Description, in Lua", viewportMargin: 60,
    extraKeys: { "Ctrl-Space": complete, "Ctrl-/": "toggleComment", Tab: false, "Shift-Tab": false, "Ctrl-Enter": () => draw() },
  });
  editor.on("change", (_, event) => {
    if (event.origin === "setValue") return;
    shown_text = editor.getValue();
    change(`text ${active().id}`, s => { s.panes[s.active].text = shown_text; }, PAUSE);
    if (event.origin === "+input" && event.text[0] === ".") complete();
  });
  editor.on("cursorActivity", explain_word);
}

function show_text() {
  const { text, id } = active();
  if (text === shown_text && editor.pane === id) return;
  shown_text = text;
  if (editor.pane === id) {
    const at = editor.getCursor();
    editor.setValue(text);
    editor.setCursor(at);
  } else {
    editor.swapDoc(CodeMirror.Doc(text, "lua"));
    editor.pane = id;
  }
  mark([]);
}

// Errors and warnings (kind: mistake, warning) at their lines; those without a line stand below the editor alone.
function mark(found, kind) {
  for (const clear of marks) clear();
  const words_of = ({ line, message }) => `${line ? `Line ${line}: ` : ""}${kind === "warning" ? "Warning: " : ""}${message}`;
  element("mistake").textContent = found.map(words_of).join("\n");
  element("mistake").className = kind ?? "";
  marks = found.filter(({ line }) => line).flatMap(({ line, message }) => {
    const at = Math.min(line, editor.lineCount()) - 1;
    const widget = editor.addLineWidget(at, element_of("div", { class: `${kind}-words`, "aria-hidden": "true" }, message));
    const handle = editor.addLineClass(at, "background", `line-${kind}`);
    return [() => widget.clear(), () => editor.removeLineClass(handle, "background", `line-${kind}`)];
  });
}

function word_at(cursor) {
  const line = editor.getLine(cursor.line);
  let from = cursor.ch, to = cursor.ch;
  while (from > 0 && /[\w.]/.test(line[from - 1])) from--;
  while (to < line.length && /[\w.]/.test(line[to])) to++;
  return { from, to, word: line.slice(from, to), typed: line.slice(from, cursor.ch) };
}

function explain_word() {
  const { word } = word_at(editor.getCursor());
  const found = bench.start.vocabulary.find(entry => entry.word === word);
  element("word").replaceChildren(...(found ? [element_of("code", {}, found.word), ` ${found.text.replaceAll("`", "")}`] : []));
}

function complete() {
  editor.showHint({ completeSingle: false, hint: () => {
    const cursor = editor.getCursor(), { from, to, typed } = word_at(cursor);
    const list = bench.start.vocabulary.filter(({ word }) => word.startsWith(typed)).map(entry => ({ text: entry.word, entry }));
    const hints = { list, from: CodeMirror.Pos(cursor.line, from), to: CodeMirror.Pos(cursor.line, to) };
    CodeMirror.on(hints, "select", ({ entry }) => element("word").replaceChildren(element_of("code", {}, entry.word), ` ${entry.text.replaceAll("`", "")}`));
    return hints;
  } });
}

// ---- the page ----

function apply_theme() {
  const dark = localStorage.theme ? localStorage.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}

function redraw() {
  changes++;
  if (bench.answer) draw();
}

const KEYS = [["Ctrl-Z, Ctrl-Shift-Z", "back and forward (in the editor: of its text)"], ["Ctrl-Space", "complete a word of the vocabulary"],
  ["Ctrl-/", "comment lines"], ["Ctrl-Enter", "draw now"], ["Alt-1 to Alt-9", "that description"], ["Alt-G", "gallery"], ["Alt-T", "take away"], ["?", "this"]];

function show_keys() {
  const rows = KEYS.map(([key, what]) => element_of("tr", {}, element_of("th", {}, key), element_of("td", {}, what)));
  const dialog = element("dialog");
  dialog.setAttribute("aria-label", "Keys");
  dialog.replaceChildren(element_of("h2", {}, "Keys"), element_of("table", {}, ...rows), element_of("button", { onclick: () => dialog.close() }, "Close"));
  dialog.showModal();
}

function on_key(event) {
  const typing = event.target.closest?.(".CodeMirror, input:not([type=range]):not([type=checkbox]), textarea");
  const pressed = event.key.toLowerCase();
  if ((event.ctrlKey || event.metaKey) && pressed === "z" && !typing) {
    event.preventDefault();
    event.shiftKey ? forward() : back();
  } else if (event.altKey && /^[1-9]$/.test(pressed)) change("pane", s => { s.active = Math.min(Number(pressed), s.panes.length) - 1; });
  else if (event.altKey && pressed === "g") element("home").click();
  else if (event.altKey && pressed === "t") element("take").click();
  else if (pressed === "?" && !typing) show_keys();
}

async function begin() {
  apply_theme();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { apply_theme(); redraw(); });
  bench.start = await ask(`start?tab=${tab}`);
  make_editor();
  element("theme").onclick = () => { localStorage.theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark"; apply_theme(); redraw(); };
  element("home").onclick = () => change("view", s => { s.view = "gallery"; });
  element("resume").onclick = () => change("view", s => { s.view = "bench"; });
  element("new").onclick = () => change("open", s => { s.view = "bench"; s.variants = null; s.active = 0; s.panes = [pane_from({ name: "mine", origin: "", text: NEW })]; });
  element("back").onclick = back;
  element("take").onclick = take_away;
  element("keys").onclick = show_keys;
  for (const button of document.querySelectorAll("[data-job]")) button.onclick = () => start_job(button.dataset.job);
  addEventListener("keydown", on_key);
  document.addEventListener("scroll", look, { capture: true, passive: true });
  addEventListener("hashchange", open_address);
  show_jobs();
  const kept = bench.start.state;
  if (kept?.panes) bench.state = bench.start.own ? kept : { ...kept, view: "gallery" };
  if (!(await open_address())) show(0);
}

async function open_address() {
  const state = await state_in(location.hash), open = new URLSearchParams(location.hash.slice(1)).get("open");
  if (location.hash) history.replaceState(null, "", location.pathname);
  if (state) change("open", s => Object.assign(s, empty(), state));
  else if (open) await open_descriptions(open.split(";"));
  return Boolean(state || open);
}

begin().catch(error => status(error.message));
