// One row's story.

const long = (text) => text.length > 4000 || text.split("\n").length > 40;

// Text as it is; a long one is folded to its beginning.
function prose(text, kind) {
  const body = h("pre", { class: "text " + (kind || "") }, text || "(empty)");
  if (!long(text || "")) return body;
  body.classList.add("cut");
  const more = h("button", { type: "button", class: "quiet", onclick: () => { body.classList.toggle("cut"); more.textContent = body.classList.contains("cut") ? "show all" : "show less"; } }, "show all");
  return h("div", {}, body, more);
}

const fold = (title, open, ...children) => h("details", { open }, h("summary", {}, title), ...children);

function bubble(message) {
  const who = message.policy ? "policy" : message.role;
  const facts = [message.model, message.tokens !== null && message.tokens !== undefined && plural(message.tokens, "token"), message.finish && message.finish !== "stop" && "ended: " + message.finish].filter(Boolean);
  return h("article", { class: "bubble " + (message.policy ? "ours" : message.role === "system" ? "system" : "theirs") },
    h("header", {}, h("b", {}, who), h("small", {}, facts.join(" · ")), copied(message.text, "text")),
    message.reasoning && fold("reasoning", false, prose(message.reasoning, "muted")), prose(message.text));
}

const content_note = (what) => h("summary", {}, h("b", {}, "Content note: "), data.overview.content_note, h("span", { class: "muted" }, `. Open ${what}.`));

function transcript(story) {
  const bubbles = story.messages.map(bubble);
  if (!bubbles.length) return h("p", { class: "muted" }, "No message was exchanged.");
  const note = data.overview.content_note;
  return note ? h("details", { class: "sensitive" }, content_note(plural(bubbles.length, "message")), bubbles) : h("div", {}, bubbles);
}

const mark_of = (passed) => (passed === true ? ["yes", "✓", "passed"] : passed === false ? ["no", "✗", "failed"] : ["unknown", "·", "not checked"]);

// What was said about a sensitive text may quote it.
const guarded = (node) => (data.overview.content_note ? fold("why", false, node) : node);

function check_line(check, jump) {
  const [kind, sign, word] = mark_of(check.passed);
  const facts = Object.entries(check.facts || {}).filter(([, value]) => value !== false && value !== null && value !== "").map(([name, value]) => `${words(name)} ${value}`).join(" · ");
  return h("li", { class: "check" }, h("i", { class: kind, title: word }, sign),
    h("div", {}, h("b", {}, check.name), check.score !== 0 && check.score !== 1 && h("small", {}, " score " + fixed(check.score)), jump(check.receipts),
      check.detail && guarded(h("p", {}, check.detail)), facts && h("p", { class: "muted small" }, facts)));
}

function prompt(story, message) {
  const head = message.head === null ? null : story.heads[message.head];
  return h("div", { class: "prompt" }, h("header", {}, h("b", {}, message.role)),
    head !== null && head !== undefined && fold(`the rubric's fixed text, ${plural(head.split("\n").length - 1, "line")}`, false, h("pre", { class: "text muted" }, head)),
    prose(story.texts[message.text]));
}

function judge_answer(story, answer, place) {
  const asked = answer.prompt ? answer.prompt.map((message) => prompt(story, message))
    : [h("p", { class: "muted" }, "The rubric is not at hand, or has changed since; these texts were put into it."),
      Object.entries(answer.slots || {}).map(([name, text]) => h("div", { class: "prompt" }, h("header", {}, h("b", {}, name)), prose(story.texts[text])))];
  return h("div", { class: "judged", id: "judged-" + place, "data-calls": answer.calls.join(" ") },
    h("p", {}, h("b", {}, answer.binding), " ", h("span", { class: "muted" }, answer.profile)),
    fold("judge prompt", false, ...asked.flat()), h("p", { class: "label" }, "raw reply"), prose(answer.raw, "reply"));
}

