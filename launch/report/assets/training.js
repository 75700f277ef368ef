// A training: its steps, and the groups of a step with their samples side by side.

const rows_in = (group) => group.rows.map(row_of).filter(Boolean);

// What a list of rows came to; ungraded rows are in no figure but their count.
function figures_of(rows, cut) {
  const rewards = rows.filter((row) => row.reward !== null).map((row) => row.reward);
  const mean = rewards.length ? rewards.reduce((sum, value) => sum + value, 0) / rewards.length : null;
  const spread = rewards.length ? Math.sqrt(rewards.reduce((sum, value) => sum + (value - mean) ** 2, 0) / rewards.length) : null;
  return { rewards, mean, spread, lost: rows.length - rewards.length + cut, total: rows.length + cut };
}

const cut_of = (step) => step.groups.reduce((sum, group) => sum + group.cut, 0);
const step_figures = (step) => figures_of(step.groups.flatMap(rows_in), cut_of(step));
const spread_groups = (step) => step.groups.filter((group) => { const found = figures_of(rows_in(group), 0); return found.spread !== null && found.spread > 1e-9; }).length;
const step_name = (step) => (step.split === "train" ? `step ${number(step.step)}` : `${step.split} at step ${number(step.step)}`);
const step_place = (step) => `#/steps/${step.split}/${step.step}`;

// Mean reward by step: a line through the steps of one split.
function curve(steps) {
  const found = steps.map((step) => [step.step, step_figures(step).mean]).filter(([, mean]) => mean !== null);
  if (found.length < 2) return null;
  const [first, last] = [found[0][0], found[found.length - 1][0]];
  const values = found.map(([, mean]) => mean), low = Math.min(0, ...values), high = Math.max(...values, low + 1e-9);
  const points = found.map(([step, mean]) => `${(100 * (step - first) / (last - first)).toFixed(2)},${(98 - 96 * (mean - low) / (high - low)).toFixed(2)}`).join(" ");
  return h("div", { class: "plot" }, h("span", { class: "most" }, fixed(high)),
    s("svg", { class: "columns", viewBox: "0 0 100 100", preserveAspectRatio: "none", role: "img", "aria-label": `mean reward from ${fixed(values[0])} to ${fixed(values[values.length - 1])}` },
      s("polyline", { points, class: "stroke-one curve", "vector-effect": "non-scaling-stroke" })),
    h("div", { class: "ticks" }, h("span", { class: "from" }, `step ${number(first)}`), h("span", { class: "till" }, `step ${number(last)}`)));
}

function step_line(step) {
  const found = step_figures(step), groups = step.groups.filter((group) => group.rows.length).length;
  return h("tr", {}, h("th", { scope: "row" }, h("a", { href: step_place(step) }, step_name(step))),
    [fixed(found.mean), found.rewards.length ? `${fixed(Math.min(...found.rewards))} to ${fixed(Math.max(...found.rewards))}` : "–", number(groups), `${number(spread_groups(step))} of ${number(groups)}`, number(found.total)].map((cell) => h("td", { class: "figure" }, cell)),
    h("td", { class: "figure" }, found.lost ? h("span", { class: "chip tone-lost" }, number(found.lost)) : "0"));
}

function steps_list() {
  const steps = data.training;
  if (!steps.length) return h("main", { id: "steps" }, h("p", { class: "empty" }, `No step yet; ${plural(data.rows.length, "sample")} graded so far.`));
  const trained = steps.filter((step) => step.split === "train");
  const used = new Set(steps.flatMap((step) => step.groups.flatMap((group) => group.rows)));
  const open = data.rows.filter((row) => !used.has(row.number)).length;
  return h("main", { id: "steps" },
    section("Mean reward by step", "Over graded samples. Ungraded samples are in no figure and train with weight 0.", curve(trained) || h("p", { class: "muted" }, "A curve begins with the second step.")),
    open > 0 && h("p", { class: "note plain-note" }, `${plural(open, "sample")} in no step yet: of the step under way, or of a start that was taken back.`),
    section("Steps", "Groups with a spread are those that teach: where all graded siblings got the same reward, the advantage is 0.", h("div", { class: "wide" }, h("table", { class: "figures steps" },
      h("thead", {}, h("tr", {}, ["step", "mean reward", "least to most", "groups", "with a spread", "samples", "lost"].map((name, place) => h("th", { class: place ? "figure" : null }, name)))),
      h("tbody", {}, steps.slice().reverse().map(step_line))))));
}

function sibling(row, weight, mean) {
  const lost = row.reward === null;
  const against = lost || mean === null ? null : row.reward - mean;
  return h("a", { class: "card sibling" + (lost ? " lost" : ""), href: "#/row/" + row.number, "data-number": row.number },
    h("div", { class: "over" }, h("b", { class: "score" }, lost ? "lost" : fixed(row.reward)),
      against !== null && h("small", { title: "reward less the mean of the group's graded siblings" }, `${against >= 0 ? "+" : ""}${fixed(against)} against its group`), weight === 0 && !lost && h("small", {}, "weight 0")),
    chip(row.label), h("p", { class: "said" }, row.said || row.kind || "(empty)"), h("small", {}, `rollout ${row.rollout} · ${seconds(row.seconds)} · ${plural(row.tokens, "token")}`));
}

function group_card(group) {
  const rows = rows_in(group);
  if (!rows.length) return h("section", { class: "card" }, h("p", { class: "failure" }, `${plural(group.cut, "sample")} of this step left no row: cut off before the end of the episode.`));
  const found = figures_of(rows, group.cut);
  const head = found.mean === null ? "all lost" : `mean ${fixed(found.mean)}, spread ${fixed(found.spread)}`;
  return h("section", { class: "card group" }, h("h2", {}, group.task), rows[0].asked && h("p", { class: "about" }, rows[0].asked),
    h("p", { class: "small" }, `${head}; ${plural(rows.length, "sibling")}`, found.lost > 0 && h("span", {}, ", ", h("span", { class: "chip tone-lost" }, `${number(found.lost)} lost`))),
    h("div", { class: "siblings" }, rows.map((row) => sibling(row, group.weights[group.rows.indexOf(row.number)], found.mean))));
}

function step_view(split, step) {
  const place = data.training.findIndex((one) => one.split === split && one.step === step);
  if (place < 0) return h("main", {}, h("p", { class: "empty" }, "There is no such step, or a later start of the trainer took it back."));
  const same = data.training.filter((one) => one.split === split), at = same.findIndex((one) => one.step === step);
  const found = step_figures(same[at]);
  const to = (other, rel, word) => h("a", { href: other ? step_place(other) : "#/steps", rel, class: other ? "" : "off" }, word);
  return h("main", { id: "step" }, h("nav", { class: "crumbs" }, h("a", { href: "#/steps" }, "all steps"), to(same[at - 1], "prev", "‹ before"), to(same[at + 1], "next", "next ›")),
    h("div", { class: "title" }, h("h1", {}, step_name(same[at])), h("span", { class: "big" }, fixed(found.mean))),
    h("p", { class: "count" }, `${plural(found.total, "sample")} in ${plural(same[at].groups.filter((group) => group.rows.length).length, "group")}, ${number(found.lost)} lost`),
    same[at].groups.map(group_card));
}

function steps_view(place) {
  const [split, step] = place.split("/");
  return split && step ? step_view(split, Number(step)) : steps_list();
}
