"use strict";
// Returns the texts of the page's content that stand out too little from what is behind them (WCAG 2 AA).
() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
    return [red, green, blue, alpha / 255];
  };
  const over = (top, below) => [0, 1, 2].map((at) => top[at] * top[3] + below[at] * (1 - top[3])).concat(1);
  const behind = (element) => {
    if (!element) { return [255, 255, 255, 1]; }
    const colour = rgba(getComputedStyle(element).backgroundColor);
    return colour[3] === 1 ? colour : over(colour, behind(element.parentElement));
  };
  const light = (colour) => {
    const [red, green, blue] = colour.slice(0, 3).map((part) => {
      const share = part / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  document.getAnimations().forEach((animation) => animation.finish());  // colours that are still on their way
  const problems = new Set();
  const walker = document.createTreeWalker(document.querySelector("#content, #content-main, main"), NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || element.closest("script, style, title, desc, option, :disabled") || !element.checkVisibility({visibilityProperty: true, opacityProperty: true})) { continue; }
    const style = getComputedStyle(element), below = behind(element.closest("svg") || element);
    const colour = over(rgba(element.closest("svg") ? style.fill : style.color), below);
    const [dark, bright] = [light(colour), light(below)].sort((one, other) => one - other);
    const ratio = (bright + 0.05) / (dark + 0.05), size = parseFloat(style.fontSize);
    const least = size >= 24 || (size >= 18.5 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    if (ratio < least) { problems.add(`${JSON.stringify(node.data.trim().slice(0, 30))} has a contrast of ${ratio.toFixed(1)}`); }
  }
  return [...problems].slice(0, 6);
}
