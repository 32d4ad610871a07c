// Scrolls and searches long texts, marks a function's loops across its forms and the graph's edges, and handles keys.
// Pages work without it.
"use strict";
(() => {
  const CHUNK = 200, LINE = 19, KEEP = 12, MOST_FOUND = 10000, MOST_TRIED = 8;

  class Scroller {
    constructor(box) {
      this.box = box;
      this.lines = box.querySelector(".code-lines");
      this.base = Number(box.dataset.base);
      this.total = this.base + Number(box.dataset.total);
      this.first = Number(box.dataset.start);
      this.top = document.createElement("div");
      this.bottom = document.createElement("div");
      this.notice = box.parentElement.querySelector(".notice.missing-line") || document.createElement("p");
      this.notice.className = "notice missing-line";
      this.notice.setAttribute("role", "status");
      this.start = this.first;
      this.end = this.first + this.lines.children.length;
      this.waiting = null;
      this.whole = this.end - this.start >= this.total - this.base;
      if (this.whole) return;
      this.lines.prepend(this.top);
      this.lines.append(this.bottom);
      this.pad();
      box.addEventListener("scroll", () => this.look(), { passive: true });
    }
    pad() {
      this.top.style.height = `${(this.start - this.base) * LINE}px`;
      this.bottom.style.height = `${Math.max(this.total - this.end, 0) * LINE}px`;
    }
    look() {
      if (this.waiting) return;
      const from = this.base + Math.floor(this.box.scrollTop / LINE);
      const to = from + Math.ceil(this.box.clientHeight / LINE);
      if (from < this.start - CHUNK || to > this.end + CHUNK) this.load(Math.max(from - CHUNK / 2, this.base), 2 * CHUNK, "replace");
      else if (from < this.start + 40 && this.start > this.base) this.load(Math.max(this.start - CHUNK, this.base), Math.min(CHUNK, this.start - this.base), "before");
      else if (to > this.end - 40 && this.end < this.total) this.load(this.end, CHUNK, "after");
    }
    load(start, most, where) {
      this.waiting = this.receive(start, Math.min(most, this.total - start), where);
      return this.waiting;
    }
    async receive(start, count, where) {
      try {
        const reply = await fetch(`${this.box.dataset.source}&start=${start}&count=${count}`, { headers: { "HX-Request": "true" } });
        if (!reply.ok) return;
        const part = new DOMParser().parseFromString(await reply.text(), "text/html");
        const rows = [...part.body.children];
        if (!rows.length) return;
        for (const row of rows) this.number(row);
        const widest = Math.max(...rows.map((row) => row.lastChild.textContent.length));
        if (widest > this.lines.dataset.widest.length) this.lines.dataset.widest = "0".repeat(widest);
        if (where === "replace") {
          while (this.top.nextSibling !== this.bottom) this.top.nextSibling.remove();
          this.start = start;
          this.end = start + rows.length;
          this.top.after(...rows);
        } else if (where === "before") {
          this.top.after(...rows);
          this.start = start;
        } else {
          this.bottom.before(...rows);
          this.end = start + rows.length;
        }
        this.trim(where);
        this.pad();
      } finally {
        this.waiting = null;
      }
      requestAnimationFrame(() => this.look());
    }
    // Scrolls to a line, from 1, and returns its row; null if the text does not have it.
    async show(line) {
      if (!(line > this.base && line <= this.total)) return null;
      while (this.waiting) await this.waiting;
      if (line <= this.start || line > this.end) {
        await this.load(Math.max(line - 1 - CHUNK, this.base), 2 * CHUNK, "replace");
      }
      const row = document.getElementById(`${this.box.dataset.anchor}${line}`);
      if (row) this.box.scrollTop = row.offsetTop - this.box.clientHeight / 3;
      return row;
    }
    // The numbers of the lines that contain a text; null if the request failed.
    async find(sought) {
      const address = this.box.dataset.source.replace("/lines?", "/find?");
      const reply = await fetch(`${address}&start=${this.base}&q=${encodeURIComponent(sought)}`).catch(() => null);
      return reply?.ok ? (await reply.json()).filter((line) => line <= this.total) : null;
    }
    lack(line) {
      this.unmark();
      this.notice.textContent = `Line ${line} is outside this text, which has the lines ${this.base + 1} to ${this.total}.`;
      this.box.before(this.notice);
    }
    unmark() {
      this.notice.remove();
      for (const each of this.box.querySelectorAll(".marked")) each.classList.remove("marked");
    }
    mark(row, line) {
      this.unmark();
      row.classList.add("marked");
      this.box.dataset.marked = line;
    }
    trim(where) {
      const limit = KEEP * CHUNK;
      while (this.end - this.start > limit) {
        if (where === "before") { this.bottom.previousSibling.remove(); this.end -= 1; }
        else { this.top.nextSibling.remove(); this.start += 1; }
      }
    }
    number(row) {
      const old = row.querySelector(".n"), line = old.textContent;
      const link = document.createElement("a");
      link.className = "n";
      const id = `${this.box.dataset.anchor}${line}`;
      link.href = `${this.box.dataset.permalink}&line=${line}#${id}`;
      link.textContent = line;
      old.replaceWith(link);
      row.id = id;
      if (line === this.box.dataset.marked) row.classList.add("marked");
      if (line === this.box.dataset.found) row.classList.add("found");
    }
  }

  // Finds text in the lines that the browser does not have, too.
  class Finder {
    constructor(scroller) {
      this.scroller = scroller;
      this.lines = [];
      this.at = -1;
      this.sought = "";
      this.turn = 0;
      const title = scroller.box.getAttribute("aria-label");
      const count = (scroller.total - scroller.base).toLocaleString("en");
      this.bar = document.createElement("div");
      this.bar.className = "find";
      this.bar.setAttribute("role", "search");
      this.input = document.createElement("input");
      Object.assign(this.input, { type: "search", maxLength: 200, placeholder: `Find in ${count} lines`, autocomplete: "off", spellcheck: false });
      this.input.setAttribute("aria-label", `Find in ${title}`);
      this.state = document.createElement("output");
      this.bar.append(this.input, this.button("Previous", -1), this.button("Next", 1), this.state);
      scroller.box.before(this.bar);
      this.input.addEventListener("input", () => this.clear());
      this.input.addEventListener("keydown", (event) => {
        if (event.key === "Enter") { event.preventDefault(); this.go(event.shiftKey ? -1 : 1); }
        if (event.key === "Escape") { this.input.value = ""; this.clear(); scroller.box.focus(); }
      });
    }
    button(text, by) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = text;
      button.addEventListener("click", () => this.go(by));
      return button;
    }
    clear() {
      delete this.scroller.box.dataset.found;
      for (const each of this.scroller.box.querySelectorAll(".found")) each.classList.remove("found");
      this.state.textContent = "";
    }
    async go(by) {
      const sought = this.input.value, turn = ++this.turn;
      this.clear();
      if (!sought) return;
      if (sought !== this.sought) {
        const lines = await this.scroller.find(sought);
        if (turn !== this.turn) return;
        if (!lines) { this.state.textContent = "The search failed. Try again."; return; }
        Object.assign(this, { lines, sought, at: by > 0 ? -1 : lines.length });
      }
      const count = this.lines.length;
      if (!count) { this.state.textContent = "Not found"; return; }
      this.at = (this.at + by + count) % count;
      const line = this.lines[this.at];
      this.state.textContent = `${this.at + 1} of ${count}${count < MOST_FOUND ? "" : " or more"}, line ${line}`;
      const row = await this.scroller.show(line);
      if (turn !== this.turn || !row) return;
      this.scroller.box.dataset.found = line;
      row.classList.add("found");
    }
  }

  const scrollers = [], finders = [];

  async function showHash() {
    const [, anchor, line] = /^#(.*?L)(\d+)$/.exec(location.hash) || [];
    const scroller = scrollers.find((each) => each.box.dataset.anchor === anchor);
    if (!scroller) return;
    const row = await scroller.show(Number(line));
    if (!row) return scroller.lack(line);
    scroller.mark(row, line);
    row.scrollIntoView({ block: "center" });
  }

  function start() {
    for (const box of document.querySelectorAll(".code[data-source]")) {
      const scroller = new Scroller(box);
      scrollers.push(scroller);
      if (!scroller.whole) finders.push(new Finder(scroller));
      const marked = box.querySelector(".marked");
      if (marked) box.scrollTop = marked.offsetTop - box.clientHeight / 3;
    }
    const current = document.querySelector(".passes [aria-current]");
    const passes = document.querySelector(".passes");
    if (current && passes && passes.scrollHeight > passes.clientHeight) passes.scrollTop += current.getBoundingClientRect().top - passes.getBoundingClientRect().top - passes.clientHeight / 2;
  }

  // A line's number is its address: show it without loading the page again.
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.(".code a.n");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || link.closest(".hits")) return;
    event.preventDefault();
    scrollers.find((each) => each.box === link.closest(".code")).mark(link.closest(".l"), link.textContent);
    history.replaceState(null, "", link.href);
  });

  // A loop keeps its name from TensorIR to LLVM's blocks and to the labels of assembly.
  function loopOf(line) {
    const text = line.querySelector("code").textContent;
    const script = /^\s*for (\w+(?:, \w+)*) in /.exec(text);
    if (script) return script[1].split(", ");
    const block = /(?:for_(?:begin|body|end)_)(\w+?)(?:\.|:|$|\b)/.exec(text);
    return block ? [block[1]] : null;
  }
  document.addEventListener("mouseover", (event) => {
    const line = event.target.closest?.(".panes .l");
    for (const each of document.querySelectorAll(".l.near")) each.classList.remove("near");
    const names = line && loopOf(line);
    if (!names) return;
    for (const each of document.querySelectorAll(".panes .l")) {
      const other = loopOf(each);
      if (other && other.some((name) => names.includes(name))) each.classList.add("near");
    }
  });

  // A click on a loop scrolls the other panes to its first line.
  let clicks = 0;
  document.addEventListener("click", async (event) => {
    const clicked = event.target.closest?.(".panes .l");
    const names = clicked && !event.target.closest("a") && loopOf(clicked);
    if (!names) return;
    const turn = ++clicks;
    for (const scroller of scrollers.filter((each) => !each.box.contains(clicked))) {
      const starts = scroller.box.dataset.anchor === "script-L" ? ["for ", ", "] : ["for_begin_", "for_body_"];
      const found = await Promise.all(starts.map((start) => scroller.find(start + names[0])));
      for (const line of found.flatMap((lines) => (lines || []).slice(0, MOST_TRIED))) {
        if (turn !== clicks) return;
        const row = await scroller.show(line);
        if (row && loopOf(row)?.some((name) => names.includes(name))) break;
      }
    }
  });

  for (const kind of ["mouseover", "focusin"]) {
    document.addEventListener(kind, (event) => {
      const box = event.target.closest?.(".graph .box");
      for (const edge of document.querySelectorAll(".edge.near")) edge.classList.remove("near");
      if (!box) return;
      const call = CSS.escape(box.dataset.call);
      for (const edge of document.querySelectorAll(`.edge[data-from="${call}"], .edge[data-to="${call}"]`)) edge.classList.add("near");
    });
  }

  // A browser's own search finds only the loaded lines, so the first Ctrl-F focuses the pane's search field.
  document.addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.key !== "f" || event.target.closest(".find")) return;
    const finder = finders.find((each) => each.scroller.box.matches(":focus-within, :hover")) || finders[0];
    if (!finder) return;
    event.preventDefault();
    finder.input.focus();
    finder.input.select();
  });

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
    if (event.key === "/") { event.preventDefault(); document.querySelector("#q")?.focus(); }
    const rel = { n: "next", p: "prev" }[event.key];
    if (rel) document.querySelector(`.walk a[rel="${rel}"]`)?.click();
  });

  for (const select of document.querySelectorAll(".choices select")) {
    select.addEventListener("change", () => select.form.requestSubmit());
  }
  addEventListener("hashchange", showHash);
  start();
  showHash();
})();
