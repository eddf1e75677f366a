"use strict";
// What our admin pages do by themselves. Every page works without it.

// Select all rows of a table at once.
for (const all of document.querySelectorAll("[data-rsmq-all]")) {
  const boxes = all.closest("form").querySelectorAll(`input[name="${all.dataset.rsmqAll}"]`);
  all.hidden = boxes.length < 2;
  all.addEventListener("change", () => boxes.forEach((box) => { box.checked = all.checked; }));
}

// Go on with a job by itself, a part at a time, until it is stopped or done.
for (const form of document.querySelectorAll("form[data-rsmq-goes-on]")) {
  const live = document.createElement("input");
  live.type = "hidden";
  live.name = live.value = "live";
  form.append(live);
  const timer = setTimeout(() => form.requestSubmit(), 100);
  form.querySelector("a").addEventListener("click", () => clearTimeout(timer));
}

// Some themes draw lists without the names of their columns in the cells: a narrow window shows each row as a list.
function labelCells() {
  for (const table of document.querySelectorAll("#result_list")) {
    if (table.querySelector("thead [class*='column-'], [data-label]:not([data-rsmq-labelled] *)")) { continue; }
    table.dataset.rsmqLabelled = "";
    const names = [...table.querySelectorAll("thead th")].map((head) => head.innerText.trim());
    for (const row of table.querySelectorAll("tbody tr")) {
      [...row.children].forEach((cell, at) => { cell.dataset.label = names[at] || ""; });
    }
  }
}
labelCells();
document.addEventListener("rsmq:shown", labelCells);
// The label of the search is a picture; with a help text beside it some readers would read that as the name.
const search = document.querySelector("#searchbar[aria-describedby]:not([aria-label])");
const picture = document.querySelector("label[for=searchbar] img[alt]");
if (search && picture) { search.setAttribute("aria-label", picture.alt); }
