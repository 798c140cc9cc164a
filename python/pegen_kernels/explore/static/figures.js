// Pictures as the server sends them (Vega-Lite), side by side; an old one stays until the next is drawn.
import { element, element_of } from "./common.js";

const WIDTHS = [[1, 1], [2, 0.82], [3, 0.72], [12, 0.6]]; // shares of a picture's size by how many stand side by side
const DARK = { "#000000": "#e6e9ed", "#1f5fa8": "#6cb0f5", "#0072b2": "#8a68ff" }; // of lines that dark paper swallows
const PROPERTIES = ["norm kept", "translation invariant", "commuting generators", "distance decay"];

function is_dark() { return document.documentElement.dataset.theme === "dark"; }

function config() {
  const ink = is_dark() ? "#e6e9ed" : "#1b1f24", line = is_dark() ? "#30363d" : "#d5d9df";
  const axis = { labelColor: ink, titleColor: ink, gridColor: line, domainColor: line, tickColor: line, titleFontWeight: "normal" };
  return { background: "transparent", font: "system-ui, sans-serif", axis, legend: { labelColor: ink, titleColor: ink },
           title: { color: ink }, header: { labelColor: ink, titleColor: ink }, view: { stroke: line }, rule: { color: ink } };
}

// A copy that fits the page; sizes stand where a chart, or one of its parts, has them.
export function fitted(chart, share) {
  let text = JSON.stringify(chart);
  if (is_dark()) for (const [from, to] of Object.entries(DARK)) text = text.replaceAll(from, to);
  const found = JSON.parse(text);
  delete found.config;
  const resize = part => {
    for (const side of ["width", "height"]) if (typeof part[side] === "number") part[side] = Math.round(part[side] * share);
    for (const list of ["layer", "concat", "hconcat", "vconcat"]) part[list]?.forEach(resize);
    if (part.spec) resize(part.spec);
  };
  resize(found);
  return found;
}

// A chart's tables, under names that do not change with what is in them, and all else that it says.
function parts_of(chart, share) {
  let shape = JSON.stringify([{ ...chart, datasets: undefined }, share, is_dark()]);
  const tables = Object.entries(chart.datasets ?? {}).map(([name, rows], i) => {
    shape = shape.replaceAll(name, `table${i}`);
    return [`table${i}`, rows];
  });
  return { shape, tables: Object.fromEntries(tables) };
}

// Where tables alone are others than before, the picture that stands takes them.
export async function embed(place, chart, share = 1) {
  const { shape, tables } = parts_of(chart, share);
  if (place.view && place.shape === shape) {
    for (const [name, rows] of Object.entries(tables)) place.view.data(name, structuredClone(rows));
    return place.view.runAsync();
  }
  const drawn = element_of("div", { class: "drawn" });
  const named = fitted({ ...JSON.parse(shape)[0], datasets: tables }, share);
  const { view } = await vegaEmbed(drawn, named, { renderer: "canvas", actions: false, ast: true, config: config(), tooltip: { theme: "custom" } });
  place.view?.finalize();
  Object.assign(place, { view, shape });
  place.querySelector(".drawn")?.remove();
  place.prepend(drawn);
  return view;
}

// The numbers themselves, for those who do not see the picture.
function numbers_of(chart) {
  const details = element_of("details", {}, element_of("summary", {}, "Numbers"));
  details.ontoggle = () => {
    if (!details.open || details.children.length > 1) return;
    const tables = Object.values(chart.datasets ?? {}).map(rows => {
      const names = Object.keys(rows[0] ?? {});
      const cell = value => typeof value === "number" ? String(Number(value.toPrecision(6))) : String(value ?? "");
      return element_of("table", {}, element_of("tr", {}, ...names.map(name => element_of("th", { scope: "col" }, name))),
        ...rows.slice(0, 2000).map(row => element_of("tr", {}, ...names.map(name => element_of("td", {}, cell(row[name]))))));
    });
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

// keys: those that were asked for; one of them that there is nothing of takes no room.
export async function draw_figures(answer, keys) {
  const box = element("pictures");
  box.classList.toggle("several", answer.labels.length > 1);
  const share = WIDTHS.find(([most]) => answer.labels.length <= most)[1];
  for (const key of keys) element(`picture-${key}`).classList.toggle("nothing", !answer.pictures.some(picture => picture.key === key));
  for (const picture of answer.pictures) await draw_picture(picture, answer.labels, share);
}

async function draw_picture(picture, labels, share) {
  const section = element(`picture-${picture.key}`);
  section.classList.remove("empty");
  section.setAttribute("aria-label", picture.title);
  section.querySelector("h2").textContent = picture.title;
  section.querySelector("p").textContent = picture.text;
  const row = section.querySelector(".figures"), figures = [];
  for (const label of labels) {
    const chart = picture.charts[label], why = picture.missing[label];
    if (!chart && (!why || picture.key === "difference")) continue;
    let figure = section.figures.get(label);
    const text = JSON.stringify([chart, share, is_dark()]);
    if (!figure) section.figures.set(label, figure = element_of("figure", { "aria-label": `${picture.title}, ${label}` }));
    figures.push(figure);
    if (figure.text === text) continue;
    figure.text = text;
    figure.chart = chart;
    if (!chart) {
      figure.replaceChildren(element_of("p", {}, `No picture: ${why}.`));
    } else {
      const view = await embed(figure, chart, share);
      figure.querySelector(".drawn").setAttribute("role", "img");
      figure.querySelector(".drawn").setAttribute("aria-label", `${picture.title} of ${label}`);
      view.runAsync();
      figure.querySelectorAll("details, p").forEach(old => old.remove());
      figure.append(numbers_of(chart));
    }
    figure.querySelector("h3")?.remove();
    if (labels.length > 1) figure.prepend(element_of("h3", {}, label));
  }
  for (const [label, figure] of section.figures) {
    if (figures.includes(figure)) continue;
    figure.view?.finalize();
    section.figures.delete(label);
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
