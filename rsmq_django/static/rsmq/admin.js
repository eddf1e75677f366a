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
