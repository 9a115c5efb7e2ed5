// Every text on the page whose contrast with what is behind it is below WCAG's AA, as "text: ratio".
(() => {
  const parse = (color) => {
    const numbers = color.match(/[\d.]+/g).map(Number);
    if (color.startsWith("color(srgb")) return [...numbers.slice(0, 3).map((v) => v * 255), numbers[3] ?? 1];
    return [...numbers.slice(0, 3), numbers[3] ?? 1];
  };
  const over = (top, below) => top.slice(0, 3).map((value, i) => value * top[3] + below[i] * (1 - top[3]));
  const behind = (node) => {
    const layers = [];
    for (let at = node; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255]);
  };
  const light = (rgb) => rgb.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement, text = walker.currentNode.textContent.trim();
    if (!text || !node.getClientRects().length || node.closest("script, style, .hidden, .skip, option")) continue;
    const style = getComputedStyle(node), ground = behind(node);
    const ink = node.closest("svg") ? parse(style.fill) : parse(style.color);
    const [a, b] = [light(over(ink, ground)), light(ground)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05), large = parseFloat(style.fontSize) >= 24;
    if (ratio < (large ? 3 : 4.5)) found.push(`${text.slice(0, 40)}: ${ratio.toFixed(2)}`);
  }
  return [...new Set(found)];
})()
