// The first page.

const open_view = { slice: null, label: null, all_checks: false, all_metrics: false };

function tile(name, value, note, onclick) {
  return h(onclick ? "button" : "div", { class: "tile", type: onclick ? "button" : null, onclick }, h("span", {}, name), h("b", {}, value), h("small", {}, note || ""));
}

// What the terminal says of each judge: a figure of a judge that never qualified must not stand alone.
function judge_banner(judges) {
  return (judges || []).map((judge) => h("p", { class: "note" + (judge.state === "qualified" ? " good" : judge.state === "none" ? " plain-note" : "") + " judge-note", "data-state": judge.state }, judge.line));
}

function tiles(found) {
  const rows = found.rows;
  const top = found.labels[0];
  return h("div", { class: "tiles" },
    tile("graded", number(rows.graded), `of ${plural(rows.planned, "planned row")}`, () => go("rows", {})),
    found.reward && tile("mean reward", fixed(found.reward.value), found.reward.low !== null ? `95 %: ${interval(found.reward)}` : ""),
    found.headline && tile(words(found.headline.split("/").pop()), fixed(found.metrics[found.headline].value, 1), found.metrics[found.headline].low !== null ? `95 %: ${fixed(found.metrics[found.headline].low, 1)} to ${fixed(found.metrics[found.headline].high, 1)}` : ""),
    top && tile(words(top.name), percent(top.metric.value), top.metric.low !== null ? `95 %: ${percent(top.metric.low)} to ${percent(top.metric.high)}` : "", () => go("rows", { label: top.name })),
    rows.ungraded > 0 && tile("ungraded", number(rows.ungraded), "in no figure", () => go("rows", { label: "ungraded" })),
    rows.skipped > 0 && tile("skipped tasks", number(rows.skipped), "not valid", () => go("rows", { label: "skipped" })),
    rows.missing > 0 && tile("to do", number(rows.missing), "planned, no attempt yet"));
}

function label_section(found) {
  const lines = found.labels.map((share) => line_up(words(share.name), dot(share.metric, tone(share.name)), percent(share.metric.value), { onclick: () => go("rows", { label: share.name }) }, number(share.count)));
  return section("Labels", "Share of graded rows, with 95 % intervals clustered by task, or by what the environment names.", lines);
}

function slice_section(found) {
  const names = Object.keys(found.slices);
  if (!names.length || !found.labels.length) return null;
  const name = names.includes(open_view.slice) ? open_view.slice : names[0];
  const labels = found.labels.map((share) => share.name);
  const label = labels.includes(open_view.label) ? open_view.label : labels[0];
  const none = { value: 0, low: null, high: null };
  const lines = found.slices[name].map((part) => {
    const share = part.labels.find((one) => one.name === label);
    const bars = h("div", { class: "two" }, stack(labels.map((one) => [one, (part.labels.find((other) => other.name === one) || { count: 0 }).count, tone(one)]), part.rows),
      dot(share ? share.metric : none, tone(label)));
    return line_up(part.value, bars, percent(share ? share.metric.value : 0), { onclick: () => go("rows", { ["slice." + name]: part.value }) }, "of " + number(part.rows));
  });
  return section("Labels by slice", "Above: all labels. Below: the chosen label's share with its 95 % interval.",
    tabs(names, name, (chosen) => { open_view.slice = chosen; redraw(); }), tabs(labels, label, (chosen) => { open_view.label = chosen; redraw(); }), lines,
    key(labels.map((one) => [one, tone(one)])));
}

function reward_section(found) {
  return found.histogram && section("Rewards", "Graded rows by reward; press a column to see its rows.",
    reward_picture(found.histogram, (low, high) => go("rows", { low: String(low), high: String(high) })));
}

function policies_section(found) {
  const known = found.rewards.filter((reward) => reward.metric);
  if (known.length < 1) return null;
  const low = Math.min(0, ...known.map((reward) => reward.metric.low ?? reward.metric.value));
  const high = Math.max(1, ...known.map((reward) => reward.metric.high ?? reward.metric.value));
  return section("The same outcomes under each reward policy", "Mean over graded rows with its 95 % interval. No model was called for this: outcomes are kept, rewards are computed.",
    found.rewards.map((reward) => reward.metric
      ? line_up(reward.name + (reward.own ? " (this run)" : ""), dot(reward.metric, reward.own ? "one" : "plain", low, high), fixed(reward.metric.value), { title: reward.options || reward.name, class: "line" + (reward.own ? " own" : "") }, reward.refused ? `refuses ${number(reward.refused)}` : interval(reward.metric))
      : line_up(reward.name, h("span", { class: "muted" }, "cannot reward these outcomes"), "–", {})));
}

function trait_section(found) {
  if (!found.traits.length) return null;
  return section("What the reward goes with", "How much more reward a reply had with one unit more of a trait (a share from 0 to 1; the length doubled), with 95 % intervals. A trait is no verdict: where the reward goes with one that should not matter, read those replies.",
    h("div", { class: "wide" }, h("table", { class: "figures" }, h("thead", {}, h("tr", {}, ["trait", "mean", "reward for one more", "low", "high"].map((name, place) => h("th", { class: place ? "figure" : null }, name)))),
      h("tbody", {}, found.traits.map((trait) => h("tr", {}, h("th", { scope: "row", title: trait.what }, words(trait.name)),
        [trait.name === "length" ? `${number(Math.round(2 ** trait.mean - 1))} words` : percent(trait.mean), fixed(trait.paid.value), fixed(trait.paid.low), fixed(trait.paid.high)].map((cell) => h("td", { class: "figure" }, cell))))))));
}

