// Two or more runs beside each other: how they differ, and the same task under each, those whose label changed first.

const compared = { filter: {}, found: [] };
const side = (row, run) => (row.labels[run] === null ? "not in this run" : row.labels[run]);

const short_of = (comparison, name) => comparison.short[comparison.names.indexOf(name)] || name;

// One scale for all panels: what is drawn longer is more, whichever run it is of. Its end is a round number.
function reach_of(items) {
  const most = Math.max(0.01, ...items.flatMap((item) => [item.metric.low, item.metric.high, item.metric.value].map((value) => Math.abs(value ?? 0))));
  const unit = 10 ** Math.floor(Math.log10(most));
  return unit * [1, 2, 5, 10].find((times) => times * unit >= most - 1e-9);
}

const signed = (value) => (value > 0 ? "+" : "") + fixed(value);
const scale = (reach) => h("div", { class: "line axis" }, h("span", { class: "name" }, "difference"),
  h("div", { class: "ends" }, [-reach, -reach / 2, 0, reach / 2, reach].map((value) => h("span", {}, value > 0 ? "+" + short(value) : short(value)))), h("span", { class: "value" }));
const short = (value) => String(Number(value.toPrecision(3))).replace("-", "−");
const clear_of = (metric) => (metric.low !== null && (metric.low > 0 || metric.high < 0) ? (metric.value > 0 ? "one" : "four") : "plain");

// One line for each run: its mean reward, and how it differs from the base's over the tasks both have.
function summary(comparison, reach) {
  const items = comparison.found.differences.filter((item) => item.what === "reward" && item.metric.n > 0);
  if (!items.length) return null;
  return section("Mean reward of each run", `Bars: less that of ${short_of(comparison, comparison.found.base)}, ${comparison.intervals}.`,
    line_up(short_of(comparison, comparison.found.base), h("span", { class: "muted" }, "the base"), fixed(items[0].base_mean), { class: "line own" }),
    items.map((item) => line_up(short_of(comparison, item.other), dot(item.metric, clear_of(item.metric), -reach, reach), fixed(item.other_mean),
      { title: `${item.other}: ${item.metric.n} tasks` }, signed(item.metric.value))), scale(reach));
}

function differences(comparison) {
  const known = comparison.found.differences.filter((item) => item.metric.n > 0);
  const reach = reach_of(known);
  const others = [...new Set(comparison.found.differences.map((item) => item.other))];
  return [summary(comparison, reach), others.map((other) => {
    const items = known.filter((item) => item.other === other);
    return section(`${short_of(comparison, other)} less ${short_of(comparison, comparison.found.base)}`, `Paired by task; mean differences, ${comparison.intervals}. Left of the middle: less than the base.`,
      items.map((item) => {
        const p = item.p_holm !== null ? `p ${fixed(item.p_holm)}` : interval(item.metric);
        return line_up(words(item.what), dot(item.metric, clear_of(item.metric), -reach, reach), signed(item.metric.value), { class: "line" + (item.what === "reward" ? " own" : ""), title: `${fixed(item.base_mean)} and ${fixed(item.other_mean)}, ${item.metric.n} tasks` }, p);
      }), scale(reach));
  })];
}

function moves(comparison, run) {
  const counts = new Map();
  for (const row of comparison.rows) counts.set(`${side(row, 0)}\n${side(row, run)}`, (counts.get(`${side(row, 0)}\n${side(row, run)}`) || 0) + 1);
  const from = [...new Set(comparison.rows.map((row) => side(row, 0)))].sort(), to = [...new Set(comparison.rows.map((row) => side(row, run)))].sort();
  const most = Math.max(...counts.values());
  return section(`From ${comparison.short[0]} to ${comparison.short[run]}`, "Rows by their label in both runs; press a cell to see them.", h("div", { class: "wide" }, h("table", { class: "matrix" },
    h("thead", {}, h("tr", {}, h("th", {}, `${comparison.short[0]} ↓`), to.map((label) => h("th", { scope: "col" }, words(label))))),
    h("tbody", {}, from.map((before) => h("tr", {}, h("th", { scope: "row" }, words(before)), to.map((after) => {
      const count = counts.get(`${before}\n${after}`) || 0;
      return h("td", { class: "cell" }, h("i", { class: "back-" + (before === after ? "plain" : tone(after)), style: { opacity: (count ? 0.15 + 0.65 * count / most : 0).toFixed(3) } }),
        count ? h("a", { href: link("compare", { from: before, to: after, run: String(run) }) }, h("b", {}, number(count))) : h("b", { class: "muted" }, "·"));
    })))))));
}

// A run: what tells it from the others stands large, its whole name where the mouse rests.
function named_tile(what, short, name, judge) {
  return h("div", { class: "tile run", title: `${name}, judged by ${judge}` }, h("span", {}, what), h("b", {}, short), h("small", {}, "judge: " + judge));
}

