"use strict";
// JavaScript of our admin pages. Every page works without it.

// Select all rows of a table at once.
for (const all of document.querySelectorAll("[data-rsmq-all]")) {
  const boxes = all.closest("form").querySelectorAll(`input[name="${all.dataset.rsmqAll}"]`);
  all.hidden = boxes.length < 2;
  all.addEventListener("change", () => boxes.forEach((box) => { box.checked = all.checked; }));
}

// Continue a bulk operation automatically, slice by slice, until it is stopped or done.
for (const form of document.querySelectorAll("form[data-rsmq-goes-on]")) {
  const live = document.createElement("input");
  live.type = "hidden";
  live.name = live.value = "live";
  form.append(live);
  const timer = setTimeout(() => form.requestSubmit(), 100);
  form.querySelector("a").addEventListener("click", () => clearTimeout(timer));
}

// Some themes render lists without column names in cells and headers: a narrow window shows each row as a list,
// and a wider one hides the less important columns.
function labelCells() {
  for (const table of document.querySelectorAll("#result_list")) {
    const isOurs = "rsmqLabelled" in table.dataset;
    if (!isOurs && table.querySelector("thead [class*='column-'], [data-label]")) { continue; }
    table.dataset.rsmqLabelled = "";
    const heads = [...table.querySelectorAll("thead th")];
    for (const row of table.querySelectorAll("tbody tr")) {
      [...row.children].forEach((cell, at) => {
        const field = /\bfield-(\w+)/.exec(cell.className);
        if (field && heads[at]) { heads[at].classList.add(`column-${field[1]}`); }
        cell.dataset.label = heads[at] ? heads[at].textContent.trim() : "";
      });
    }
  }
}
labelCells();
document.addEventListener("rsmq:shown", labelCells);
// A click on a time in a chart follows the link that the table of the chart has for it. The table has the latest first.
document.addEventListener("click", ({target}) => {
  const figure = target.classList.contains("rsmq-column") && target.closest(".rsmq-figure");
  const links = figure ? [...figure.querySelectorAll("tbody th a")] : [];
  if (links.length) { links.at(-1 - [...figure.querySelectorAll(".rsmq-column")].indexOf(target)).click(); }
});
// The label of the search is an icon; some screen readers would use the help text next to it as the name.
const search = document.querySelector("#searchbar[aria-describedby]:not([aria-label])");
const picture = document.querySelector("label[for=searchbar] img[alt]");
if (search && picture) { search.setAttribute("aria-label", picture.alt); }