function people_section(found) {
  return found.people.length > 0 && section("What people said", "Of questions that the judge was asked, labelled blind to its verdicts (gavel label).", h("ul", {}, found.people.map((line) => h("li", {}, line))));
}

function failure_section(found) {
  if (!found.failures.length) return null;
  const most = Math.max(...found.failures.map((failure) => failure.count));
  return section("Rows without a grade, by kind", "They are in no figure, and nothing became a 0.", found.failures.map((failure) => h("div", {},
    line_up(failure.kind, stack([[failure.kind, failure.count, "lost"]], most), number(failure.count), { onclick: () => go("rows", { kind: failure.kind }) }, failure.again ? "tried again on resume" : "final"),
    h("p", { class: "reason" }, failure.first))));
}

function service_section(found) {
  if (!found.services.length) return null;
  const cards = found.services.map((service) => {
    const total = service.made + service.cache + service.shared;
    const retries = Object.entries(service.retries).map(([kind, count]) => `${kind} ${number(count)}`).join(", ");
    return h("div", { class: "service" }, h("h3", {}, `${service.role}: ${service.service}`),
      stack([["calls", service.made, "one"], ["from the cache", service.cache, "good"], ["shared with an equal call", service.shared, "three"]], total),
      h("p", { class: "small" }, `${plural(service.made, "call")}, ${number(service.cache)} from the cache, ${number(service.shared)} shared`, total > service.made ? ` (${percent(1 - service.made / total)} saved)` : "",
        ` · ${number(service.prompt_tokens)} tokens in, ${number(service.completion_tokens)} out`),
      service.made > 0 && latency_picture(service),
      h("p", { class: "small" }, Object.entries(service.percentiles).map(([rank, value]) => `${rank} ${seconds(value)}`).join(" · "), retries && ` · failed attempts: ${retries}`));
  });
  const rules = found.without_judge > 0 && h("p", {}, `${plural(found.without_judge, "graded row")} needed no judge at all (${percent(found.without_judge / (found.rows.graded || 1))}).`);
  const whose = found.facts["rescore of"] ? "Calls of the parent (no model was called): " : found.facts["regrade of"] ? "Calls (all but the judge's are the parent's): " : "Calls: ";
  return section(whose + "latency and savings", null, rules, h("div", { class: "services" }, cards));
}

const CHECKS = 20;
function check_section(found) {
  const known = found.checks.filter((check) => check.metric);
  if (!known.length) return null;
  const shown = open_view.all_checks ? known : known.slice(0, CHECKS);
  return section("Checks: pass rates, the hardest first", "Over the rows in which the check was made; press one to see the rows that failed it.", shown.map((check) =>
    line_up(check.name, dot(check.metric, check.metric.value >= 0.5 ? "good" : "bad"), percent(check.metric.value), { onclick: () => go("rows", { check: check.name, mark: "0" }) },
      `${number(check.passed)}/${number(check.passed + check.failed)}` + (check.unknown ? `, ${number(check.unknown)} unknown` : ""))),
    known.length > CHECKS && h("button", { type: "button", class: "quiet", onclick: () => { open_view.all_checks = !open_view.all_checks; redraw(); } }, open_view.all_checks ? "show fewer" : `show all ${known.length}`));
}

function vera_sections(found) {
  return found.ratings && [section("Ratings by dimension", "Conversations by rating; the darker, the more of the dimension's.", rating_matrix(found.ratings)),
    section("The path of questions", "How many conversations were asked each question, what the judge answered, and which question came next.", question_path(found.ratings))];
}

function metric_section(found) {
  const metrics = Object.entries(found.metrics);
  if (!metrics.length) return null;
  const shown = metrics.filter(([name]) => open_view.all_metrics || !name.includes("@"));
  return section("Figures", found.stale ? "As of the last finished session: rows were added since." : "The environment's own, with 95 % intervals.",
    h("div", { class: "wide" }, h("table", { class: "figures" }, h("thead", {}, h("tr", {}, ["figure", "value", "low", "high", "n"].map((name, place) => h("th", { class: place ? "figure" : null }, name)))),
      h("tbody", {}, shown.map(([name, metric]) => h("tr", {}, h("th", { scope: "row" }, name), [fixed(metric.value), fixed(metric.low), fixed(metric.high), number(metric.n)].map((cell) => h("td", { class: "figure" }, cell))))))),
    shown.length < metrics.length || open_view.all_metrics ? h("button", { type: "button", class: "quiet", onclick: () => { open_view.all_metrics = !open_view.all_metrics; redraw(); } }, open_view.all_metrics ? "overall only" : `and ${metrics.length - shown.length} more by slice`) : null);
}

function overview_view() {
  const found = data.overview;
  const judge = [...new Set(Object.keys(found.facts).filter((name) => name.startsWith("judge (")).map((name) => found.facts[name]))].join(", ");
  const strip = { environment: found.facts.environment, policy: found.facts.policy, judge: judge || "no judge", reward: found.facts.reward };
  const facts = h("details", { class: "card facts-card" }, h("summary", {}, Object.entries(strip).filter(([, value]) => value).map(([name, value]) => h("span", { class: "fact" }, h("small", {}, name), value))), table_of(found.facts));
  const nothing = !data.rows.length && h("p", { class: "empty" }, "No row yet.");
  return h("main", { id: "overview" }, found.note && h("p", { class: "note" }, found.note), judge_banner(found.judges), facts, tiles(found), nothing,
    h("div", { class: "grid" }, [reward_section(found), label_section(found), vera_sections(found), slice_section(found), policies_section(found), people_section(found), trait_section(found), failure_section(found), check_section(found), service_section(found), metric_section(found)].flat().filter(Boolean)));
}