function comparison_view() {
  const comparison = data.comparison;
  const flips = comparison.rows.filter((row) => row.flip).length;
  return h("main", { id: "overview" }, data.overview.note && h("p", { class: "note" }, data.overview.note),
    h("div", { class: "tiles" }, comparison.names.map((name, place) => named_tile(place ? "against it" : "base", comparison.short[place], name, comparison.judges[place])),
      tile("rows", number(comparison.rows.length)), tile("label changed", number(flips), percent(flips / (comparison.rows.length || 1)), () => go("compare", { flips: "yes" }))),
    comparison.notes.length > 0 && h("div", { class: "note" }, comparison.notes.map((note) => h("p", {}, note))),
    h("div", { class: "grid" }, differences(comparison), comparison.names.slice(1).map((_, place) => moves(comparison, place + 1))));
}

function compared_rows(filter) {
  const run = Number(filter.run) || 1;
  const query = (filter.q || "").toLowerCase();
  compared.filter = filter;
  compared.found = data.comparison.rows.filter((row) => (!filter.flips || row.flip) && (!filter.from || side(row, 0) === filter.from) && (!filter.to || side(row, run) === filter.to)
    && (!query || row.task.toLowerCase().includes(query)));
  return compared.found;
}

function compare_list(filter) {
  const found = compared_rows(filter);
  const pages = Math.max(1, Math.ceil(found.length / PAGE));
  const page = Math.min(pages, Math.max(1, Number(filter.page) || 1));
  const to = (number) => link("compare", { ...filter, page: number > 1 ? String(number) : "" });
  const search = h("input", { type: "search", name: "q", placeholder: "search task ids   ( / )", "aria-label": "search", value: filter.q || "", oninput: (event) => go("compare", { ...filter, q: event.target.value, page: "" }, true) });
  return h("main", { id: "rows" }, h("div", { class: "filters" }, search,
    h("button", { type: "button", class: "quiet", onclick: () => go("compare", filter.flips ? {} : { flips: "yes" }) }, filter.flips ? "all rows" : "changed labels only"),
    (filter.from || filter.to) && h("span", { class: "muted" }, `${words(filter.from || "any")} → ${words(filter.to || "any")} `, h("a", { href: link("compare", {}) }, "clear"))),
    h("p", { class: "count" }, plural(found.length, "row")),
    h("div", { class: "list" }, found.slice((page - 1) * PAGE, page * PAGE).map((row) => h("a", { class: "row pairs", href: link("compare/" + row.number, {}) },
      h("span", { class: "about" }, h("b", {}, row.task, row.rollout > 0 && h("small", {}, " · rollout " + row.rollout)), h("span", { class: "asked" }, row.asked)),
      h("span", { class: "over" }, row.labels.map((label, place) => [place > 0 && "→", chip(side(row, place)), h("small", {}, row.rewards[place] === null ? "–" : fixed(row.rewards[place], 2))])))),
      !found.length && h("p", { class: "empty" }, "No row fits.")),
    pages > 1 && h("nav", { class: "pager" }, h("a", { href: to(Math.max(1, page - 1)), class: page === 1 ? "off" : "", rel: "prev" }, "‹ back"), h("span", {}, `page ${number(page)} of ${number(pages)}`), h("a", { href: to(Math.min(pages, page + 1)), class: page === pages ? "off" : "", rel: "next" }, "next ›")));
}

function compare_view(rest, filter) {
  if (!rest) return compare_list(filter);
  const row = data.comparison.rows.find((one) => one.number === Number(rest));
  if (!row) return h("main", {}, h("p", { class: "empty" }, "There is no such row."));
  if (!compared.found.length) compared_rows(compared.filter);
  const place = compared.found.indexOf(row);
  const step = (other, word, rel) => (other ? h("a", { href: link("compare/" + other.number, {}), rel }, word) : h("span", { class: "off" }, word));
  const pair = block("pair-" + row.number);
  const cards = data.comparison.names.map((name, run) => {
    const story = pair && pair[run] && { ...pair[run], heads: data.heads[run] };
    return h("div", {}, section(name, null, h("div", { class: "title" }, chip(side(row, run)), h("span", { class: "big" }, row.rewards[run] === null ? "no reward" : fixed(row.rewards[run])))),
      story ? [story.failure && h("div", { class: "failure" }, h("b", {}, story.failure.kind), h("p", {}, story.failure.reason)), section("Transcript", null, transcript(story)),
        story.checks.length > 0 && section("Checks", null, h("ul", { class: "checks" }, story.checks.map((check) => check_line(check, () => null)))),
        story.steps.length > 0 && section("The path of questions", null, walk(story.steps, () => null)), judged_section(story), section("Reward", null, reward_table(story))]
        : h("p", { class: "note" }, pair ? "This run has no such row." : "This row's texts are not in this file, which holds the changed rows first."));
  });
  return h("main", { id: "story" }, h("nav", { class: "crumbs" }, h("a", { href: link("compare", compared.filter) }, "‹ tasks"), h("span", { class: "muted" }, place >= 0 ? `${number(place + 1)} of ${number(compared.found.length)}` : ""),
    step(compared.found[place - 1], "‹ before", "prev"), step(place < 0 ? undefined : compared.found[place + 1], "after ›", "next")),
    h("header", { class: "title" }, h("h1", {}, row.task, h("small", {}, ` rollout ${row.rollout}`))), data.overview.note && h("p", { class: "note" }, data.overview.note), h("div", { class: "side" }, cards));
}
