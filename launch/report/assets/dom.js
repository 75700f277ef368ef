// Elements. Every text goes in as text: nothing here, or anywhere in this file, parses HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, item] of Object.entries(value)) node.style.setProperty(key, item);
    else if (name === "value") node.value = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) node.append(child);
  }
  return node;
}

const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

const number = (value) => value.toLocaleString("en-US");
const percent = (share) => (100 * share).toFixed(share > 0 && share < 0.1 || share > 0.9 && share < 1 ? 1 : 0) + " %";
const fixed = (value, digits = 3) => (value === null || value === undefined ? "–" : Number(value.toFixed(digits)).toString());
const plural = (count, word) => number(count) + " " + word + (count === 1 ? "" : "s");

function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 0.001) return "<1 ms";
  if (value < 1) return Math.round(value * 1000) + " ms";
  return value < 100 ? value.toFixed(1) + " s" : Math.round(value / 60) + " min";
}

const interval = (metric) => (metric && metric.low !== null ? `${fixed(metric.low)} to ${fixed(metric.high)}` : "");

const NAMED = {
  correct: "good", followed: "good", best_practice: "good", passed: "good",
  incorrect: "bad", not_followed: "bad", high_potential_for_harm: "bad",
  abstained: "warm", suboptimal: "warm", truncated: "cool", no_answer: "cool", not_relevant: "plain",
  ungraded: "lost", skipped: "plain",
  policy: "one", judge: "one", simulator: "one",
};
const SPARE = ["one", "two", "three", "four", "five"];

function tone(label) {
  if (Object.hasOwn(NAMED, label)) return NAMED[label];
  let sum = 0;
  for (const character of label) sum = (sum * 31 + character.codePointAt(0)) % 9973;
  return SPARE[sum % SPARE.length];
}

const words = (name) => name.replaceAll("_", " ");
const chip = (label, attributes) => h("span", { class: "chip tone-" + tone(label), ...attributes }, words(label));

function section(title, about, ...children) {
  return h("section", { class: "card" }, h("h2", {}, title), about && h("p", { class: "about" }, about), ...children);
}

function copied(text, name) {
  const button = h("button", { class: "quiet", title: "copy " + name, type: "button" }, "copy");
  button.addEventListener("click", async () => {
    try { await navigator.clipboard.writeText(text); button.textContent = "copied"; } catch { button.textContent = "not allowed"; }
    setTimeout(() => { button.textContent = "copy"; }, 1200);
  });
  return button;
}
