// One question a screen. What is pressed is sent at once; the next question comes when it is kept.

const data = JSON.parse(document.getElementById("labelling").textContent);
const app = document.getElementById("app");
const questions = data.questions;
const history_of = [];
const first_open = () => questions.findIndex((question) => !question.said);
const drafts = new Map();
let place = Math.max(first_open(), 0), noting = false, problem = "", busy = false;

async function say(label) {
  const question = questions[place];
  if (busy || !question) return;
  busy = true;
  keep_draft();
  const note = note_of(question);
  try {
    const answer = await fetch("/label", { method: "POST", headers: { "Content-Type": "application/json", "X-Gavel-Token": data.token }, body: JSON.stringify({ key: question.key, label, note }) });
    if (!answer.ok) throw new Error(await answer.text());
    question.said = (await answer.json()).said;
    problem = "";
    noting = false;
    if (label !== null) { history_of.push(place); place = next_from(place); }
  } catch (failed) { problem = "not kept: " + failed.message + " – press again"; }
  busy = false;
  draw();
}

function next_from(from) {
  for (let step = 1; step <= questions.length; step += 1) {
    const other = (from + step) % questions.length;
    if (!questions[other].said) return other;
  }
  return questions.length;
}

async function undo() {
  if (!history_of.length) return move(-1);
  place = history_of.pop();
  await say(null);
}

// A note is kept with the label; until then it waits here, whatever is looked at meanwhile.
function keep_draft() {
  const field = document.querySelector("textarea");
  if (field && questions[place]) drafts.set(questions[place].key, field.value);
}

const note_of = (question) => drafts.get(question.key) ?? ((question.said || {}).note || "");

function move(by) {
  keep_draft();
  place = Math.min(Math.max(place + by, 0), questions.length);
  noting = false;
  draw();
}

function note() {
  keep_draft();
  noting = !noting;
  draw();
  if (noting) document.querySelector("textarea").focus();
}

function choice(key, name, pressed, onclick, other) {
  return h("button", { type: "button", class: "choice" + (other ? " other" : ""), "aria-pressed": pressed ? "true" : "false", onclick }, h("kbd", {}, key), name);
}

function question_view(question) {
  const said = question.said || {};
  const slots = Object.entries(question.slots).map(([name, text]) => h("section", { class: "card slot" }, h("h3", {}, words(name)), h("p", { class: "text" }, text)));
  return [slots,
    noting && h("section", { class: "card" }, h("h3", {}, "note"), h("textarea", { rows: 3, value: note_of(question), "aria-label": "note" }), h("small", {}, "It is kept with the label; Esc closes it.")),
    note_of(question) && !noting && h("p", { class: "small" }, "note: " + note_of(question)),
    h("div", { class: "choices" }, data.labels.map((label, number) => choice(String(number + 1), words(label), question.said && said.label === label, () => say(label))),
      choice("s", "skip", question.said && said.label === "", () => say(""), true), choice("n", "note", false, note, true), choice("u", "undo", false, undo, true))];
}

function draw() {
  const done = questions.filter((question) => question.said).length;
  const question = questions[place];
  document.documentElement.dataset.place = String(place);
  document.documentElement.dataset.done = String(done);
  app.replaceChildren(h("main", { class: "labelling" },
    data.note && h("p", { class: "note" }, data.note),
    h("div", { class: "where" }, h("b", {}, data.run), h("span", {}, data.binding), h("span", {}, data.annotator), h("progress", { max: questions.length, value: done }), h("span", {}, `${number(done)} of ${number(questions.length)}`), h("span", {}, h("kbd", {}, "←"), " ", h("kbd", {}, "→"), " look back and on")),
    problem && h("p", { class: "problem", role: "alert" }, problem),
    question ? question_view(question) : h("section", { class: "card empty" }, h("h2", {}, done === questions.length ? "All questions have a label." : `${number(questions.length - done)} left open.`), h("p", {}, "What was said stands in the run's folder; the terminal says how it agrees when you end it with Ctrl-C."))));
  document.documentElement.dataset.ready = "yes";
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.tagName === "TEXTAREA") { if (event.key === "Escape") { event.preventDefault(); note(); } return; }
  const label = data.labels[Number(event.key) - 1];
  if (/^[1-9]$/.test(event.key) && label) say(label);
  else if (event.key === "s") say("");
  else if (event.key === "u" || event.key === "Backspace") undo();
  else if (event.key === "n") note();
  else if (event.key === "ArrowRight" || event.key === "j") move(1);
  else if (event.key === "ArrowLeft" || event.key === "k") move(-1);
  else return;
  event.preventDefault();
});
draw();
