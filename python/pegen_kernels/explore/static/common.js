// What the parts of the page share: elements, questions to the server, names of descriptions.
export function element(id) { return document.getElementById(id); }

// Texts are texts: nothing of a description becomes markup.
export function element_of(tag, attributes, ...inside) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made[name] = value;
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
  made.append(...inside.filter(part => part != null));
  return made;
}

async function answer_of(place, options) {
  let answer;
  try {
    answer = await fetch(place, options);
  } catch {
    const broken = element("broken");
    broken.textContent = "The server does not answer. What you typed is still here: take the .lua file away, or start pegen explore again.";
    broken.hidden = false;
    throw new Error("No answer");
  }
  element("broken").hidden = true;
  if (!answer.ok) {
    const told = await answer.text();
    let words = told;
    try { words = JSON.parse(told).error; } catch { /* plain text */ }
    throw new Error(words);
  }
  return answer;
}

// With something to say: POST.
export async function ask(place, what, method) {
  const options = what === undefined ? { method } : { method: "POST", body: what instanceof Blob ? what : JSON.stringify(what) };
  return (await answer_of(place, options)).json();
}

export async function ask_file(place, what) {
  return (await answer_of(place, { method: "POST", body: JSON.stringify(what) })).blob();
}

export function label_of(pane) {
  const options = Object.entries(pane.options).map(([name, value]) => `${name}=${value}`);
  return [pane.name, ...options].join(", ");
}

// What the server is asked about: all descriptions, the active one once for each variant. Labels differ.
export function panes_of(state) {
  const found = state.panes.flatMap((pane, i) => {
    if (!state.variants || i !== state.active) return [{ ...pane, of: pane.id }];
    return state.variants.values.map(value => ({ ...pane, of: pane.id,
      options: { ...pane.options, [state.variants.option]: value } }));
  });
  const taken = new Map();
  return found.slice(0, 12).map(pane => {
    const label = label_of(pane), count = (taken.get(label) ?? 0) + 1;
    taken.set(label, count);
    return { ...pane, label: count > 1 ? `${label} (${count})` : label };
  });
}

export function download(name, blob) {
  const link = element_of("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
