"use strict";
// Returns what a person would see go wrong on the page that is shown, one sentence each. Called with the page's window
// as it is, and with what is expected of the page: {hasHistory, hasBreadcrumbs, theme: which has breadcrumbs of its own}.
(expected) => {
  const problems = [];
  const shown = (element) => element.checkVisibility({opacityProperty: true, visibilityProperty: true});
  const short = (text) => JSON.stringify(text.trim().replace(/\s+/g, " ").slice(0, 40));

  // What is left of a box inside the boxes that cut it.
  const clips = new Map();
  function clipOf(element) {
    if (!element || element === document.documentElement) {
      return {left: -Infinity, top: -Infinity, right: Infinity, bottom: Infinity, isFixed: false};
    }
    if (!clips.has(element)) {
      const outer = clipOf(element.parentElement), style = getComputedStyle(element);
      const clip = {...outer, isFixed: outer.isFixed || ["fixed", "sticky"].includes(style.position)};
      if (style.overflowX !== "visible" && element !== document.body) {
        const box = element.getBoundingClientRect();
        clip.left = Math.max(clip.left, box.left); clip.right = Math.min(clip.right, box.right);
        clip.top = Math.max(clip.top, box.top); clip.bottom = Math.min(clip.bottom, box.bottom);
      }
      clips.set(element, clip);
    }
    return clips.get(element);
  }
  function visible(box, element) {
    const clip = clipOf(element);
    const left = Math.max(box.left, clip.left), right = Math.min(box.right, clip.right);
    const top = Math.max(box.top, clip.top), bottom = Math.min(box.bottom, clip.bottom);
    return {left, right, top, bottom, width: right - left, height: bottom - top};
  }

  // Everything that carries text: text itself by line, fields, charts.
  const carriers = [], nodes = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || getComputedStyle(element).clip !== "auto" || element.closest("script, style, template, title, desc, option, textarea") || !shown(element)) { continue; }
    const range = document.createRange();
    range.selectNodeContents(node);
    const boxes = [...range.getClientRects()].filter((box) => box.width > 1);
    nodes.push({node, element, lines: boxes.length});
    if (clipOf(element).isFixed) { continue; }
    for (const box of boxes) { carriers.push({what: short(node.data), element, ...visible(box, element)}); }
  }
  for (const element of document.querySelectorAll("input:not([type=hidden]), select, textarea, progress, meter, figure, svg.rsmq-spark")) {
    if (!shown(element) || clipOf(element).isFixed) { continue; }
    const what = `<${element.localName} ${element.name || element.className}>`;
    carriers.push({what, element, ...visible(element.getBoundingClientRect(), element.parentElement)});
  }

  const slack = 3;
  const drawn = carriers.filter((one) => one.width > slack && one.height > slack && one.bottom > 0).sort((a, b) => a.top - b.top);
  const overlaps = new Set();
  drawn.forEach((one, at) => {
    for (let next = at + 1; next < drawn.length && drawn[next].top < one.bottom - slack; next++) {
      const other = drawn[next];
      const width = Math.min(one.right, other.right) - Math.max(one.left, other.left);
      const height = Math.min(one.bottom, other.bottom) - other.top;
      if (width <= slack || height <= slack) { continue; }
      if (one.element.contains(other.element) || other.element.contains(one.element)) { continue; }
      overlaps.add(`${one.what} and ${other.what} overlap`);
    }
  });
  problems.push(...[...overlaps].slice(0, 5));

  // Words of letters stay whole; names and ids may be broken, but not into crumbs.
  const broken = new Set();
  for (const {node, lines} of nodes) {
    if (lines < 2) { continue; }
    for (const found of node.data.matchAll(/\S+/g)) {
      const range = document.createRange();
      range.setStart(node, found.index);
      range.setEnd(node, found.index + found[0].length);
      const tops = new Set([...range.getClientRects()].filter((box) => box.width > 1).map((box) => Math.round(box.top)));
      const isWord = /^[\p{L}]{2,20}[.,:;?!…]?$/u.test(found[0]);
      if (tops.size > 1 && (isWord || found[0].length / tops.size < 5)) { broken.add(`${short(found[0])} is broken into ${tops.size} lines`); }
    }
  }
  problems.push(...[...broken].slice(0, 5));

  for (const field of document.querySelectorAll("#content-main :is(input:not([type=hidden]), select, textarea)")) {
    const clip = clipOf(field.parentElement), cut = field.getBoundingClientRect().right - clip.right;
    if (shown(field) && clip.right - clip.left > 2 && cut > 1 && expected.theme !== "unfold") { problems.push(`${Math.round(cut)} px of the field ${field.name} are cut at its right`); }
  }
  for (const row of document.querySelectorAll("#content-main :is(.rsmq-actions, td)")) {
    const heights = [...row.querySelectorAll(".button")].filter(shown).map((button) => button.getBoundingClientRect().height);
    if (!expected.theme && heights.length && Math.max(...heights) - Math.min(...heights) > 2) { problems.push(`buttons of ${heights.map(Math.round)} px height stand side by side`); }
  }
  const tools = document.querySelector("#content-main > .object-tools"), listBox = document.querySelector("#result_list");
  if (tools && listBox && tools.getBoundingClientRect().bottom > document.querySelector("#changelist").getBoundingClientRect().top + slack) {
    problems.push("the tools stand beside the list");
  }

  const listArea = document.querySelector("#changelist");
  for (const tool of document.querySelectorAll("#content-main > .object-tools a")) {
    const gap = listArea ? listArea.getBoundingClientRect().top - tool.getBoundingClientRect().bottom : 99;
    if (!expected.theme && shown(tool) && gap < 4) { problems.push(`the tool ${short(tool.textContent)} touches the list`); }
  }
  const heights = [...document.querySelectorAll(".rsmq-chart .rsmq-tick")].filter(shown)
    .map((label) => parseFloat(getComputedStyle(label).fontSize) * label.ownerSVGElement.getBoundingClientRect().width / label.ownerSVGElement.viewBox.baseVal.width);
  if (heights.length && (Math.max(...heights) > 16 || Math.min(...heights) < 8)) { problems.push(`labels of charts have ${Math.round(Math.max(...heights))} px`); }
  for (const label of document.querySelectorAll(".rsmq-actions label[for]")) {
    const field = document.getElementById(label.htmlFor);
    if (!field || !shown(field)) { continue; }
    const [one, other] = [label, field].map((each) => each.getBoundingClientRect());
    if (one.bottom <= other.top || other.bottom <= one.top) { problems.push(`the label ${short(label.textContent)} stands apart from its field`); }
  }

  const tooWide = document.documentElement.scrollWidth - window.innerWidth;
  if (tooWide > 0) { problems.push(`the page is ${tooWide} px wider than its window`); }

  const area = document.querySelector("#content") || document.body;
  const style = getComputedStyle(area);
  const room = area.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  for (const table of document.querySelectorAll("#result_list, #content .rsmq-wide, #content .rsmq-table")) {
    const box = visible(table.getBoundingClientRect(), table.parentElement);
    const what = table.id ? "the list" : `the table ${short(table.querySelector("thead").innerText)}`;
    if (!shown(table) || box.height < 20) { problems.push(`${what} cannot be seen`); continue; }
    if (box.width < 0.5 * room) { problems.push(`${what} takes ${Math.round(box.width)} of ${Math.round(room)} px`); }
    const cut = table.getBoundingClientRect().right - box.right;
    if (cut > 1 && expected.theme !== "unfold") { problems.push(`${Math.round(cut)} px of ${what} are cut at its right`); }
  }

  const list = document.querySelector("#result_list");
  // Unless rows are shown as lists, or by a theme in its own way.
  if (list && list.tHead && getComputedStyle(list.tHead).position !== "absolute" && expected.theme !== "unfold") {
    const [heads, cells] = ["thead tr", "tbody tr"].map((row) => [...list.querySelector(row).children].filter(shown).length);
    if (heads !== cells) { problems.push(`the list has ${heads} heads above ${cells} columns`); }
  }

  const histories = [...document.querySelectorAll("#container a, #page a, .app-wrapper a")].filter((link) => link.textContent.trim() === "History" && shown(link));
  if (expected.hasHistory !== null && histories.length !== (expected.hasHistory ? 1 : 0)) { problems.push(`${histories.length} History buttons`); }

  const crumbs = expected.theme ? null : document.querySelector(".breadcrumbs");
  if (crumbs) {
    const tops = [...crumbs.querySelectorAll("*"), crumbs].flatMap((element) => [...element.childNodes])
      .filter((node) => node.nodeType === Node.TEXT_NODE && node.data.trim())
      .map((node) => { const range = document.createRange(); range.selectNodeContents(node); return Math.round(range.getBoundingClientRect().bottom / 4); });
    const lines = new Set(tops).size;
    if (lines > 1) { problems.push(`the breadcrumbs take ${lines} lines`); }
    const isOurs = document.body.matches(":is(.app-rsmq, .app-rsmq_pipeline):not(.dashboard)");
    if (isOurs && [...crumbs.querySelectorAll("a")].some((link) => !getComputedStyle(link).textDecorationLine.includes("underline"))) { problems.push("breadcrumbs are not underlined"); }
    if (getComputedStyle(crumbs).backgroundColor === "rgba(0, 0, 0, 0)") { problems.push("the breadcrumbs have no style"); }
  } else if (expected.hasBreadcrumbs) { problems.push("there are no breadcrumbs"); }
  return problems;
}
