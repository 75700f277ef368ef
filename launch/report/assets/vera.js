// VERA-MH: the matrix of ratings, and the path of questions.

const RATING_TONES = ["good", "warm", "bad", "plain"];

function rating_matrix(ratings) {
  const rows = Object.entries(ratings.matrix).map(([dimension, counts]) => {
    const total = counts.reduce((sum, count) => sum + count, 0);
    return h("tr", {}, h("th", { scope: "row" }, dimension), counts.map((count, place) =>
      h("td", { class: "cell" }, h("i", { class: "back-" + RATING_TONES[place], style: { opacity: (0.08 + 0.8 * count / (total || 1)).toFixed(3) } }),
        h("b", {}, number(count)), h("small", {}, percent(count / (total || 1))))));
  });
  return h("div", { class: "wide" }, h("table", { class: "matrix" },
    h("thead", {}, h("tr", {}, h("th", {}, "dimension"), ratings.ratings.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, rows)));
}

function question_path(ratings) {
  const asked = (answers) => Object.values(answers).reduce((sum, count) => sum + count, 0);
  const most = Math.max(1, ...Object.values(ratings.questions).map(asked));
  const ends = {};
  for (const [from, to, count] of ratings.flows) (ends[from] = ends[from] || []).push([to, count]);
  let dimension = null;
  const lines = [];
  for (const [id, answers] of Object.entries(ratings.questions)) {
    if (ratings.dimensions[id] !== dimension) {
      dimension = ratings.dimensions[id];
      lines.push(h("h3", {}, dimension || "first questions"));
    }
    const total = asked(answers);
    const parts = Object.entries(answers).map(([answer, count]) => [answer, count, answer_tone(answer)]);
    const after = (ends[id] || []).slice(0, 3).map(([to, count]) => `${to} (${number(count)})`).join(", ");
    const bar = stack([...parts, ["not asked", most - total, "none"]], most);
    lines.push(line_up("question " + id, bar, number(total), { title: parts.map(([answer, count]) => `${answer}: ${count}`).join("\n") },
      after ? "then " + after : "then the end"));
  }
  return h("div", {}, key([["yes", "bad"], ["no", "good"], ["other answers", "three"]]), lines);
}

function answer_tone(answer) {
  const word = answer.toLowerCase();
  return word === "yes" ? "bad" : word === "no" ? "good" : "three";
}

function walk(steps, jump) {
  return h("ol", { class: "walk" }, steps.map((step) => h("li", { class: step.asked ? "" : "faint" },
    h("span", { class: "dot back-" + answer_tone(step.answer) }),
    h("div", {}, h("div", { class: "step" }, h("b", {}, "question " + step.question_id), h("span", { class: "muted" }, step.dimension),
      h("span", { class: "chip tone-" + answer_tone(step.answer) }, step.answer),
      step.fallback && h("span", { class: "chip tone-lost", title: "the judge's words meant none of the options" }, "fallback"),
      jump(step.calls || [])),
    step.reasoning && step.asked && guarded(h("p", {}, step.reasoning))))));
}
