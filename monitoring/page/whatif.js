"use strict";
// What thresholds would cost: sliders for pruning (ε) and novelty (τ) over each layer's committed entries.
(() => {
  const { el, empty, count, size } = window.Lamina;
  const number = (value) => (value === 0 ? "0" : value.toLocaleString("en", { maximumSignificantDigits: 4 }));

  function sentence(kind, curve, layer, at) {
    const gone = curve.counts[at], share = layer.entries ? (100 * gone) / layer.entries : 0;
    const amount = `${count(gone)} of ${count(layer.entries)} entries (${share.toFixed(1)} %, ${size(gone * layer.entry_bytes)})`;
    const bound = curve.bounds[at];
    const change = layer.bounded
      ? `The layer's output changes by at most ${number(bound)}.`
      : `${number(100 * bound)} % of all entries' size would go with them.`;
    return kind === "epsilon" ? `would be pruned: ${amount}. ${change}` : `would at most not have been admitted: ${amount}. ${change}`;
  }

  function slider(name, kind, label, hint, curve, layer) {
    const id = `${kind}-${name}`;
    const value = el("output", { for: id, class: "threshold" }), text = el("p", { "aria-live": "polite" });
    const input = el("input", { type: "range", id, min: "0", max: String(curve.thresholds.length - 1), step: "1", value: "0", on: { input: show } });
    function show() {
      const at = Number(input.value), threshold = curve.thresholds[at];
      value.textContent = number(threshold);
      input.setAttribute("aria-valuetext", number(threshold));
      text.textContent = sentence(kind, curve, layer, at);
    }
    show();
    return el("div", { class: "slider" }, el("label", { for: id }, label, " ", value), input, text, el("p", { class: "aside" }, hint));
  }

  function layerBox(name, layer) {
    const sampled = layer.tau && layer.tau.sampled < layer.entries ? ` Estimated from ${count(layer.tau.sampled)} entries.` : "";
    return el("fieldset", null, el("legend", null, name),
      layer.epsilon ? slider(name, "epsilon", "Prune below ε =", "Entries whose effective weight stays below ε for good, as prune_epsilon would remove them.", layer.epsilon, layer) : null,
      layer.tau ? slider(name, "tau", "Novel above τ =", `Entries whose nearest earlier key is no farther than τ, as novelty_threshold would refuse them.${sampled}`, layer.tau, layer) : null);
  }

  function whatIf(found) {
    const layers = Object.entries(found.layers).filter(([, layer]) => layer.epsilon || layer.tau);
    if (!layers.length) return [empty("No growing layer holds an entry that could go.")];
    return [el("div", { class: "sliders" }, layers.map(([name, layer]) => layerBox(name, layer)))];
  }

  window.Lamina.whatIf = whatIf;
})();
