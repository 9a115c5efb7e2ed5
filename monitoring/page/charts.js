"use strict";
// Charts, drawn by plotly, which is loaded when the first one is.
(() => {
  const { el } = window.Lamina;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const touch = window.matchMedia("(pointer: coarse)"); // there a drag scrolls the page
  const narrow = window.matchMedia("(max-width: 800px)");
  const ANCHORS = ["--c0", "--c2", "--c1"]; // many series take shades between these
  const drawn = new Map(); // figure → what redraws it

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

  // Asks for the script without running it, which takes a second: what has no charts is shown before.
  function fetchPlotly() {
    if (!loading) document.head.append(el("link", { rel: "prefetch", href: "plotly.js", as: "script" }));
  }

  let loading;
  function plotly() {
    loading = loading || load().catch((error) => { loading = undefined; throw error; });
    return loading;
  }

  async function load() {
    const packed = document.getElementById("plotly");
    const script = document.createElement("script");
    if (!packed) {
      script.src = "plotly.js";
      return new Promise((done, failed) => {
        script.addEventListener("load", done);
        script.addEventListener("error", () => failed(new Error("plotly could not be loaded")));
        document.head.append(script);
      });
    }
    const bytes = Uint8Array.from(atob(packed.textContent), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    script.textContent = await new Response(stream).text();
    document.head.append(script);
    return undefined;
  }

  // A color per series: the palette while it lasts, else shades from the first series to the last.
  function colors(chart) {
    const most = 1 + Math.max(...chart.series.map((series) => series.color));
    if (most <= 7) return chart.series.map((series) => css(`--c${series.color}`));
    const anchors = ANCHORS.map((name) => channels(css(name)));
    return chart.series.map((series) => {
      const at = (series.color / (most - 1)) * (anchors.length - 1);
      const low = Math.min(Math.floor(at), anchors.length - 2);
      const mixed = anchors[low].map((value, i) => value + (at - low) * (anchors[low + 1][i] - value));
      return `rgb(${mixed.map(Math.round).join(",")})`;
    });
  }

  // Plotly reads some markup in its labels; names are shown as they are.
  const plain = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

  function trace(series, color, chart, hidden) {
    const base = {
      name: plain(series.name), x: series.x, y: series.y, type: "scatter", mode: "lines",
      line: { color, width: 2 }, hovertemplate: `%{y:${chart.y_format}}`, visible: !hidden.has(series.name),
    };
    switch (series.style) {
      case "faint": return { ...base, opacity: 0.4, line: { color, width: 1 } };
      case "ceiling": return { ...base, opacity: 0.75, line: { color, width: 1.4, dash: "dot", shape: "hv" } };
      case "stairs": return { ...base, line: { color, width: 2, shape: "hv" } };
      case "stacked": return { ...base, stackgroup: "all", line: { color, width: 0 }, fillcolor: color };
      case "points": return { ...base, mode: "markers", cliponaxis: false,
                              marker: { color, size: series.x.length > 60 ? 4 : 7 } };
      default: return base;
    }
  }

  function layout(chart) {
    const soft = css("--soft"), grid = css("--grid");
    const end = Math.max(...chart.series.map((series) => series.x.at(-1)));
    const axis = { gridcolor: grid, linecolor: css("--rule"), zeroline: false, automargin: true,
                   tickfont: { size: 12, color: soft } };
    const title = (text) => ({ text, font: { size: 12, color: soft }, standoff: 8 });
    return {
      margin: { l: 8, r: 10, t: 10, b: 8 }, showlegend: false, hovermode: "x unified",
      dragmode: touch.matches ? false : "zoom", uirevision: "kept", // zoom stays while lines grow
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, color: css("--ink") },
      hoverlabel: { bgcolor: css("--card"), bordercolor: css("--rule"), font: { size: 12, color: css("--ink") } },
      xaxis: { ...axis, title: title("examples seen"), showgrid: false, showline: true, range: [0, end],
               nticks: narrow.matches ? 5 : 8, hoverformat: ",d" },
      yaxis: { ...axis, title: title(chart.y_title), nticks: 6,
               ...(chart.y_range ? { range: chart.y_range } : { rangemode: "tozero" }) },
      shapes: chart.marks.map(([x]) => ({ type: "line", x0: x, x1: x, yref: "paper", y0: 0, y1: 1,
                                          line: { color: soft, width: 1, dash: "dot" } })),
      annotations: chart.marks.map(([x, text]) => ({ x, text: plain(text), yref: "paper", y: 1, xanchor: "left",
        yanchor: "top", xshift: 4, showarrow: false, font: { size: 12, color: soft } })),
    };
  }

  function legend(list, chart, shades, hidden, redraw) {
    const items = chart.series.map((series) => series.name);
    if (list.children.length === items.length && items.every((name, i) => list.children[i].textContent === name)) {
      [...list.children].forEach((item, i) => { item.firstChild.firstChild.style.color = shades[i]; });
      return;
    }
    list.replaceChildren(...chart.series.map((series, i) => {
      const swatch = el("span", { class: `swatch swatch-${series.style}` });
      swatch.style.color = shades[i];
      const button = el("button", { type: "button", "aria-pressed": String(!hidden.has(series.name)), on: {
        click: () => {
          const shown = hidden.has(series.name);
          if (shown) hidden.delete(series.name); else hidden.add(series.name);
          button.setAttribute("aria-pressed", String(shown));
          redraw();
        },
      } }, swatch, series.name);
      return el("li", null, button);
    }));
  }

  // A figure that shows a chart, and later states of it.
  function figure(key) {
    const heading = el("h3"), note = el("p"), list = el("ul", { class: "legend" }), plot = el("div", { class: "plot" });
    const node = el("figure", { class: "chart", id: `chart-${key}` }, el("figcaption", null, heading, note, list), plot);
    const hidden = new Set();
    let chart;
    async function redraw() {
      const shades = colors(chart);
      legend(list, chart, shades, hidden, redraw);
      await plotly();
      if (!node.isConnected) return;
      const traces = chart.series.map((series, i) => trace(series, shades[i], chart, hidden));
      await window.Plotly.react(plot, traces, layout(chart), { displayModeBar: false, responsive: true });
      plot.querySelector(".main-svg").setAttribute("role", "img");
      plot.querySelector(".main-svg").setAttribute("aria-label", summary(chart));
    }
    drawn.set(node, redraw);
    return {
      node,
      redraw,
      take(next) {
        chart = next;
        heading.textContent = chart.title;
        note.textContent = chart.note;
      },
    };
  }

  // What a chart says, for those who do not see it.
  function summary(chart) {
    const ends = chart.series.slice(0, 8).map((series) => {
      const value = series.y.findLast((y) => y !== null);
      return `${series.name} ${value === undefined ? "without value" : Number(value.toPrecision(4))}`;
    });
    return `${chart.title}: at the end ${ends.join(", ")}`;
  }

  // Several figures in a grid, kept while their data changes.
  function gallery() {
    const node = el("div", { class: "charts" });
    const figures = new Map();
    return {
      node,
      async show(charts) {
        for (const [key, each] of figures) if (!charts.some((chart) => chart.key === key)) { each.node.remove(); figures.delete(key); }
        for (const chart of charts) {
          if (!figures.has(chart.key)) {
            figures.set(chart.key, figure(chart.key));
            node.append(figures.get(chart.key).node);
          }
          figures.get(chart.key).take(chart);
        }
        let failure = null;
        for (const chart of charts) { // what stands there already is seen while this one is drawn
          await new Promise((done) => setTimeout(done));
          await figures.get(chart.key)?.redraw().catch((error) => { failure = failure || error; });
        }
        if (failure) throw failure;
      },
    };
  }

  function redrawAll() {
    for (const [node, redraw] of drawn) if (node.isConnected) redraw(); else drawn.delete(node);
  }
  dark.addEventListener("change", redrawAll);
  narrow.addEventListener("change", redrawAll);

  Object.assign(window.Lamina, { gallery, plotly, fetchPlotly, redrawAll });
})();
