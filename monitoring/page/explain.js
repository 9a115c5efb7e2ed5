"use strict";
// Why a prediction: the training examples behind it, as pictures.
(() => {
  const { el } = window.Lamina;

  const field = (label, input) => el("label", null, label, " ", input);

  function card(example) {
    const picture = example.picture
      ? el("img", { src: `data:image/png;base64,${example.picture}`, alt: example.title, width: 96, height: 96 })
      : el("div", { class: "no-picture" }, example.values || "initial function");
    return el("li", null, picture, el("strong", null, example.title), el("span", null, example.note));
  }

  // A form that asks the server; `ask` fetches a path with parameters. With several phases one says whose data it is.
  function form(ask, layers, phases) {
    const split = el("input", { name: "split", value: "test", size: 8, autocomplete: "off" });
    const options = (names, chosen) => names.map((name) => el("option", { value: name, selected: name === chosen }, name));
    const phase = phases.length > 1 ? el("select", { name: "phase" }, options(phases, phases.at(-1))) : null;
    const index = el("input", { name: "index", type: "number", min: 0, max: 2147483647, value: 0 });
    const layer = el("select", { name: "layer" }, options(layers, "readout"));
    const number = el("input", { name: "count", type: "number", min: 1, max: 50, value: 6 });
    const answer = el("div", { "aria-live": "polite" }), button = el("button", { type: "submit" }, "Explain");
    async function submit(event) {
      event.preventDefault();
      button.disabled = true;
      answer.replaceChildren(el("p", { class: "empty" }, "The memory is being asked …"));
      try {
        const found = await ask({ split: split.value, index: index.value, layer: layer.value, count: number.value, ...(phase && { phase: phase.value }) });
        answer.replaceChildren(
          el("p", null, `Label ${found.label}, predicted ${found.predicted}. Shares of the output of ${found.layer}, largest first:`),
          el("ul", { class: "examples" }, found.examples.map(card)));
      } catch (error) {
        answer.replaceChildren(el("p", { class: "error" }, error.message));
      } finally {
        button.disabled = false;
      }
    }
    return el("form", { class: "explain", on: { submit } },
      el("div", { class: "fields" }, phase && field("phase", phase), field("part", split), field("example", index), field("layer", layer), field("how many", number), button),
      answer);
  }

  window.Lamina.explainForm = form;
})();