function reward_table(story) {
  if (!story.reward) {
    return h("p", {}, "No reward: an ungraded row has none. Its fallback 0.0 is for masked slots only and is averaged into nothing.");
  }
  const rows = story.rewards.map((reward) => {
    const terms = Object.entries(reward.components || {}).filter(([, value]) => value !== 0);
    const sum = reward.refused ? h("span", { class: "muted" }, reward.refused)
      : h("span", {}, terms.length ? terms.map(([name, value], place) => h("span", { class: "term" }, place > 0 && (value < 0 ? " − " : " + "), `${words(name)} ${fixed(place > 0 ? Math.abs(value) : value)}`)) : h("span", { class: "muted" }, "every part is 0"));
    return h("tr", { class: reward.own ? "own" : "" }, h("th", { scope: "row" }, reward.name, reward.own && h("span", { class: "chip tone-one" }, "this run"),
      reward.options && h("small", {}, reward.options)), h("td", {}, sum), h("td", { class: "figure" }, reward.refused ? "–" : fixed(reward.value)));
  });
  return h("div", { class: "wide" }, h("table", { class: "rewards" }, h("thead", {}, h("tr", {}, h("th", {}, "policy"), h("th", {}, "made of"), h("th", { class: "figure" }, "reward"))), h("tbody", {}, rows)));
}

function receipts(story) {
  if (!story.receipts.length) return h("p", { class: "muted" }, "No model was called.");
  const rows = story.receipts.map((receipt) => {
    const usage = receipt.usage || {};
    const how = receipt.cache_hit ? "cache" : receipt.shared ? "shared" : plural((receipt.attempts || []).length, "attempt");
    const tried = (receipt.attempts || []).map((attempt) => `${attempt.outcome}${attempt.status ? " " + attempt.status : ""} ${seconds(attempt.latency_s)}${attempt.reason ? ": " + attempt.reason : ""}`).join("\n");
    return h("tr", { id: "call-" + receipt.call_id }, [receipt.role, receipt.service, receipt.served_model || receipt.requested_model, receipt.finish_reason || "–",
      `${usage.prompt_tokens ?? "?"} / ${usage.completion_tokens ?? "?"}`, seconds(receipt.latency_s)].map((cell) => h("td", {}, cell)),
    h("td", { title: tried }, how), h("td", {}, h("code", { title: Object.entries(receipt).filter(([name]) => name.endsWith("digest") || name === "response_id").map((pair) => pair.join(": ")).join("\n") }, receipt.call_id), receipt.notes && h("small", {}, " " + receipt.notes.join(", "))));
  });
  return h("div", { class: "wide" }, h("table", { class: "calls" }, h("thead", {}, h("tr", {}, ["role", "service", "model", "finish", "tokens in / out", "time", "how", "call"].map((name) => h("th", {}, name)))), h("tbody", {}, rows)));
}

function earlier(story) {
  return story.earlier.length > 0 && section("Earlier attempts", null, h("ul", {}, story.earlier.map((attempt) => h("li", {}, h("b", {}, `attempt ${attempt.attempt}: `),
    attempt.failure ? `${attempt.failure.kind} at ${attempt.failure.stage}: ${attempt.failure.reason}` : words(attempt.label)))));
}

const table_of = (object) => h("dl", { class: "facts" }, Object.entries(object).filter(([, value]) => value !== null && value !== "").map(([name, value]) =>
  [h("dt", {}, words(name)), h("dd", {}, shown(value))]));

// A value of any shape, small where it is simple.
function shown(value) {
  if (value === null || typeof value !== "object") return String(value);
  const parts = Object.entries(value);
  if (Array.isArray(value) && value.every((part) => part === null || typeof part !== "object")) return value.join(", ") || "none";
  if (!Array.isArray(value) && parts.every(([, part]) => part === null || typeof part !== "object")) {
    return parts.filter(([, part]) => part !== "" && part !== null).map(([name, part]) => h("div", {}, h("span", { class: "muted" }, name + ": "), String(part)));
  }
  return h("pre", { class: "text small" }, JSON.stringify(value, null, 1));
}

