"use strict";
// Auto-refresh: fetch the content of the page, and replace changed elements. Elements with
// `data-rsmq-live` and an id are replaced as a whole, lists row by row. No request is sent while the page is hidden,
// switched off or has selected rows; after errors it waits longer, and shows the age of the data.
(() => {
  const everyMs = 5000, longestMs = 60000, giveUpMs = 30000;
  const bar = document.querySelector("[data-rsmq-bar]");
  const words = bar ? bar.dataset : {};
  // How far the clock of this machine is ahead of the server's.
  const aheadMs = bar ? Date.now() - Number(words.rsmqNow) : 0;

  // -- Times: how long ago something was, how long it takes. They are computed in the browser. --

  function duration(seconds, units) {
    if (seconds < 10) { return Math.round(seconds) + " s"; }
    const parts = [];
    let rest = Math.floor(seconds);
    for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]]) {
      if (rest >= size) { parts.push(Math.floor(rest / size) + " " + unit); }
      rest %= size;
    }
    return parts.slice(0, units).join(" ");
  }

  function write(place, text) { if (place.textContent !== text) { place.textContent = text; } }

  function tick() {
    const now = Date.now() - aheadMs;
    for (const place of bar ? document.querySelectorAll("[data-rsmq-at]") : []) {
      const left = (Number(place.dataset.rsmqAt) - now) / 1000;
      write(place, (left > 0 ? words.rsmqIn : words.rsmqAgo).replace("{}", duration(Math.abs(left), 1)));
    }
    for (const place of document.querySelectorAll("[data-rsmq-until]")) {
      write(place, duration(Math.abs(Number(place.dataset.rsmqUntil) - now) / 1000, 2));
    }
  }

  // -- State that is kept during a replacement. --

  const FOCUSABLE = "a[href], button, input, select, textarea, summary, [tabindex]";
  const SCROLLABLE = ".rsmq-scroll, .rsmq-chart-table, .rsmq-charts, pre";
  const within = (part, selector) => [part, ...part.querySelectorAll(selector)].filter((each) => each.matches(selector));

  function replacePart(old, part) {
    if (old.innerHTML === part.innerHTML) { return; }
    const focused = within(old, FOCUSABLE).indexOf(document.activeElement);
    const open = within(old, "details").map((each) => each.open);
    const scrolled = within(old, SCROLLABLE).map((each) => [each.scrollLeft, each.scrollTop]);
    within(part, "details").forEach((each, at) => { each.open = open[at] ?? each.open; });
    old.replaceWith(part);
    within(part, SCROLLABLE).forEach((each, at) => { [each.scrollLeft, each.scrollTop] = scrolled[at] || [0, 0]; });
    if (focused >= 0 && within(part, FOCUSABLE)[focused]) { within(part, FOCUSABLE)[focused].focus({preventScroll: true}); }
  }

  // -- Lists: rows stay, with their check boxes, and get other cells. --

  const rowsOf = (page) => [...page.querySelectorAll("#result_list tbody tr")];
  const cellsOf = (row) => [...row.children].filter((cell) => !cell.matches(".action-checkbox"));
  const linkOf = (row) => (row.querySelector("th a, td a") || {}).href;

  function replaceRow(old, row) {
    const [box, freshBox] = [old, row].map((each) => each.querySelector(".action-checkbox"));
    if (box && freshBox) {
      [...freshBox.querySelectorAll("input")].forEach((input, at) => {
        const known = box.querySelectorAll("input")[at];
        known.value = input.value;
        if (input.ariaLabel) { known.ariaLabel = input.ariaLabel; }
      });
    }
    const cells = cellsOf(old);
    cellsOf(row).forEach((cell, at) => { if (cells[at].innerHTML !== cell.innerHTML) { cells[at].replaceWith(cell); } });
    old.className = row.className;
  }

  function replaceRows(fresh) {
    const olds = rowsOf(document), rows = rowsOf(fresh);
    if (!olds.length || !rows.length) {
      // An empty list has no table for new rows.
      if (olds.length !== rows.length && !document.querySelector("input:focus, textarea:focus")) { location.reload(); }
      return;
    }
    if (cellsOf(olds[0]).length !== cellsOf(rows[0]).length) { throw new Error("columns"); }
    const active = document.activeElement, focusedRow = olds.find((row) => row.contains(active));
    const key = focusedRow && linkOf(focusedRow), focused = focusedRow ? within(focusedRow, FOCUSABLE).indexOf(active) : -1;
    olds.slice(rows.length).forEach((row) => row.remove());
    rows.slice(0, olds.length).forEach((row, at) => replaceRow(olds[at], row));
    olds[0].parentElement.append(...rows.slice(olds.length));
    if (rows.length > olds.length && window.Actions) { window.Actions(document.querySelectorAll("tr input.action-select")); }
    if (focusedRow && !document.contains(active)) {
      const home = rowsOf(document).find((row) => linkOf(row) === key);
      if (home && within(home, FOCUSABLE)[focused]) { within(home, FOCUSABLE)[focused].focus({preventScroll: true}); }
    }
  }

  function show(fresh) {
    for (const old of document.querySelectorAll("[data-rsmq-live][id]")) {
      const part = fresh.getElementById(old.id);
      if (part) { replacePart(old, part); }
    }
    if (document.querySelector("#changelist")) { replaceRows(fresh); }
    const [pages, freshPages] = [document, fresh].map((page) => page.querySelector("#changelist-form .paginator, .paginator"));
    if (pages && freshPages && pages.innerHTML !== freshPages.innerHTML) { pages.innerHTML = freshPages.innerHTML; }
    tick();
    document.dispatchEvent(new Event("rsmq:shown"));
  }

  // -- Requests. --

  if (bar || document.querySelector("[data-rsmq-until]")) { tick(); setInterval(tick, 1000); }
  if (!document.querySelector("[data-rsmq-live]")) { return; }
  const toggle = document.querySelector("[data-rsmq-switch]");
  const said = document.querySelector("[data-rsmq-said]");
  // On pages of other apps only our status line is refreshed.
  const source = (document.querySelector("[data-rsmq-source]") || {dataset: {}}).dataset.rsmqSource || location.href;
  let waitMs = everyMs, etag = "", goodAt = new Date(), timer = 0;

  const isSelected = () => document.querySelector("input.action-select:checked") !== null;
  const isReading = () => String(getSelection()) !== "" || document.querySelector("[data-rsmq-live] :is(input, textarea, select):focus") !== null;
  const isOff = () => document.hidden || (toggle && !toggle.checked);

  function say(text, isStale) {
    if (said) { write(said, text); }
    if (bar) { bar.classList.toggle("rsmq-stale", isStale); }
  }

  async function ask() {
    const headers = {"Rsmq-Fragment": "1"};
    if (etag) { headers["If-None-Match"] = etag; }
    const signal = AbortSignal.timeout(giveUpMs);
    const answer = await fetch(source, {credentials: "same-origin", redirect: "error", cache: "no-store", headers, signal});
    if (answer.status !== 304) {
      if (!answer.ok) { throw new Error(String(answer.status)); }
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (isOff() || isSelected() || isReading()) { return; }
      show(fresh);
      etag = answer.headers.get("ETag") || "";
    }
    goodAt = new Date();
    waitMs = everyMs;
    say("", false);
  }

  async function refresh() {
    clearTimeout(timer);
    if (isOff()) { say("", false); return; }
    if (isSelected()) { say(words.rsmqSelected || "", false); } else if (!isReading()) {
      try { await ask(); } catch (error) {
        waitMs = Math.min(2 * waitMs, longestMs);
        const parts = [goodAt.toLocaleTimeString(), duration(waitMs / 1000, 1)];
        say((words.rsmqStale || "").replace(/\{\}/g, () => parts.shift()), true);
      }
    }
    clearTimeout(timer);
    timer = setTimeout(refresh, waitMs);
  }

  if (bar) { bar.hidden = false; }
  if (toggle) { toggle.addEventListener("change", () => { waitMs = everyMs; refresh(); }); }
  document.addEventListener("visibilitychange", () => { if (!document.hidden) { waitMs = everyMs; refresh(); } });
  timer = setTimeout(refresh, everyMs);
})();
