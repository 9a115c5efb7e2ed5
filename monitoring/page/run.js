"use strict";
// One run: figures, charts, matrix, forecast, memory, evaluations, configuration.
(() => {
  const { el, svg, table, pairs, section, empty, place, gallery } = window.Lamina;
  const BARS = { width: 132, height: 34 };

  function head(run) {
    return [
      el("h1", null, run.run, " ", el("span", { class: `state state-${run.state}` }, run.state)),
      el("p", { class: "brief" }, run.brief),
      el("p", { class: "brief" }, `${run.committed} · ${run.path}`),
    ];
  }

  const figures = (items) => el("dl", { class: "figures" }, items.map(([name, value, note]) =>
    el("div", { class: "figure" }, el("dt", null, name), el("dd", null, value), el("dd", { class: "note" }, note))));

  function problems(lines) {
    if (!lines.length) return null;
    return el("section", { class: "problems" }, el("h2", null, "Problems"),
      el("ul", null, lines.map((line) => el("li", null, line))));
  }

  // One run's matrix as a table; `of` says whose it is where there are several.
  function matrix(found, of = "") {
    const shade = (value) => (value === null ? null : `--share: ${Math.round(100 * value)}%`);
    const cell = (text, value) => el("td", { class: "shaded", style: shade(value) }, text);
    const lines = found.phases.map((phase, i) =>
      el("tr", null, el("th", { scope: "row" }, phase), found.texts[i].map((text, j) => cell(text, found.accuracy[i][j]))));
    return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `accuracy matrix${of}` },
        el("table", { class: "matrix" },
          el("thead", null, el("tr", null, el("th", { scope: "col" }, "after phase"), found.tasks.map((task) => el("th", { scope: "col" }, task)))),
          el("tbody", null, lines),
          el("tfoot", null, el("tr", null, el("th", { scope: "row" }, "forgetting"), found.forgetting.map((text) => el("td", null, text))))));
  }

  const matrices = (...tables) => (tables.length ? section("Accuracy matrix",
    el("p", { class: "aside" }, "Held-out accuracy on each task (columns) at the end of each phase (rows). Forgetting is the best accuracy after an earlier phase less that after the last one."),
    ...tables) : null);

  function forecast(lines) {
    if (!lines.length) return null;
    return section("Forecast",
      el("p", { class: "aside" }, "If the run goes on growing as over the latest quarter of its examples."),
      table("forecast", { head: ["limit", "left", "reached"], rows: lines }));
  }

  function bars(found) {
    if (!found) return el("td", null, "–");
    const { counts, edges } = found, top = Math.max(...counts), step = BARS.width / counts.length;
    const rects = counts.map((count, i) => {
      const tall = Math.max((BARS.height * count) / top, count ? 1 : 0);
      return svg("rect", { x: (i * step).toFixed(2), y: (BARS.height - tall).toFixed(2), width: (step - 1).toFixed(2), height: tall.toFixed(2) },
        svg("title", null, `${edges[i]} to ${edges[i + 1]}: ${count.toLocaleString("en")}`));
    });
    return el("td", null,
      svg("svg", { viewBox: `0 0 ${BARS.width} ${BARS.height}`, preserveAspectRatio: "none", role: "img", width: BARS.width, height: BARS.height,
        "aria-label": `histogram from ${edges[0]} to ${edges.at(-1)}, ${counts.join(", ")}` }, rects),
      el("span", { class: "range" }, el("span", null, edges[0]), el("span", null, edges.at(-1))));
  }

  function histograms(layers) {
    if (!layers.length) return null;
    const kinds = ["age, steps", "key norm", "value norm"];
    return el("div", { class: "scroll histograms", tabindex: "0", role: "region", "aria-label": "histograms" },
      el("table", null,
        el("thead", null, el("tr", null, ["layer", ...kinds].map((name) => el("th", { scope: "col" }, name)))),
        el("tbody", null, layers.map((layer) => el("tr", null, el("th", { scope: "row" }, layer.layer), kinds.map((kind) => bars(layer.of[kind])))))));
  }

  const memory = ({ layers, histograms: of }) => section("Memory at the last commit",
    layers ? table("memory", layers) : empty("Nothing is committed yet."), histograms(of));

  function evaluations(found) {
    return section("Evaluations",
      found ? table("evaluations", found, "long") : empty("No evaluation was made."),
      found && found.left ? empty(`${found.left.toLocaleString("en")} earlier ones are in the table.`) : null);
  }

  // The view of a run; `show` takes each new document of it.
  function view(extras) {
    const places = Object.fromEntries(
      ["head", "problems", "figures", "matrix", "forecast", "memory", "evaluations", "rest"].map((name) => [name, place()]));
    const charts = gallery(), none = place();
    const node = el("div", { class: "run" },
      el("header", null, places.head.node), places.problems.node, places.figures.node,
      section("Over the stream", none.node, charts.node),
      places.matrix.node, places.forecast.node, places.memory.node, extras, places.evaluations.node, places.rest.node);
    return {
      node,
      show(run) {
        document.title = `${run.run} · Lamina`;
        places.head.show([run.run, run.state, run.brief, run.committed, run.path], () => head(run));
        places.problems.show(run.problems, problems);
        places.figures.show(run.figures, figures);
        none.show([run.charts.length, run.coarse], () =>
          (!run.charts.length ? empty("The run has not recorded a row yet.")
            : run.coarse ? empty("The table is long: this is a sample of it while it is being read.") : null));
        places.matrix.show(run.matrix, (found) => matrices(...(found ? [matrix(found)] : [])));
        places.forecast.show(run.forecast, forecast);
        places.memory.show({ layers: run.layers, histograms: run.histograms }, memory);
        places.evaluations.show(run.evaluations, evaluations);
        places.rest.show([run.configuration, run.versions, run.versions_of, run.go_on], () => [
          section("Configuration", pairs(run.configuration)),
          section("Versions", el("p", { class: "aside" }, run.versions_of), pairs(run.versions)),
          section("Go on", el("p", null, run.go_on[0]), el("pre", { tabindex: "0" }, el("code", null, run.go_on[1]))),
        ]);
        return charts.show(run.charts);
      },
    };
  }

  Object.assign(window.Lamina, { runView: view, matrix, matrices });
})();
