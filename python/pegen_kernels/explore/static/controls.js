// Options of the active description as controls, from what it says of them.
import { active, bench, change, status } from "./workbench.js";
import { ask, element, element_of } from "./common.js";

const STEPS = 200; // of a slider
const SPREAD = 100; // by which a slider of a number goes above and below its default
let shown = "";

// facts: of the active description; undefined until it was read once.
export function controls(facts) {
  if (!facts) return;
  const pane = active(), key = JSON.stringify([pane.id, facts.settings, facts.axes, facts.operands, facts.heads, facts.blocks]);
  if (key !== shown) {
    shown = key;
    const own = facts.settings.filter(setting => !["skip_tokens", "inverse", "grid"].includes(setting.name));
    const general = facts.settings.filter(setting => ["skip_tokens", "inverse"].includes(setting.name));
    element("options").replaceChildren(
      fieldset("Options", own.map(option_control)), fieldset("Shown", [grid_control(facts), ...view_controls(facts)]),
      ...(facts.operands.length ? [fieldset("Learned operands", [seed_control(), ...facts.operands.map(operand_control)])] : []),
      variants_control(own), fieldset("Of every description", general.map(option_control)));
    element("options").onsubmit = event => event.preventDefault();
  }
  for (const control of element("options").querySelectorAll(".control")) control.refresh?.(facts);
}

function fieldset(name, inside) { return element_of("fieldset", {}, element_of("legend", {}, name), ...inside); }

function control(name, label, doc, inside, is_changed, reset) {
  const id = `control-${name}`;
  inside.at(-1).id = id;
  for (const part of inside) part.setAttribute("aria-label", `${label}: ${doc}`);
  const made = element_of("div", { class: "control", title: doc }, element_of("label", { for: id }, label), ...inside,
    element_of("button", { type: "button", class: "reset", "aria-label": `Reset ${label}`, title: "As it was", onclick: reset }, "↺"));
  made.mark = () => made.classList.toggle("changed", is_changed());
  return made;
}

function set_option({ name, default: otherwise }, value) {
  change(`option ${name}`, s => {
    const { options } = s.panes[s.active];
    if (value === otherwise || value === "") delete options[name];
    else options[name] = value;
  });
}

function rounded(value) { return String(Number(value.toPrecision(3))); }

// The slider's range, which the description states or the default suggests: numbers above 0 go by powers, whole numbers
// by steps that blocks go into.
function scale_of({ kind, default: otherwise, range }) {
  const value = Number(otherwise);
  if (kind === "integer") {
    const step = !range && value >= 16 && value % 8 === 0 ? 8 : 1, most = Math.max(4 * value, 16);
    const [min, max] = range ?? [value < 0 ? -most : Math.min(step, value), most];
    return { min, max, step, to: x => x, from: x => String(x) };
  }
  if (range ? range[0] > 0 : value > 0) {
    const [low, high] = (range ?? [value / SPREAD, value * SPREAD]).map(Math.log);
    return { min: 0, max: STEPS, step: 1, to: x => (Math.log(x) - low) / (high - low) * STEPS,
             from: t => rounded(Math.exp(low + (high - low) * t / STEPS)) };
  }
  const most = Math.max(2 * Math.abs(value), 1), [min, max] = range ?? [-most, most];
  return { min, max, step: (max - min) / (2 * STEPS), to: x => x, from: x => rounded(Number(x)) };
}

function option_control(setting) {
  const { name, kind, doc, choices, default: otherwise } = setting;
  const current = () => active().options[name] ?? otherwise, is_changed = () => name in active().options;
  const reset = () => set_option(setting, otherwise);
  const finish = (inside, show) => {
    const made = control(name, name, doc, inside, is_changed, reset);
    made.refresh = () => { show(current()); made.mark(); };
    return made;
  };
  if (choices && kind !== "list" && kind !== "numbers") {
    const menu = element_of("select", { class: "wide", onchange: () => set_option(setting, menu.value) }, ...choices.map(choice => element_of("option", {}, choice)));
    return finish([menu], value => { menu.value = value; });
  }
  if (kind === "boolean") {
    const box = element_of("input", { type: "checkbox", class: "wide", onchange: () => set_option(setting, String(box.checked)) });
    return finish([box], value => { box.checked = value === "true"; });
  }
  if (kind === "integer" || kind === "number") {
    const scale = scale_of(setting);
    const slider = element_of("input", { type: "range", min: scale.min, max: scale.max, step: scale.step, oninput: () => set_option(setting, scale.from(Number(slider.value))) });
    const field = element_of("input", { inputmode: "decimal", onchange: () => set_option(setting, field.value.trim()) });
    return finish([slider, field], value => {
      if (document.activeElement !== slider) slider.value = scale.to(Number(value));
      slider.setAttribute("aria-valuetext", value);
      if (document.activeElement !== field || field.value.trim() !== value) field.value = value;
    });
  }
  const field = element_of("input", { class: "wide", placeholder: kind === "list" ? "whole numbers: 8,12,12" : "", onchange: () => set_option(setting, field.value.trim()) });
  return finish([field], value => { field.value = value; });
}

function set_view(what, value) { change(what, s => { s.panes[s.active][what] = value; }); }

function grid_control(facts) {
  const field = element_of("input", { class: "wide", onchange: () => {
    const sizes = field.value.split(/[^0-9]+/).filter(Boolean).map(Number);
    // Descriptions side by side are of one grid, where they have as many axes.
    change("grid", s => {
      for (const pane of s.panes) {
        const known = bench.known.get(pane.id);
        if (pane === s.panes[s.active] || known?.axes.length === facts.axes.length) pane.grid = sizes.length ? sizes : null;
      }
    });
  } });
  const made = control("grid", "grid", `tokens along ${facts.axes.join(", ")}`, [field], () => active().grid != null, () => set_view("grid", null));
  made.refresh = now => { if (document.activeElement !== field) field.value = (active().grid ?? now.grid).join(" × "); made.mark(); };
  return made;
}

