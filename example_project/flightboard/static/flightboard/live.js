// Fetches the fragment named in data-live every second and puts it in place of the old one.
// Stops while the page is hidden (document.hidden) and when the fragment says it is final (data-live-done),
// and asks less often while the server does not answer.
"use strict";

const EVERY_MS = 1000;
const AT_MOST_MS = 15000;

const region = document.querySelector("[data-live]");
const status = document.querySelector("[data-live-status]");
let waitMs = EVERY_MS;
let timer = 0;
let shown = "";

function say(text) {
  if (status && status.textContent !== text) {
    status.textContent = text;
    status.hidden = text === "";
  }
}

// Leaves the page alone when nothing changed, so that screen readers do not repeat it and selections survive.
function show(text) {
  if (text === shown) return;
  shown = text;
  const template = document.createElement("template");
  template.innerHTML = text;
  region.replaceChildren(template.content);
}

async function refresh() {
  try {
    const response = await fetch(region.dataset.live, { headers: { "X-Requested-With": "fetch" } });
    if (!response.ok) throw new Error(response.status);
    show(await response.text());
    waitMs = EVERY_MS;
    say("");
  } catch {
    waitMs = Math.min(waitMs * 2, AT_MOST_MS);
    say(`No answer from the server. Trying again in ${Math.round(waitMs / 1000)} s.`);
  }
  plan(waitMs);
}

function plan(afterMs) {
  clearTimeout(timer);
  if (document.hidden || region.querySelector("[data-live-done]")) return;
  timer = setTimeout(refresh, afterMs);
}

if (region) {
  document.addEventListener("visibilitychange", () => plan(0));
  plan(EVERY_MS);
}
