"use strict";
// Which view is shown, where its data comes from, and how it is kept up to date.
(() => {
  const { el, section, empty, listView, runView, comparisonView, whatIf, explainForm, plotly, fetchPlotly, redrawAll } = window.Lamina;
  const EVERY = 2000; // milliseconds between two questions
  const embedded = document.getElementById("documents"); // a report carries its data
  const main = document.querySelector("main"), trouble = document.getElementById("trouble");
  const selected = new Set(), answers = new Map(); // path → entity tag and content
  let shown = { hash: null }, timer, explains = false, calls = 0;

  async function ask(path, parameters) {
    const query = new URLSearchParams(parameters).toString(), key = query ? `${path}?${query}` : path;
    const known = answers.get(key);
    const answer = await fetch(key, known ? { headers: { "If-None-Match": known.tag }, cache: "no-store" } : { cache: "no-store" });
    if (answer.status === 304) return known.content;
    const content = await answer.json();
    if (!answer.ok) throw Object.assign(new Error(content.error), { told: true });
    if (answers.size > 40) answers.clear();
    answers.set(key, { tag: answer.headers.get("ETag"), content });
    return content;
  }

  function thresholds(id) {
    const node = section("What thresholds would cost", empty("The memory is being read …"));
    ask("api/what-if", { id }).then(
      (found) => node.replaceChildren(node.firstChild, ...whatIf(found)),
      (error) => node.replaceChildren(node.firstChild, empty(error.message)));
    return node;
  }

  async function openRun(id) {
    fetchPlotly(); // meanwhile
    let run = await ask("api/run", { id });
    const extras = el("div"), view = runView(extras);
    const layers = run.layers ? run.layers.rows.map(([name]) => name) : [];
    if (layers.length) {
      extras.append(thresholds(id));
      if (explains) extras.append(section("Why a prediction", explainForm((wanted) => ask("api/explain", { id, ...wanted }), layers, run.phases)));
    }
    async function next() {
      const first = run;
      run = null;
      return first || ask("api/run", { id });
    }
    return { view, next };
  }

  async function openList() {
    return { view: listView(selected), next: async () => ask("api/runs") };
  }

  async function openComparison(ids) {
    return { view: comparisonView(), next: () => Promise.all(ids.map((id) => ask("api/run", { id }))) };
  }

  function open(hash) {
    const [, kind, rest] = hash.match(/^#\/(run|compare)\/(.+)$/) || [];
    if (kind === "run") return openRun(decodeURIComponent(rest));
    if (kind === "compare") return openComparison(rest.split(",").map(decodeURIComponent));
    return openList();
  }

  async function show() {
    clearTimeout(timer);
    const hash = location.hash, call = ++calls;
    try {
      if (hash === "" && shown.hash === null) {
        const found = await ask("api/runs");
        explains = found.explains;
        if (found.runs.length === 1) { location.replace(`#/run/${encodeURIComponent(found.runs[0].id)}`); return; }
      }
      if (shown.hash === null) explains = (await ask("api/runs")).explains;
      if (shown.hash !== hash) {
        const opened = await open(hash);
        if (call !== calls) return;
        main.replaceChildren(opened.view.node);
        if (shown.hash !== null) { main.focus({ preventScroll: true }); window.scrollTo(0, 0); }
        shown = { hash, ...opened };
      }
      await shown.view.show(await shown.next());
      if (call !== calls) return; // a later call has taken over
      trouble.textContent = "";
    } catch (error) {
      if (call !== calls) return;
      if (shown.hash !== hash) { main.replaceChildren(); shown = { hash: null }; }
      trouble.textContent = error.told ? error.message : "The dashboard does not answer; it was stopped, or its machine is busy.";
    }
    document.documentElement.dataset.ready = "yes";
    (window.requestIdleCallback || setTimeout)(() => plotly().catch(() => {})); // a list leads to what draws
    timer = setTimeout(() => (document.hidden ? wait() : show()), EVERY);
  }

  function wait() {
    document.addEventListener("visibilitychange", show, { once: true });
  }

  async function report() {
    const { runs, what_if, table } = JSON.parse(embedded.textContent);
    const extras = el("div"), view = runs.length > 1 || table ? comparisonView(table) : runView(extras);
    if (what_if && Object.keys(what_if.layers).length) extras.append(section("What thresholds would cost", ...whatIf(what_if)));
    main.replaceChildren(view.node);
    await view.show(runs.length > 1 || table ? runs : runs[0]);
    document.documentElement.dataset.ready = "yes";
  }

  // The page follows the system's colors until one is chosen.
  const theme = document.getElementById("theme");
  const remembered = { get() { try { return localStorage.getItem("lamina-theme"); } catch { return null; } },
                       set(value) { try { localStorage.setItem("lamina-theme", value); } catch { /* a page from a file may not remember */ } } };
  function paint(value) {
    document.documentElement.dataset.theme = value;
    theme.value = value;
  }
  theme.addEventListener("change", () => { remembered.set(theme.value); paint(theme.value); redrawAll(); });
  paint(remembered.get() || "auto");

  if (embedded) report(); else { window.addEventListener("hashchange", show); show(); }
})();
