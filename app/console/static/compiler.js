// Windows on long texts, loops of a function across its forms, keys, and edges of the graph. Pages work without it.
"use strict";
(() => {
  const CHUNK = 200, LINE = 19, KEEP = 12;

  class Scroller {
    constructor(box) {
      this.box = box;
      this.lines = box.querySelector(".code-lines");
      this.base = Number(box.dataset.base);
      this.total = this.base + Number(box.dataset.total);
      this.first = Number(box.dataset.start);
      this.top = document.createElement("div");
      this.bottom = document.createElement("div");
      this.whole = this.lines.children.length >= this.total - this.base;
      if (this.whole) return;
      this.rows = [...this.lines.children];
      this.lines.prepend(this.top);
      this.lines.append(this.bottom);
      this.start = this.first;
      this.end = this.first + this.rows.length;
      this.waiting = null;
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
    async load(start, most, where) {
      const count = Math.min(most, this.total - start);
      this.waiting = start;
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
    }
  }

  function start() {
    for (const box of document.querySelectorAll(".code[data-source]")) {
      new Scroller(box);
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
    const box = link.closest(".code");
    for (const each of box.querySelectorAll(".marked")) each.classList.remove("marked");
    link.closest(".l").classList.add("marked");
    box.dataset.marked = link.textContent;
    history.replaceState(null, "", link.href);
  });

  // A loop keeps its name from TensorIR to LLVM's blocks and to the labels of assembly.
  function loopOf(line) {
    const text = line.querySelector("code").textContent;
    const script = /^\s*for (\w+(?:, \w+)*) in /.exec(text);
    if (script) return script[1].split(", ");
    const block = /(?:for_(?:begin|body|end)_)(\w+?)(?:\.|:|$|\b)/.exec(text);
    return block ? [block[1].replace(/\d*$/, (tail) => tail)] : null;
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

  for (const kind of ["mouseover", "focusin"]) {
    document.addEventListener(kind, (event) => {
      const box = event.target.closest?.(".graph .box");
      for (const edge of document.querySelectorAll(".edge.near")) edge.classList.remove("near");
      if (!box) return;
      const call = CSS.escape(box.dataset.call);
      for (const edge of document.querySelectorAll(`.edge[data-from="${call}"], .edge[data-to="${call}"]`)) edge.classList.add("near");
    });
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
    if (event.key === "/") { event.preventDefault(); document.querySelector("#q")?.focus(); }
    const rel = { n: "next", p: "prev" }[event.key];
    if (rel) document.querySelector(`.walk a[rel="${rel}"]`)?.click();
  });

  for (const select of document.querySelectorAll(".choices select")) {
    select.addEventListener("change", () => select.form.requestSubmit());
  }
  start();
})();
