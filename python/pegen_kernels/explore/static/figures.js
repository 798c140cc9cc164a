// Pictures as the server sends them (Vega-Lite and tables), side by side; an old one stays until the next is drawn.
import { element, element_of } from "./common.js";

const WIDTHS = [[1, 1], [2, 0.82], [3, 0.72], [12, 0.6]]; // shares of a picture's size by how many stand side by side
const DARK = { "#000000": "#e6e9ed", "#1f5fa8": "#6cb0f5", "#0072b2": "#8a68ff" }; // of lines that dark paper swallows
const PROPERTIES = ["norm kept", "translation invariant", "commuting generators", "distance decay"];

function is_dark() { return document.documentElement.dataset.theme === "dark"; }

function config() {
  const ink = is_dark() ? "#e6e9ed" : "#1b1f24", line = is_dark() ? "#30363d" : "#d5d9df";
  const axis = { labelColor: ink, titleColor: ink, gridColor: line, domainColor: line, tickColor: line, titleFontWeight: "normal" };
  return { aria: false, background: "transparent", font: "system-ui, sans-serif", axis, legend: { labelColor: ink, titleColor: ink },
           title: { color: ink }, header: { labelColor: ink, titleColor: ink }, view: { stroke: line }, rule: { color: ink } };
}

// What a chart says apart from numbers that move with a slider: the ends of its scales are parameters, and its tables have
// names. Tips are told of a mark's row when it is pointed at: Vega would write those of all marks at every step.
function template_of(spec, share) {
  const ends = [], tips = new Map(), dark = is_dark();
  const walk = (part, key) => {
    if (typeof part === "number") return key === "width" || key === "height" ? Math.round(part * share) : part;
    if (typeof part === "string") return (dark && DARK[part]) || part;
    if (part === null || typeof part !== "object") return part;
    if (Array.isArray(part)) return part.map(inside => walk(inside));
    const made = Object.fromEntries(Object.entries(part).map(([name, inside]) => [name, walk(inside, name)]));
    if (made.type === "quantitative" && made.scale?.domain) {
      const { domain, ...scale } = made.scale, known = ends.findIndex(pair => `${pair}` === `${domain}`);
      const i = known < 0 ? ends.push(domain) - 1 : known;
      made.scale = { ...scale, domainMin: { expr: `low${i}` }, domainMax: { expr: `high${i}` } };
    }
    if (made.encoding?.tooltip) {
      for (const tip of made.encoding.tooltip) tips.set(tip.field, tip);
      delete made.encoding.tooltip;
      made.mark = { ...made.mark, tooltip: { content: "data" } };
    }
    return made;
  };
  return { template: walk(spec), ends, tips };
}

function rows_of(table) {
  const names = Object.keys(table);
  return Array.from({ length: table[names[0]]?.length ?? 0 }, (_, i) => Object.fromEntries(names.map(name => [name, table[name][i]])));
}

// Rows that stand take the columns that are others, so that their marks stand, too: new ones take twice as long.
function change_table(view, name, table) {
  const rows = view.data(name), changes = view.changeset();
  if (Object.values(table)[0]?.length !== rows.length) return view.data(name, rows_of(table));
  for (const [column, values] of Object.entries(table)) {
    let i = 0;
    if (values.some((value, at) => value !== rows[at][column])) changes.modify(() => true, column, () => values[i++]);
  }
  return view.change(name, changes);
}

function tip_of(tips, row, clean) {
  const told = [...tips.values()].filter(({ field }) => field in row).map(({ field, title, format }) => {
    const value = typeof row[field] === "number" && format ? Number(row[field].toPrecision(parseInt(format.slice(1)))) : row[field];
    return `<tr><td class="key">${clean(title ?? field)}</td><td class="value">${clean(String(value))}</td></tr>`;
  });
  return `<table>${told.join("")}</table>`;
}

// chart: its spec, and its tables by columns. Where numbers alone are others than before, the picture that stands takes them.
export async function embed(place, { spec, tables }, share = 1) {
  const { template, ends, tips } = template_of(spec, share), shape = JSON.stringify([template, is_dark()]);
  const numbers = ends.flatMap(([low, high], i) => [{ name: `low${i}`, value: low }, { name: `high${i}`, value: high }]);
  if (place.view && place.shape === shape) {
    for (const { name, value } of numbers) place.view.signal(name, value);
    for (const [name, table] of Object.entries(tables)) change_table(place.view, name, table);
    return place.view.runAsync();
  }
  const drawn = element_of("div", { class: "drawn" });
  const datasets = Object.fromEntries(Object.entries(tables).map(([name, table]) => [name, rows_of(table)]));
  const { view } = await vegaEmbed(drawn, { ...template, params: numbers, datasets }, { mode: "vega-lite", renderer: "canvas", actions: false,
    ast: true, config: config(), tooltip: { theme: "custom", formatTooltip: (row, clean) => tip_of(tips, row, clean) } });
  place.view?.finalize();
  Object.assign(place, { view, shape });
  place.querySelector(".drawn")?.remove();
  place.prepend(drawn);
  return view;
}

