"use strict";
// What builds the page's elements: every name and number is inserted as text, never as markup.
window.Lamina = window.Lamina || {};
(() => {
  const SVG = "http://www.w3.org/2000/svg";

  function fill(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name === "on") for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
      else node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.flat().filter((child) => child !== null && child !== undefined));
    return node;
  }

  const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
  const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

  function row(cells, tag) {
    const scope = tag === "th" ? "col" : null;
    return el("tr", null,
      el("th", { scope: scope || "row" }, cells[0]),
      cells.slice(1).map((cell) => el(tag, { scope }, cell)));
  }

  // A table that scrolls sideways where it is too wide; its first column names the rows.
  function table(label, { head, rows, foot }, kind) {
    return el("div", { class: `scroll ${kind || ""}`, tabindex: "0", role: "region", "aria-label": label },
      el("table", null,
        el("thead", null, row(head, "th")),
        el("tbody", null, rows.map((cells) => row(cells, "td"))),
        foot ? el("tfoot", null, row(foot, "td")) : null));
  }

  const pairs = (items) => el("dl", { class: "pairs" },
    items.map(([name, value]) => el("div", null, el("dt", null, name), el("dd", null, value))));

  const section = (title, ...children) => el("section", null, el("h2", null, title), children);
  const empty = (text) => el("p", { class: "empty" }, text);

  // Replaces what a place shows only when its data has changed, so that nothing is lost while one reads.
  function place() {
    const node = el("div");
    let before;
    return {
      node,
      show(data, draw) {
        const now = JSON.stringify(data);
        if (now === before) return;
        before = now;
        node.replaceChildren(...[draw(data)].flat().filter(Boolean));
      },
    };
  }

  const count = (value) => (value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en"));
  const ratio = (value) => (value === null || value === undefined ? "–" : value.toFixed(4));
  function size(bytes) {
    if (bytes === null || bytes === undefined) return "–";
    if (bytes < 1024) return `${Math.round(bytes)} B`;
    const units = ["KiB", "MiB", "GiB", "TiB"];
    let unit = -1;
    do { bytes /= 1024; unit += 1; } while (bytes >= 1024 && unit < units.length - 1);
    return `${bytes.toFixed(1)} ${units[unit]}`;
  }
  function ago(seconds) {
    if (seconds < 60) return `${Math.max(0, Math.round(seconds))} s ago`;
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
    if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
    return `${Math.floor(seconds / 86400)} days ago`;
  }

  Object.assign(window.Lamina, { el, svg, table, pairs, section, empty, place, count, ratio, size, ago });
})();
