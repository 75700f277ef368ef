// The data behind the page: blocks in this file, or what the server tells.

const block = (name) => {
  const node = document.getElementById(name);
  return node ? JSON.parse(node.textContent) : null;
};

const data = {
  meta: block("meta"), overview: block("overview"), heads: block("heads") || [], comparison: block("comparison"), training: block("training"),
  rows: [], place: new Map(), columns: null, version: 0,
};

const name_of = (coded, place) => (coded.codes[place] < 0 ? "" : coded.names[coded.codes[place]]);

// Columns become rows that share their names; 100,000 of them take a few tens of milliseconds.
function take(index) {
  const slices = Object.keys(index.slices);
  for (let place = 0; place < index.number.length; place++) {
    const row = {
      number: index.number[place], task: index.task[place], rollout: index.rollout[place], attempt: index.attempt[place],
      label: name_of(index.label, place), kind: name_of(index.kind, place), reward: index.reward[place],
      seconds: index.seconds[place], tokens: index.tokens[place], checks: name_of(index.checks, place), marks: index.marks[place],
      asked: index.asked[place], said: index.said[place], slices: {}, text: null,
    };
    for (const name of slices) row.slices[name] = name_of(index.slices[name], place);
    const known = data.place.get(row.number);
    if (known === undefined) {
      data.place.set(row.number, data.rows.length);
      data.rows.push(row);
    } else data.rows[known] = row;
  }
  data.slices = [...new Set([...(data.slices || []), ...slices])];
}

const row_of = (id) => data.rows[data.place.get(id)];

// What a search looks through, made when it is first needed.
const haystack = (row) => (row.text === null ? (row.text = `${row.task}\n${row.asked}\n${row.said}`.toLowerCase()) : row.text);

const stories = new Map();
async function story_of(id) {
  if (!data.meta.live) {
    const found = block("story-" + id);
    return found && { ...found, heads: data.heads };
  }
  const kept = stories.get(id);
  if (kept && kept.attempt === row_of(id).attempt) return kept.story;
  const answer = await fetch("story/" + id);
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  const story = await answer.json();
  stories.set(id, { attempt: row_of(id).attempt, story });
  return story;
}

// A run that grows: ask for what changed since the version we have.
async function follow(changed) {
  for (;;) {
    await new Promise((wake) => setTimeout(wake, document.hidden ? 5000 : 1500));
    try {
      const answer = await fetch("changes?since=" + data.version);
      if (answer.status === 204) { changed(false, true); continue; }
      if (!answer.ok) throw new Error(String(answer.status));
      const news = await answer.json();
      data.version = news.version;
      data.overview = news.overview;
      take(news.index);
      if (news.training) data.training = news.training;
      changed(true, true);
    } catch (lost) { changed(false, false); }
  }
}
