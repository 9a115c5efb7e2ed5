"use strict";
// All runs of a folder, and the comparison of some.
(() => {
  const { el, section, table, matrix, matrices, empty, place, gallery, count, ratio, size, ago } = window.Lamina;
  const SHOWN = ["prequential accuracy", "first task", "tasks so far", "entries", "loss", "examples per second"];
  const AXES = { "prequential accuracy": ["accuracy", ".4f", [0, 1]], entries: ["entries", ",d", null],
                 "first task": ["held-out accuracy", ".4f", [0, 1]], "tasks so far": ["held-out accuracy", ".4f", [0, 1]],
                 loss: ["mean loss", ".4g", null], "examples per second": ["examples/s", ",.4~g", null] };
  const NOTES = { "first task": "Held-out accuracy on the first phase's task, over the examples seen: what is forgotten of it.",
                  "tasks so far": "Mean held-out accuracy on the tasks of all phases begun, over the examples seen." };

  function line(run, selected, choose) {
    const box = el("input", { type: "checkbox", "aria-label": `compare ${run.name}`, checked: selected.has(run.id),
      on: { change: (event) => choose(run.id, event.target.checked) } });
    const title = el("a", { href: `#/run/${encodeURIComponent(run.id)}` }, run.name);
    const cell = (label, text) => el("td", { "data-label": label }, text);
    return el("tr", null,
      el("td", { class: "choose" }, box),
      el("th", { scope: "row" }, title, " ", el("span", { class: `state state-${run.state}` }, run.state),
        el("span", { class: "aside" }, run.problem || `${run.id === run.name ? "" : `${run.id} · `}${run.brief || ""}`)),
      cell("examples", count(run.examples)),
      cell("prequential", ratio(run.accuracy)),
      cell("held out", ratio(run.held_out)),
      cell("entries", count(run.entries)),
      cell("memory", size(run.bytes)),
      cell("examples/s", count(run.examples_per_second)),
      cell("recorded", run.changed ? ago(Date.now() / 1000 - run.changed) : "–"));
  }

  // The list; `show` takes each new state of it.
  function list(selected) {
    const rows = place(), total = el("p", { class: "brief" });
    const filter = el("input", { type: "search", id: "filter", placeholder: "name, state or setting", autocomplete: "off", on: { input: draw } });
    const compare = el("a", { class: "button", role: "link" }, "Compare");
    let known = { runs: [], folder: "" };
    function choose(id, on) {
      if (on) selected.add(id); else selected.delete(id);
      mark();
    }
    function mark() {
      const ids = known.runs.filter((run) => selected.has(run.id)).map((run) => encodeURIComponent(run.id));
      compare.textContent = ids.length > 1 ? `Compare ${ids.length} runs` : "Select runs to compare";
      if (ids.length > 1) compare.setAttribute("href", `#/compare/${ids.join(",")}`); else compare.removeAttribute("href");
      compare.setAttribute("aria-disabled", String(ids.length < 2));
    }
    function draw() {
      const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      const text = (run) => `${run.name} ${run.id} ${run.state} ${run.brief || ""}`.toLowerCase();
      const shown = known.runs.filter((run) => words.every((word) => text(run).includes(word)));
      shown.sort((a, b) => (b.state === "running") - (a.state === "running") || b.changed - a.changed);
      const minute = Math.floor(Date.now() / 60000); // ages are drawn anew once a minute
      rows.show([shown, minute], () => (shown.length
        ? el("table", { class: "runs" },
          el("thead", null, el("tr", null, el("th", { scope: "col" }, el("span", { class: "hidden" }, "compare")),
            ["run", "examples", "prequential", "held out", "entries", "memory", "examples/s", "recorded"].map((name) => el("th", { scope: "col" }, name)))),
          el("tbody", null, shown.map((run) => line(run, selected, choose))))
        : empty(known.runs.length ? "No run matches." : "No run is here yet. Start one with: lamina run digits-online")));
      mark();
    }
    const node = el("div", null, el("header", null, el("h1", null, "Runs"), total),
      el("div", { class: "tools" }, el("label", { for: "filter" }, "Find "), filter, compare),
      el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "runs" }, rows.node));
    return {
      node,
      show(found) {
        known = found;
        document.title = "Runs · Lamina";
        const running = found.runs.filter((run) => run.state === "running").length;
        total.textContent = `${count(found.runs.length)} in ${found.folder}, ${count(running)} running`;
        draw();
      },
    };
  }

  const labels = (runs) => runs.map((run) => (runs.filter((each) => each.run === run.run).length > 1 ? `${run.run} (${run.path.split("/").at(-1)})` : run.run));

  function chart(name, runs, names) {
    const [y_title, y_format, y_range] = AXES[name];
    const series = runs.flatMap((run, color) => (run.compare[name]
      ? [{ name: names[color], ...run.compare[name], style: "line", color }] : []));
    return { key: name.replaceAll(" ", "-"), title: name[0].toUpperCase() + name.slice(1), note: NOTES[name] || "Over the examples seen.", y_title, y_format, y_range, marks: [], series };
  }

  // Final figures, a row per run; a figure that not all runs have is a dash.
  function figures(runs, names) {
    const kinds = [...new Set(runs.flatMap((run) => run.figures.map(([name]) => name)))];
    const value = (run, kind) => (run.figures.find(([name]) => name === kind) || [0, "–"])[1];
    return table("figures", { head: ["run", "state", ...kinds], rows: runs.map((run, i) => [names[i], run.state, ...kinds.map((kind) => value(run, kind))]) });
  }

  function differences(runs, names) {
    const configs = runs.map((run) => new Map(run.configuration));
    const settings = [...new Set(configs.flatMap((config) => [...config.keys()]))];
    const rows = settings.map((name) => [name, ...configs.map((config) => config.get(name) ?? "–")])
      .filter(([, ...values]) => new Set(values).size > 1);
    return rows.length ? table("settings that differ", { head: ["setting", ...names], rows }, "long") : empty("All settings are the same.");
  }

  // Matrices side by side: the darker, the better.
  const compared = (runs, names) => matrices(...runs.flatMap((run, i) =>
    (run.matrix ? [el("h3", { class: "whose" }, names[i]), matrix(run.matrix, ` of ${names[i]}`)] : [])));

  // Some runs; `summed` is a table about them to begin with.
  function comparison(summed = null) {
    const tops = place(), matrix = place(), settings = place(), charts = gallery();
    const node = el("div", { class: "run" },
      el("header", null, el("h1", null, "Comparison")), summed && section("Over seeds", table("over seeds", summed)), section("Figures", tops.node),
      section("Over the stream", charts.node), matrix.node, section("Settings that differ", settings.node));
    return {
      node,
      show(runs) {
        const names = labels(runs);
        document.title = `${names.join(", ")} · Lamina`;
        tops.show([names, runs.map((run) => [run.state, run.figures])], () => figures(runs, names));
        matrix.show([names, runs.map((run) => run.matrix)], () => compared(runs, names));
        settings.show([names, runs.map((run) => run.configuration)], () => differences(runs, names));
        return charts.show(SHOWN.map((name) => chart(name, runs, names)).filter((each) => each.series.length));
      },
    };
  }

  Object.assign(window.Lamina, { listView: list, comparisonView: comparison });
})();
