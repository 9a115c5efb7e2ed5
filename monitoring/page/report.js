"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("data").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const touch = window.matchMedia("(pointer: coarse)"); // there a drag scrolls the page
  const narrow = window.matchMedia("(max-width: 800px)");
  const ANCHORS = ["--c0", "--c2", "--c1"]; // many layers take shades between these

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

  // A color per series: the palette while it lasts, else shades from the first layer to the last.
  function colors(chart) {
    const count = 1 + Math.max(...chart.series.map((series) => series.color));
    if (count <= 7) return chart.series.map((series) => css(`--c${series.color}`));
    const anchors = ANCHORS.map((name) => channels(css(name)));
    return chart.series.map((series) => {
      const place = (series.color / (count - 1)) * (anchors.length - 1);
      const low = Math.min(Math.floor(place), anchors.length - 2);
      const mixed = anchors[low].map((value, i) => value + (place - low) * (anchors[low + 1][i] - value));
      return `rgb(${mixed.map(Math.round).join(",")})`;
    });
  }

  function trace(series, color, chart) {
    const base = {
      name: series.name, x: series.x, y: series.y, type: "scatter", mode: "lines",
      line: { color, width: 2 }, hovertemplate: `%{y:${chart.y_format}}`,
    };
    switch (series.style) {
      case "faint": return { ...base, opacity: 0.4, line: { color, width: 1 } };
      case "dotted": return { ...base, opacity: 0.75, line: { color, width: 1.4, dash: "dot" } };
      case "ceiling": return { ...base, opacity: 0.75, line: { color, width: 1.4, dash: "dot", shape: "hv" } };
      case "stairs": return { ...base, line: { color, width: 2, shape: "hv" } };
      case "stacked": return { ...base, stackgroup: "all", line: { color, width: 0 }, fillcolor: `${color}cc` };
      case "points": return { ...base, mode: "markers", cliponaxis: false, marker: { color, size: series.x.length > 60 ? 4 : 7 } };
      default: return base;
    }
  }

  function layout(chart) {
    const soft = css("--soft"), grid = css("--grid");
    const end = Math.max(...chart.series.map((series) => series.x.at(-1)));
    const axis = { gridcolor: grid, linecolor: css("--rule"), zeroline: false, automargin: true,
                   tickfont: { size: 12, color: soft }, fixedrange: false };
    const title = (text) => ({ text, font: { size: 12, color: soft }, standoff: 8 });
    return {
      margin: { l: 8, r: 10, t: 10, b: 8 }, showlegend: false, hovermode: "x unified", 
      dragmode: touch.matches ? false : "zoom",
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

  // Plotly reads some markup in its labels; names are shown as they are.
  const plain = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

  function legend(list, plot, chart, shades) {
    list.replaceChildren(...chart.series.map((series, index) => {
      const button = document.createElement("button");
      const swatch = document.createElement("span");
      swatch.className = `swatch swatch-${series.style}`;
      swatch.style.color = swatch.style.borderColor = shades[index];
      button.type = "button";
      button.append(swatch, series.name);
      button.setAttribute("aria-pressed", "true");
      button.addEventListener("click", () => {
        const shown = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", String(shown));
        Plotly.restyle(plot, { visible: shown }, [index]);
      });
      const item = document.createElement("li");
      item.append(button);
      return item;
    }));
  }

  function draw() {
    const drawn = charts.map((chart) => {
      const figure = document.getElementById(`chart-${chart.key}`);
      const plot = figure.querySelector(".plot");
      const shades = colors(chart);
      legend(figure.querySelector(".legend"), plot, chart, shades);
      return { chart, plot, shades };
    });
    // Only now do the plots have their final height, which plotly measures.
    for (const { chart, plot, shades } of drawn) {
      const traces = chart.series.map((series, i) => trace({ ...series, name: plain(series.name) }, shades[i], chart));
      Plotly.react(plot, traces, layout(chart), { displayModeBar: false, responsive: true });
    }
  }

  draw();
  dark.addEventListener("change", draw);
  narrow.addEventListener("change", draw);
})();
