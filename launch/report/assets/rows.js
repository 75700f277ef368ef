// The list of rows: filters, search, order, pages.

const PAGE = 50;
const ORDERS = {
  "failures first": null,
  "reward, low to high": (one, other) => (one.reward ?? -Infinity) - (other.reward ?? -Infinity) || one.number - other.number,
  "reward, high to low": (one, other) => (other.reward ?? -Infinity) - (one.reward ?? -Infinity) || one.number - other.number,
  "as they came": (one, other) => one.number - other.number,
  "slowest first": (one, other) => other.seconds - one.seconds || one.number - other.number,
  "longest replies first": (one, other) => other.tokens - one.tokens || one.number - other.number,
};

const list = { filter: {}, found: [], took: 0 };

function filtered(filter) {
  const begun = performance.now();
  const tests = [];
  const query = (filter.q || "").toLowerCase().split(/\s+/).filter(Boolean);
  if (filter.label) tests.push((row) => row.label === filter.label);
  if (filter.kind) tests.push((row) => row.kind === filter.kind);
  if (filter.low) tests.push((row) => row.reward !== null && row.reward >= Number(filter.low) - 1e-6);
  if (filter.high) tests.push((row) => row.reward !== null && row.reward <= Number(filter.high) + 1e-6);
  if (filter.check) tests.push(check_test(filter.check, filter.mark || "0"));
  for (const [name, value] of Object.entries(filter)) {
    if (name.startsWith("slice.")) tests.push((row) => row.slices[name.slice(6)] === value);
  }
  for (const word of query) tests.push((row) => haystack(row).includes(word));
  let found = tests.length ? data.rows.filter((row) => tests.every((test) => test(row))) : data.rows;
  const order = ORDERS[filter.order];
  if (order) found = found.slice().sort(order);
  list.filter = filter;
  list.found = found;
  list.took = performance.now() - begun;
  document.documentElement.dataset.filterMs = list.took.toFixed(1);
  return found;
}

// Whether a row has this check with this mark; the places of a check's name are looked up once for each set of names.
function check_test(name, mark) {
  const places = new Map();
  return (row) => {
    if (!places.has(row.checks)) places.set(row.checks, row.checks.split("\n").flatMap((other, place) => (other === name ? [place] : [])));
    return places.get(row.checks).some((place) => row.marks[place] === mark);
  };
}

function choice(name, values, filter, any) {
  return h("label", { class: "choice" }, h("span", {}, words(name.replace("slice.", ""))),
    h("select", { name, onchange: (event) => go("rows", { ...filter, [name]: event.target.value, page: "" }) },
      h("option", { value: "" }, any), values.map(([value, word]) =>
        h("option", { value, selected: filter[name] === value }, word))));
}

function counted(pick) {
  const counts = new Map();
  for (const row of data.rows) {
    const value = pick(row);
    if (value) counts.set(value, (counts.get(value) || 0) + 1);
  }
  return [...counts].sort((one, other) => other[1] - one[1]).map(([value, count]) => [value, `${words(value)} (${number(count)})`]);
}

function filters(filter) {
  const search = h("input", { type: "search", name: "q", placeholder: "search ids, prompts, replies   ( / )", "aria-label": "search", value: filter.q || "" });
  let timer = null;
  search.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => go("rows", { ...list.filter, q: search.value, page: "" }, true), 120);
  });
  const kinds = counted((row) => row.kind);
  const checks = data.overview.checks.map((check) => [check.name, check.name]);
  return h("div", { class: "filters" }, search,
    choice("label", counted((row) => row.label), filter, "any"),
    kinds.length > 0 && choice("kind", kinds, filter, "any failure or none"),
    checks.length > 0 && choice("check", checks, filter, "any"),
    filter.check && choice("mark", [["0", "failed"], ["1", "passed"], ["-", "not checked"]], { mark: "0", ...filter }, "failed"),
    data.slices.map((name) => choice("slice." + name, counted((row) => row.slices[name]), filter, "any")),
    h("label", { class: "choice" }, h("span", {}, "reward"), h("span", { class: "pair" }, ["low", "high"].map((end) =>
      h("input", { type: "number", step: "any", name: end, placeholder: end === "low" ? "from" : "to", "aria-label": "reward " + end, value: filter[end] || "",
        onchange: (event) => go("rows", { ...filter, [end]: event.target.value, page: "" }) })))),
    choice("order", Object.keys(ORDERS).slice(1).map((name) => [name, name]), filter, "failures first"),
    Object.keys(filter).some((name) => name !== "order") && h("button", { type: "button", class: "quiet", onclick: () => go("rows", {}) }, "clear"));
}

function marks(row) {
  const names = row.checks.split("\n");
  if (row.marks.length > 8) {
    const passed = [...row.marks].filter((mark) => mark === "1").length;
    return h("span", { class: "marks", title: "checks passed" }, `${passed}/${row.marks.length}`);
  }
  return h("span", { class: "marks" }, [...row.marks].map((mark, place) =>
    h("i", { class: mark === "1" ? "yes" : mark === "0" ? "no" : "unknown", title: `${names[place]}: ${mark === "1" ? "passed" : mark === "0" ? "failed" : "not checked"}` },
      mark === "1" ? "✓" : mark === "0" ? "✗" : "·")));
}

function row_line(row) {
  return h("a", { class: "row", href: link("row/" + row.number, {}), "data-number": row.number },
    h("span", { class: "score" }, row.reward === null ? "–" : fixed(row.reward, 2)),
    chip(row.label, { title: row.kind || null, class: `chip tone-${tone(row.label)}` }),
    h("span", { class: "about" }, h("b", {}, row.task, row.rollout > 0 && h("small", {}, " · rollout " + row.rollout)),
      row.kind && h("em", {}, row.kind), h("span", { class: "asked" }, row.asked), h("span", { class: "said" }, row.said)),
    marks(row), h("span", { class: "took" }, seconds(row.seconds)));
}

function rows_view(filter) {
  const found = filtered(filter);
  const pages = Math.max(1, Math.ceil(found.length / PAGE));
  const page = Math.min(pages, Math.max(1, Number(filter.page) || 1));
  const shown = found.slice((page - 1) * PAGE, page * PAGE);
  const to = (number) => link("rows", { ...filter, page: number > 1 ? String(number) : "" });
  const pager = () => pages > 1 && h("nav", { class: "pager", "aria-label": "pages" },
    h("a", { href: to(1), class: page === 1 ? "off" : "" }, "first"), h("a", { href: to(Math.max(1, page - 1)), class: page === 1 ? "off" : "", rel: "prev" }, "‹ back"),
    h("span", {}, `page ${number(page)} of ${number(pages)}`),
    h("a", { href: to(Math.min(pages, page + 1)), class: page === pages ? "off" : "", rel: "next" }, "next ›"), h("a", { href: to(pages), class: page === pages ? "off" : "" }, "last"));
  const left_out = !data.meta.live && data.meta.rows > data.rows.length
    && h("p", { class: "note" }, `${number(data.meta.rows - data.rows.length)} more rows are not in this file; gavel view ${data.meta.run} shows all.`);
  return h("main", { id: "rows" }, filters(filter),
    h("p", { class: "count", "aria-live": "polite" }, found.length === data.rows.length ? plural(found.length, "row") : `${number(found.length)} of ${plural(data.rows.length, "row")}`),
    left_out, h("div", { class: "list" }, shown.map(row_line), !shown.length && h("p", { class: "empty" }, "No row fits these filters.")), pager());
}
