// The start page: a card for every stock description, drawn as it comes into sight.
import { open_descriptions } from "./workbench.js";
import { ask, element, element_of } from "./common.js";
import { embed } from "./figures.js";

const cards = new Map();
let waiting = [], busy = 0;

function words_of(spec, card) {
  const models = spec.models.flatMap(model => model.names).join(" ");
  const properties = Object.entries(card?.properties ?? {}).filter(([, holds]) => holds.startsWith("yes") || holds.startsWith("on")).map(([key]) => key.replaceAll("_", " "));
  return [spec.name, spec.doc, `${spec.axes.length} axes`, spec.axes.join(" "), models, card?.group ?? "", ...properties].join(" ").toLowerCase();
}

async function next() {
  if (busy >= 2 || !waiting.length || element("gallery").hidden) return; // pictures that one works with come first
  const name = waiting.shift(), entry = cards.get(name);
  busy++;
  try {
    entry.card = await ask(`card?name=${encodeURIComponent(name)}`);
    entry.words = words_of(entry.spec, entry.card);
    const place = entry.item.querySelector(".picture");
    if (entry.card.chart) {
      place.replaceChildren();
      await embed(place, small(entry.card.chart));
    } else place.textContent = "Positions change nothing";
  } catch { entry.item.querySelector(".picture").textContent = "No picture"; }
  busy--;
  search();
  next();
}

// Without axes and legends, and of several pictures the first.
function small({ spec, tables }) {
  const bare = part => {
    for (const [name, channel] of Object.entries(part.encoding ?? {})) {
      if (name === "x" || name === "y") channel.axis = null;
      if (["color", "shape", "strokeDash"].includes(name)) channel.legend = null;
    }
    part.layer?.forEach(bare);
    if (part.spec) bare(part.spec);
  };
  const { title, facet, columns, ...one } = structuredClone(spec.concat?.[0] ?? spec);
  const shown = facet ? { ...one.spec, data: one.data, transform: [{ filter: `datum["${facet.field}"] == 0` }] } : one;
  bare(shown);
  return { tables, spec: { ...shown, width: shown.layer ? 180 : 140, height: shown.layer ? 120 : 140 } };
}

function search() {
  const wanted = element("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const { item, words } of cards.values()) item.hidden = !wanted.every(word => words.includes(word));
}

export function draw_cards(start) {
  if (cards.size) {
    next();
    next();
    return;
  }
  const observer = new IntersectionObserver(seen => {
    for (const { target, isIntersecting } of seen) {
      if (!isIntersecting) continue;
      observer.unobserve(target);
      waiting = [target.dataset.name, ...waiting.filter(name => name !== target.dataset.name)];
    }
    next();
    next();
  });
  const of_files = start.given.map(name => ({ name, doc: "from the command line", axes: [], models: [] }));
  for (const spec of [...of_files, ...start.gallery]) {
    const item = element_of("li", { "data-name": spec.name }, element_of("button", { onclick: () => open_descriptions([spec.name]) },
      element_of("span", { class: "picture" }, "…"), element_of("b", {}, spec.name), element_of("small", {}, spec.doc),
      element_of("small", {}, spec.axes.length ? `${spec.axes.length === 1 ? "one axis" : `${spec.axes.length} axes`}: ${spec.axes.join(", ")}` : "")));
    cards.set(spec.name, { spec, item, words: words_of(spec) });
    observer.observe(item);
  }
  element("cards").replaceChildren(...[...cards.values()].map(({ item }) => item));
  element("search").oninput = search;
  waiting = [...cards.keys()]; // those out of sight too, after the others: a search knows their properties
}