// A button for each judge answer that one of these calls gave.
function jumps(story) {
  const by_call = new Map(story.answers.flatMap((answer, place) => answer.calls.map((call) => [call, place])));
  return (calls) => [...new Set((calls || []).map((call) => by_call.get(call)).filter((place) => place !== undefined))].map((place) =>
    h("button", { type: "button", class: "quiet", title: "what the judge was asked and said", onclick: () => {
      const card = document.getElementById("judged-" + place);
      for (let above = card.parentElement; above; above = above.parentElement) if (above.tagName === "DETAILS") above.open = true;
      card.scrollIntoView({ block: "start", behavior: "smooth" });
      card.classList.add("flash");
    } }, "judge ↓"));
}

function judged_section(story) {
  if (!story.answers.length) return story.raw && section("What the judge said", null, prose(story.raw, "reply"));
  const cards = story.answers.map((answer, place) => judge_answer(story, answer, place));
  const sensitive = data.overview.content_note;
  const many = cards.length > 4 || sensitive;
  return section("What the judge was asked and said", null, many ? h("details", { class: sensitive ? "sensitive" : "" }, sensitive ? content_note(plural(cards.length, "question")) : h("summary", {}, plural(cards.length, "question")), cards) : cards);
}

function story_body(row, story) {
  const jump = jumps(story);
  const failure = story.failure;
  return [
    failure && h("div", { class: "failure" }, h("b", {}, failure.kind), ` at ${failure.stage}`, h("p", {}, failure.reason)),
    h("div", { class: "columns-2" },
      h("div", {}, section("Transcript", null, transcript(story)), story.steps.length > 0 && section("The path of questions", null, walk(story.steps, jump)), judged_section(story),
        story.target && section("Task", null, fold("target", false, table_of(story.target)), table_of(story.metadata))),
      h("div", {}, section("Reward", null, reward_table(story)),
        story.checks.length > 0 && section("Checks", null, h("ul", { class: "checks" }, story.checks.map((check) => check_line(check, jump)))),
        Object.keys(story.details).length > 0 && section("Outcome", null, table_of(story.details)),
        earlier(story),
        section("Where and when", null, table_of({ started: new Date(story.timing.started * 1000).toLocaleString(), "policy time": seconds(story.timing.policy_s), "step time": seconds(story.timing.step_s), total: seconds(story.timing.total_s), ...story.digests })))),
    section("Calls", null, receipts(story)),
  ];
}

function neighbours(row) {
  if (!list.found.length) filtered(list.filter);
  const place = list.found.indexOf(row);
  return [list.found[place - 1], place < 0 ? undefined : list.found[place + 1], place];
}

function story_view(id) {
  const row = row_of(id);
  if (!row) return h("main", {}, h("p", { class: "empty" }, "There is no such row."));
  const [before, after, place] = neighbours(row);
  const step = (other, word, rel) => other ? h("a", { href: link("row/" + other.number, {}), rel }, word) : h("span", { class: "off" }, word);
  const body = h("div", {}, h("p", { class: "muted" }, "…"));
  story_of(id).then((story) => body.replaceChildren(...(story ? story_body(row, story).filter(Boolean) : [
    h("p", { class: "note" }, `This row's texts are not in this file, which holds ${number(data.meta.stories)} rows' stories, failures first. gavel view ${data.meta.run} shows every row.`)])))
    .catch((failed) => body.replaceChildren(h("p", { class: "note" }, "This row could not be read: " + failed.message)));
  return h("main", { id: "story" },
    h("nav", { class: "crumbs" }, h("a", { href: link("rows", list.filter) }, "‹ rows"), h("span", { class: "muted" }, place >= 0 ? `${number(place + 1)} of ${number(list.found.length)}` : ""), step(before, "‹ before", "prev"), step(after, "after ›", "next")),
    h("header", { class: "title" }, chip(row.label), h("h1", {}, row.task, h("small", {}, ` rollout ${row.rollout}, attempt ${row.attempt}`)),
      h("span", { class: "big" }, row.reward === null ? "no reward" : fixed(row.reward))),
    data.overview.note && h("p", { class: "note" }, data.overview.note), body);
}