// The numbers themselves, for those who do not see the picture.
function numbers_of(figure) {
  const details = element_of("details", {}, element_of("summary", {}, "Numbers"));
  details.ontoggle = figure.tell = () => {
    if (!details.open) return;
    const tables = Object.values(figure.chart.tables).map(table => {
      const names = Object.keys(table);
      const cell = value => typeof value === "number" ? String(Number(value.toPrecision(6))) : String(value ?? "");
      return element_of("table", {}, element_of("tr", {}, ...names.map(name => element_of("th", { scope: "col" }, name))),
        ...rows_of(table).slice(0, 2000).map(row => element_of("tr", {}, ...names.map(name => element_of("td", {}, cell(row[name]))))));
    });
    details.querySelector("div")?.remove();
    details.append(element_of("div", { tabindex: 0 }, ...tables));
  };
  return details;
}

// A place for each picture, so that one can scroll to those that are not drawn yet.
export function make_places(keys) {
  const box = element("pictures");
  for (const key of keys) {
    if (element(`picture-${key}`)) continue;
    const section = element_of("section", { id: `picture-${key}`, class: "empty" }, element_of("h2", {}), element_of("p", {}), element_of("div", { class: "figures" }));
    section.figures = new Map();
    box.append(section);
  }
  return keys;
}

// keys: those that were asked for; one of them that there is nothing of takes no room. is_asked: no newer question is.
export async function draw_figures(answer, keys, is_asked) {
  const box = element("pictures");
  box.classList.toggle("several", answer.labels.length > 1);
  const share = WIDTHS.find(([most]) => answer.labels.length <= most)[1];
  for (const key of keys) element(`picture-${key}`).classList.toggle("nothing", !answer.pictures.some(picture => picture.key === key));
  for (const picture of answer.pictures) if (is_asked()) await draw_picture(picture, answer.labels, share);
}

async function draw_picture(picture, labels, share) {
  const section = element(`picture-${picture.key}`);
  section.classList.remove("empty");
  section.setAttribute("aria-label", picture.title);
  section.querySelector("h2").textContent = picture.title;
  section.querySelector("p").textContent = picture.text;
  const row = section.querySelector(".figures"), figures = [];
  for (const [i, label] of labels.entries()) { // labels name options, too: a figure keeps its place while these change
    const chart = picture.charts[label], why = picture.missing[label];
    if (!chart && (!why || picture.key === "difference")) continue;
    let figure = section.figures.get(i);
    if (!figure) section.figures.set(i, figure = element_of("figure", {}));
    figure.setAttribute("aria-label", `${picture.title}, ${label}`);
    figures.push(figure);
    if (!chart) {
      figure.view?.finalize();
      figure.view = null;
      figure.replaceChildren(element_of("p", {}, `No picture: ${why}.`));
    } else {
      figure.chart = chart;
      await embed(figure, chart, share);
      figure.querySelector(":scope > p")?.remove();
      figure.querySelector(".drawn").setAttribute("role", "img");
      figure.querySelector(".drawn").setAttribute("aria-label", `${picture.title} of ${label}`);
      if (!figure.querySelector("details")) figure.append(numbers_of(figure));
      figure.tell();
    }
    figure.querySelector("h3")?.remove();
    if (labels.length > 1) figure.prepend(element_of("h3", {}, label));
  }
  for (const [i, figure] of section.figures) {
    if (figures.includes(figure)) continue;
    figure.view?.finalize();
    section.figures.delete(i);
  }
  if (figures.length !== row.children.length || figures.some((figure, i) => row.children[i] !== figure)) row.replaceChildren(...figures);
}

function cell_of(answer, name, label) { return answer.table.find(([row]) => row === name)?.[1][answer.labels.indexOf(label)]; }

// A card a description: what it is, what holds and how that is known, what it costs.
export function told_about(answer, panes) {
  const cards = answer.labels.slice(0, 4).map(label => {
    const facts = answer.panes.find(pane => pane.label === label)?.facts;
    const chips = PROPERTIES.map(name => {
      const found = cell_of(answer, name, label), holds = found.text.split(" (")[0];
      return element_of("span", { class: `chip ${holds === "yes" ? "yes" : holds === "no" ? "no" : ""}`, title: found.why }, `${name}: ${found.text}`);
    });
    return element_of("div", { class: "about" }, element_of("b", {}, label), element_of("p", {}, facts.doc),
      element_of("div", { class: "chips" }, ...chips), element_of("p", {}, `${cell_of(answer, "group", label).text}. Operations: ${cell_of(answer, "operations", label).text}.`));
  });
  element("facts").replaceChildren(...cards);
}

export function draw_table(answer) {
  const rows = answer.table.map(([name, cells]) => element_of("tr", {}, element_of("th", { scope: "row" }, name),
    ...cells.map(cell => element_of("td", {}, cell.text, element_of("small", {}, cell.why)))));
  element("table").replaceChildren(element_of("h2", {}, "Properties, precision and cost"),
    element_of("table", {}, element_of("tr", {}, element_of("th", {}), ...answer.labels.map(label => element_of("th", { scope: "col" }, label))), ...rows));
}
