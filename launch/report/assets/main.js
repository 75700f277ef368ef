// Where the page is (the part of the address behind #), keys, theme.

const app = document.getElementById("app");

function link(view, filter) {
  const search = new URLSearchParams(Object.entries(filter).filter(([, value]) => value)).toString();
  return "#/" + view + (search ? "?" + search : "");
}

function go(view, filter, quiet) {
  if (quiet) { history.replaceState(null, "", link(view, filter)); redraw(); } else location.hash = link(view, filter);
}

function here() {
  const [view, search] = location.hash.replace(/^#\/?/, "").split("?");
  return [view, Object.fromEntries(new URLSearchParams(search || ""))];
}

function theme(next) {
  try { if (next) localStorage.setItem("gavel-theme", next); return next || localStorage.getItem("gavel-theme"); } catch { return next; }
}

function header(view) {
  const tab = (name, word, to) => h("a", { href: to, "aria-current": view === name ? "page" : null }, word);
  return h("header", { class: "top" }, h("a", { class: "brand", href: "#/" }, h("span", { class: "logo", "aria-hidden": "true" }, "⚖"), h("span", {}, data.overview.name)),
    h("nav", {}, tab("", "Overview", "#/"), data.comparison && tab("compare", "Tasks", link("compare", compared.filter)), data.training && tab("steps", "Steps", "#/steps"), !data.comparison && tab("rows", "Rows", link("rows", list.filter))),
    h("span", { class: "live", id: "live", hidden: !data.meta.live }, "live"),
    h("button", { type: "button", class: "quiet", id: "theme", title: "light or dark ( t )", onclick: turn }, "◐"),
    h("button", { type: "button", class: "quiet", title: "keys ( ? )", onclick: keys }, "?"));
}

function turn() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme || (dark ? "dark" : "light");
  document.documentElement.dataset.theme = theme(now === "dark" ? "light" : "dark");
}

const KEYS = [["o", "overview"], ["s", "steps of a training"], ["r", "rows"], ["/", "search"], ["j k", "next and previous row"], ["Enter", "open the row"], ["n p", "next and previous page of rows"], ["t", "light or dark"], ["Esc", "back"], ["?", "these keys"]];

function keys() {
  const dialog = h("dialog", {}, h("h2", {}, "Keys"), h("dl", { class: "facts" }, KEYS.map(([name, meaning]) => [h("dt", {}, h("kbd", {}, name)), h("dd", {}, meaning)])),
    h("form", { method: "dialog" }, h("button", { type: "button", class: "quiet", onclick: () => dialog.close() }, "close")));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

let drawn = null;
function redraw() {
  const [view, filter] = here();
  const focused = document.activeElement && document.activeElement.name === "q" ? document.activeElement.selectionStart : null;
  const body = view.startsWith("row/") ? story_view(Number(view.slice(4)))
    : view.startsWith("compare") && data.comparison ? compare_view(view.slice(8), filter)
    : view === "rows" ? rows_view(filter)
    : view.startsWith("steps") && data.training ? steps_view(view.slice(6))
    : data.comparison ? comparison_view() : overview_view();
  app.replaceChildren(header(view.split("/")[0]), body);
  const search = document.querySelector("input[name=q]");
  if (focused !== null && search) { search.focus(); search.setSelectionRange(focused, focused); }
  if (drawn !== view) scrollTo(0, 0);
  drawn = view;
  document.documentElement.dataset.view = view || "overview";
}

function move(by) {
  const lines = [...document.querySelectorAll(".row")];
  if (lines.length) {
    const place = lines.indexOf(document.activeElement);
    const next = lines[Math.min(lines.length - 1, Math.max(0, place + by))];
    next.focus();
    next.scrollIntoView({ block: "nearest" });
  } else press(by > 0 ? "next" : "prev");
}

function press(rel) {
  const to = document.querySelector(`a[rel=${rel}]:not(.off)`);
  if (to) location.hash = to.getAttribute("href");
}

const COMMANDS = {
  o: () => go("", {}), s: () => { if (data.training) go("steps", {}); }, r: () => (data.comparison ? go("compare", compared.filter) : go("rows", list.filter)), t: turn, "?": keys, n: () => press("next"), p: () => press("prev"),
  j: () => move(1), k: () => move(-1), ArrowRight: () => press("next"), ArrowLeft: () => press("prev"),
  "/": () => { const search = document.querySelector("input[name=q]"); if (search) search.focus(); else { go("rows", list.filter); setTimeout(() => document.querySelector("input[name=q]")?.focus(), 50); } },
  Escape: () => { const [view] = here(); if (view.startsWith("row/")) go("rows", list.filter); else if (view.startsWith("compare/")) go("compare", compared.filter); else if (view.startsWith("steps/")) go("steps", {}); },
};

document.addEventListener("keydown", (event) => {
  const typing = event.target.matches && event.target.matches("input, select, textarea");
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog")) return;
  if (typing) { if (event.key === "Escape") event.target.blur(); return; }
  const command = COMMANDS[event.key];
  if (command && Object.hasOwn(COMMANDS, event.key)) { event.preventDefault(); command(); }
});

const kept = theme();
if (kept) document.documentElement.dataset.theme = kept;
const first = data.comparison ? null : block("index");
if (first) take(first);
data.slices = data.slices || [];
data.version = data.meta.version || 0;
addEventListener("hashchange", redraw);
redraw();
if (data.meta.live) {
  follow((changed, reached) => {
    const badge = document.getElementById("live");
    if (badge) { badge.textContent = reached ? "live" : "server gone"; badge.classList.toggle("gone", !reached); }
    const [view] = here();
    const busy = document.activeElement && document.activeElement.matches("input, select");
    if (changed && !busy && !view.startsWith("row/")) { const at = scrollY; redraw(); scrollTo(0, at); }
  });
}
document.documentElement.dataset.ready = "yes";
