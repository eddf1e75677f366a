"use strict";
// <rsmq-task-progress data-src>: follows one task. The server answers with events or with one object; after an object, an
// end of the events or an error the element asks again, after errors later each time. It works wherever it is put into a
// page, at any time, and asks nothing while the page is hidden. At the end it dispatches "rsmq:ended", which bubbles.
(() => {
  if (customElements.get("rsmq-task-progress")) { return; }
  const everyMs = 1000, longestMs = 30000;
  // Browsers open six connections to a server: a page of many bars must not use them up.
  const mostStreams = 2;
  const ends = ["SUCCESSFUL", "FAILED", "UNKNOWN"];
  const lost = [403, 404, 410];
  let streams = 0;

  customElements.define("rsmq-task-progress", class extends HTMLElement {
    connectedCallback() {
      this.onVisible = () => (document.hidden ? this.stop() : this.begin());
      document.addEventListener("visibilitychange", this.onVisible);
      this.begin();
    }

    disconnectedCallback() {
      document.removeEventListener("visibilitychange", this.onVisible);
      this.stop();
    }

    isOver() { return ends.includes(this.dataset.status); }

    begin() {
      this.stop();
      if (document.hidden || this.isOver()) { return; }
      this.going = new AbortController();
      this.follow(this.going.signal);
    }

    stop() { if (this.going) { this.going.abort(); } }

    async follow(signal) {
      let waitMs = everyMs;
      while (!signal.aborted && !this.isOver()) {
        try {
          if (!await this.ask(signal)) { this.write("text", this.dataset.lost); return; }
          waitMs = everyMs;
        } catch { waitMs = Math.min(2 * waitMs, longestMs); }
        if (!signal.aborted && !this.isOver()) { await new Promise((go) => { setTimeout(go, waitMs); }); }
      }
    }

    // Returns false when the address is not valid any more.
    async ask(signal) {
      const mayStream = streams < mostStreams;
      const headers = {Accept: mayStream ? "text/event-stream, application/json" : "application/json"};
      streams += mayStream;
      try {
        const answer = await fetch(this.dataset.src, {headers, signal, cache: "no-store", redirect: "error"});
        if (lost.includes(answer.status)) { return false; }
        if (!answer.ok) { throw new Error(String(answer.status)); }
        if ((answer.headers.get("Content-Type") || "").startsWith("text/event-stream")) { await this.read(answer.body); }
        else { this.show(await answer.json()); }
        return true;
      } finally { streams -= mayStream; }
    }

    async read(body) {
      const reader = body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "", heard = false;
      for (;;) {
        const {done, value} = await reader.read();
        if (done) { if (heard) { return; } throw new Error("no event"); }
        const events = (rest + value).split("\n\n");
        rest = events.pop();
        for (const event of events.filter((each) => each.startsWith("data: "))) {
          heard = true;
          this.show(JSON.parse(event.slice(6)));
        }
      }
    }

    show(now) {
      const bar = this.querySelector("progress");
      if (now.value === null) { bar.removeAttribute("value"); } else { bar.value = now.value; }
      for (const name of ["text", "figures", "note"]) { this.write(name, now[name]); }
      this.dataset.status = now.status;
      if (this.isOver()) {
        this.dispatchEvent(new CustomEvent("rsmq:ended", {bubbles: true, detail: {status: now.status}}));
      }
    }

    // An unchanged text is left alone, so that it is not read out again and stays selected.
    write(name, text) {
      const place = this.querySelector(`[data-rsmq="${name}"]`);
      if (place.textContent !== text) { place.textContent = text; }
    }
  });
})();
