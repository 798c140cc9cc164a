// Take it away: commands, files, and an address that opens the same state.
import { active, bench, source_of, status } from "./workbench.js";
import { ask_file, download, element, element_of, panes_of } from "./common.js";

async function through(stream, bytes) {
  return new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(stream)).arrayBuffer());
}

// Texts of stock descriptions that are as they came are left out; a file of the command line may not be here later.
async function address_of(state) {
  const stock = pane => !bench.start.given.includes(pane.origin) && pane.text === bench.sources.get(pane.origin)?.text;
  const panes = state.panes.map(pane => stock(pane) ? { ...pane, text: null } : pane);
  state = { ...state, panes };
  const packed = await through(new CompressionStream("deflate-raw"), new TextEncoder().encode(JSON.stringify(state)));
  let text = "";
  for (const byte of packed) text += String.fromCharCode(byte);
  return `${location.origin}${location.pathname}#s=${btoa(text).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")}`;
}

// null: the address holds none, or one that was cut.
export async function state_in(hash) {
  if (!hash.startsWith("#s=")) return null;
  try {
    const text = atob(hash.slice(3).replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = await through(new DecompressionStream("deflate-raw"), Uint8Array.from(text, c => c.charCodeAt(0)));
    const state = JSON.parse(new TextDecoder().decode(bytes));
    for (const pane of state.panes) pane.text ??= (await source_of(pane.origin)).text;
    return state;
  } catch {
    status("The address holds no state that can be opened: was it cut?");
    return null;
  }
}

export async function take_away() {
  const dialog = element("dialog"), pane = active();
  const panes = panes_of(bench.state).sort((a, b) => (b.of === pane.id) - (a.of === pane.id)); // it is the first one
  const close = element_of("button", { onclick: () => dialog.close() }, "Close");
  const words = element_of("p", { role: "status" });
  const file = (kind, name, label) => element_of("button", { "data-kind": kind, onclick: async () => {
    words.textContent = `Writing ${name} …`;
    try {
      download(name, await ask_file("export", { kind, panes, pictures: [] }));
      words.textContent = name;
    } catch (error) { words.textContent = error.message; }
  } }, label);
  const copied = (label, text, id) => {
    const pre = element_of("pre", { id, tabindex: 0, "aria-label": label }, text);
    return [element_of("div", { class: "row" }, element_of("h3", {}, label), element_of("button", { onclick: async () => {
      try { await navigator.clipboard.writeText(text); words.textContent = `Copied: ${label}`; }
      catch { getSelection().selectAllChildren(pre); words.textContent = "Selected: Ctrl-C copies it"; }
    } }, "Copy")), pre];
  };
  dialog.setAttribute("aria-label", "Take away");
  const address = await address_of({ ...bench.state, view: "bench" });
  let command = "", python = "";
  try {
    [command, python] = await Promise.all(["command", "python"].map(async kind => (await ask_file("export", { kind, panes, pictures: [] })).text()));
  } catch (error) { words.textContent = error.message; }
  dialog.replaceChildren(element_of("h2", {}, "Take away"),
    element_of("p", { class: "row" }, element_of("button", { class: "first", "data-kind": "lua", onclick: () => download(`${pane.name}.lua`, new Blob([pane.text])) }, `${pane.name}.lua`),
      file("html", `${pane.name}.html`, "Report (.html)"), file("svg", `${pane.name}.svg`, "Pictures (.svg)"), file("png", `${pane.name}.png`, "Pictures (.png)")), words,
    ...(command ? [...copied("Command line", command, "command"), ...copied("Python", python, "python")] : []),
    ...copied("Address of this state; pegen explore ADDRESS opens it after a restart", address, "address"), close);
  dialog.showModal();
}