function view_controls(facts) {
  return [["head", facts.heads], ["block", facts.blocks]].filter(([, count]) => count > 1).map(([what, count]) => {
    const menu = element_of("select", { class: "wide", onchange: () => set_view(what, menu.value === "" ? null : Number(menu.value)) },
      element_of("option", { value: "" }, "all"), ...Array.from({ length: Math.min(count, 256) }, (_, i) => element_of("option", { value: i }, String(i))));
    const made = control(what, what, `which ${what} is drawn`, [menu], () => active()[what] != null, () => set_view(what, null));
    made.refresh = () => { menu.value = active()[what] ?? ""; made.mark(); };
    return made;
  });
}

function seed_control() {
  const field = element_of("input", { class: "wide", inputmode: "numeric", onchange: () => set_view("seed", field.value === "" ? null : Math.max(0, Math.trunc(Number(field.value) || 0))) });
  const made = control("seed", "seed", "of operands that are drawn", [field], () => active().seed != null, () => set_view("seed", null));
  made.refresh = () => { field.value = active().seed ?? ""; field.placeholder = "0"; made.mark(); };
  return made;
}

function set_operand(name, value) {
  change(`operand ${name}`, s => {
    const { operands } = s.panes[s.active];
    if (value) operands[name] = value;
    else delete operands[name];
  });
}

function operand_control({ name, doc, shape }) {
  const given = () => active().operands[name];
  const kind = element_of("select", { onchange: () => {
    if (kind.value === "drawn") set_operand(name, null);
    else if (kind.value === "deviation") set_operand(name, { deviation: 0.5 });
    else file.click();
  } }, ...[["drawn", "as described"], ["deviation", "normal"], ["file", "from a file"]].map(([value, label]) => element_of("option", { value }, label)));
  const file = element_of("input", { type: "file", accept: ".npy,.safetensors", hidden: true, onchange: () => send(file.files[0]) });
  const field = element_of("input", { onchange: () => {
    const now = given();
    if (now?.file) set_operand(name, { ...now, tensor: field.value.trim() });
    else if (now) set_operand(name, { deviation: Number(field.value) });
  } });
  const from = element_of("small", {});
  async function send(chosen) {
    if (!chosen) return;
    try {
      const { file: kept } = await ask(`operand?name=${encodeURIComponent(chosen.name)}`, chosen);
      set_operand(name, { file: kept, tensor: kept.endsWith(".npy") ? "" : name, called: chosen.name });
    } catch (error) { status(error.message); }
  }
  const made = control(`operand-${name}`, name, `${doc}, [${shape.join(", ")}]; drop a .npy or .safetensors file here`, [kind, field], () => Boolean(given()), () => set_operand(name, null));
  made.append(file, from);
  made.ondragover = event => { event.preventDefault(); made.classList.add("drop"); };
  made.ondragleave = () => made.classList.remove("drop");
  made.ondrop = event => { event.preventDefault(); made.classList.remove("drop"); send(event.dataTransfer.files[0]); };
  made.refresh = facts => {
    const now = given();
    kind.value = now?.file ? "file" : now ? "deviation" : "drawn";
    field.disabled = !now || now.file?.endsWith(".npy");
    field.value = now?.file ? now.tensor : now?.deviation ?? "";
    field.placeholder = now?.file ? "tensor" : "";
    const source = facts.operands.find(operand => operand.name === name)?.from ?? "";
    from.textContent = now?.file ? `${now.called}: drop another here` : now ? `normal, of deviation ${now.deviation}` : source;
    made.mark();
  };
  return made;
}

function variants_control(settings) {
  const menu = element_of("select", { "aria-label": "Option to vary" }, element_of("option", { value: "" }, "no variants"),
    ...settings.map(({ name }) => element_of("option", {}, name)));
  const field = element_of("input", { class: "wide" });
  const apply = () => change("variants", s => {
    const values = menu.value ? field.value.match(/\[[^\]]*\]|[^,\[\]\s]+/g)?.map(value => value.replace(/[[\]\s]/g, "")) ?? [] : [];
    s.variants = values.length ? { option: menu.value, values: [...new Set(values)].slice(0, 9) } : null;
  });
  menu.onchange = () => { field.value = suggested(settings.find(({ name }) => name === menu.value)); apply(); };
  field.onchange = apply;
  const made = control("variants", "variants", "values of one option, side by side: 10, 100, 1000; of lists [8,12,12], [16,8,8]", [field],
    () => Boolean(bench.state.variants), () => change("variants", s => { s.variants = null; }));
  made.querySelector("label").replaceWith(menu);
  made.refresh = () => {
    menu.value = bench.state.variants?.option ?? "";
    field.disabled = !menu.value;
    if (document.activeElement !== field) field.value = bench.state.variants?.values.map(value => value.includes(",") ? `[${value}]` : value).join(", ") ?? "";
    made.mark();
  };
  return fieldset("Small multiples", [made]);
}

function suggested(setting) {
  if (!setting) return "";
  if (setting.choices) return setting.choices.join(", ");
  const value = Number(setting.default);
  if (setting.kind === "boolean") return "false, true";
  if (setting.kind === "number" && value > 0) return [value / 10, value, value * 10, value * 100].map(rounded).join(", ");
  return setting.kind === "integer" && value > 0 ? [value, 2 * value].join(", ") : setting.default;
}
