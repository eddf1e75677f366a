"use strict";
// Keep pages up to date: read the page again and put its parts into this one. Elements with `data-rsmq-live` and an id
// are replaced as a whole, lists of the admin cell by cell, so that what was selected stays selected. It pauses while
// nobody can see the page, while something is selected, and when it is switched off; after errors it waits longer.
(() => {
  const everyMs = 5000, longestMs = 60000;
  const isLive = document.querySelector("[data-rsmq-live]");
  if (!isLive) { return; }
  const toggle = document.querySelector("[data-rsmq-switch]");
  const said = document.querySelector("[data-rsmq-said]");
  let waitMs = everyMs;

  const isBusy = () => document.hidden || (toggle && !toggle.checked)
    || document.querySelector("input.action-select:checked") !== null;

  function replaceParts(fresh) {
    for (const old of document.querySelectorAll("[data-rsmq-live][id]")) {
      const part = fresh.getElementById(old.id);
      if (!part) { continue; }
      const open = [...old.querySelectorAll("details")].map((each) => each.open);
      [...part.querySelectorAll("details")].forEach((each, at) => { each.open = open[at] || false; });
      if (!old.contains(document.activeElement)) { old.replaceWith(part); }
    }
  }

  function replaceCells(fresh) {
    const rows = (page) => new Map([...page.querySelectorAll("#result_list tbody tr")].map((row, at) => {
      const box = row.querySelector("input.action-select");
      return [box ? box.value : (row.querySelector("th a") || {}).href || String(at), row];
    }));
    const olds = rows(document);
    for (const [key, row] of rows(fresh)) {
      const old = olds.get(key);
      if (!old) { continue; }
      const cells = old.querySelectorAll("td:not(.action-checkbox), th");
      row.querySelectorAll("td:not(.action-checkbox), th").forEach((cell, at) => {
        const known = cells[at];
        if (!known || known.contains(document.activeElement)) { return; }
        if (known.innerHTML !== cell.innerHTML) { known.replaceWith(cell); }
      });
    }
  }

  async function refresh() {
    if (!isBusy()) {
      try {
        const answer = await fetch(location.href, {credentials: "same-origin", redirect: "error"});
        if (!answer.ok) { throw new Error(String(answer.status)); }
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
        if (!isBusy()) { replaceParts(fresh); replaceCells(fresh); }
        waitMs = everyMs;
        if (said) { said.textContent = ""; }
      } catch (error) {
        waitMs = Math.min(2 * waitMs, longestMs);
        if (said) { said.textContent = "⚠ " + new Date().toLocaleTimeString(); }
      }
    }
    setTimeout(refresh, waitMs);
  }

  if (toggle) { toggle.parentElement.hidden = false; }
  document.addEventListener("visibilitychange", () => { waitMs = everyMs; });
  setTimeout(refresh, everyMs);
})();
