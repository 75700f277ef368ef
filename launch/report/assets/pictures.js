// Pictures: SVG that stretches to the width there is; words stand beside it as HTML, so that they stay readable on a phone.

const picture = (label, height, ...parts) =>
  s("svg", { class: "bar", viewBox: `0 0 100 ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label }, ...parts);

const rect = (x, width, kind, height = 10, y = 0) => s("rect", { x, y, width: Math.max(width, 0), height, class: kind });
const line = (x1, x2, y1, y2, kind) => s("line", { x1, x2, y1, y2, class: kind, "vector-effect": "non-scaling-stroke" });

function line_up(name, bar, value, attributes, note) {
  const tag = attributes && attributes.onclick ? "button" : "div";
  return h(tag, { class: "line", type: tag === "button" ? "button" : null, ...attributes },
    h("span", { class: "name", title: name }, name), bar, h("span", { class: "value" }, value, note && h("small", {}, note)));
}

// A value in [low, high] with its interval.
function dot(metric, kind, low = 0, high = 1) {
  const at = (value) => 100 * (value - low) / (high - low || 1);
  const parts = [line(0, 100, 5, 5, "axis")];
  if (low < 0 && high > 0) parts.push(line(at(0), at(0), 0, 10, "axis"));
  if (metric.low !== null) parts.push(rect(at(metric.low), at(metric.high) - at(metric.low), "span fill-" + kind, 4, 3));
  parts.push(line(at(metric.value), at(metric.value), 0.5, 9.5, "mark stroke-" + kind));
  return picture(`${fixed(metric.value)}, 95 % interval ${interval(metric)}`, 10, ...parts);
}

// Shares of a whole: [[name, count, kind], …].
function stack(parts, total) {
  let at = 0;
  const bars = parts.filter(([, count]) => count > 0).map(([name, count, kind]) => {
    const width = 100 * count / (total || 1);
    const bar = rect(at, width, "fill-" + kind);
    bar.append(s("title", {}, `${words(name)}: ${number(count)} (${percent(count / total)})`));
    at += width;
    return bar;
  });
  return picture(parts.map(([name, count]) => `${words(name)} ${count}`).join(", "), 10, rect(0, 100, "empty"), ...bars);
}

const key = (parts) => h("p", { class: "key" }, parts.map(([name, kind]) =>
  h("span", {}, h("i", { class: "back-" + kind }), words(name))));

// Columns: counts by label, of shape (labels, bins); ticks are pairs of a place in [0, 1] and a word.
function columns(counts, ticks, titles, unit, onclick) {
  const labels = Object.keys(counts);
  const bins = labels.length ? counts[labels[0]].length : 0;
  const sums = Array.from({ length: bins }, (_, bin) => labels.reduce((sum, label) => sum + counts[label][bin], 0));
  const most = Math.max(1, ...sums);
  const width = 100 / bins;
  const bars = [];
  for (let bin = 0; bin < bins; bin++) {
    let top = 100;
    const group = s("g", onclick ? { class: "press", onclick: () => onclick(bin) } : {}, rect(bin * width, width, "ghost", 100));
    for (const label of labels) {
      const height = 98 * counts[label][bin] / most;
      top -= height;
      if (height) group.append(rect(bin * width + 0.08 * width, 0.84 * width, "fill-" + tone(label), Math.max(height, 0.6), top));
    }
    group.append(s("title", {}, titles[bin] + ": " + number(sums[bin])));
    bars.push(group);
  }
  const drawn = s("svg", { class: "columns", viewBox: "0 0 100 100", preserveAspectRatio: "none", role: "img",
    "aria-label": titles.map((title, bin) => `${title}: ${sums[bin]}`).join(", ") }, ...bars);
  return h("div", { class: "plot" }, h("span", { class: "most" }, plural(most, unit)), drawn,
    h("div", { class: "ticks" }, ticks.map(([place, word]) =>
      h("span", { style: { left: 100 * place + "%" } }, word))));
}

function reward_picture(histogram, onclick) {
  const bins = Object.values(histogram.counts)[0].length;
  const own = histogram.edges.length === bins;
  const titles = Array.from({ length: bins }, (_, bin) =>
    own ? "reward " + fixed(histogram.edges[bin]) : `reward ${fixed(histogram.edges[bin])} to ${fixed(histogram.edges[bin + 1])}`);
  const step = Math.ceil(histogram.edges.length / 8);
  const ticks = histogram.edges.map((edge, place) => [own ? (place + 0.5) / bins : place / bins, fixed(edge, 2)]).filter((_, place) => place % step === 0);
  return h("div", {}, columns(histogram.counts, ticks, titles, "row", (bin) =>
    onclick(histogram.edges[bin], own ? histogram.edges[bin] : histogram.edges[bin + 1])),
    key(Object.keys(histogram.counts).map((label) => [label, tone(label)])));
}

const LATENCY_START = -12;
function latency_picture(service) {
  const first = service.latency.findIndex((count) => count > 0);
  const last = service.latency.findLastIndex((count) => count > 0);
  const from = Math.max(0, first - 1), to = Math.min(service.latency.length, last + 2);
  const counts = service.latency.slice(from, to);
  const edge = (bin) => seconds(10 ** ((LATENCY_START + bin - 1) / 4));
  const titles = counts.map((_, place) => place + from === 0 ? "under 1 ms" : `${edge(place + from)} to ${edge(place + from + 1)}`);
  const step = Math.ceil(counts.length / 5);
  const ticks = counts.map((_, place) => [place / counts.length, edge(place + from)]).filter((_, place) => place % step === 0 && place > 0);
  return columns({ [service.role]: counts }, ticks, titles, "call", null);
}

function tabs(names, chosen, choose) {
  return h("div", { class: "tabs", role: "tablist" }, names.map((name) =>
    h("button", { type: "button", role: "tab", "aria-selected": String(name === chosen), onclick: () => choose(name) }, words(name))));
}
