/* Follows a compilation: its events refresh the page and draw the search. Shows the connection's state. */
(() => {
  "use strict";

  const TYPES = [
    "queued", "started", "confined", "stage-started", "stage-finished", "progress", "published",
    "succeeded", "failed", "cancelled",
  ];
  const FINAL = new Set(["succeeded", "failed", "cancelled"]);
  const REFRESH_MS = 1000;
  const LOG_MS = 2000;
  const CLOCK_MS = 5000;
  const LONGEST_WAIT_SECONDS = 30;
  const COLORS = /\u001b\[[0-9;]*[A-Za-z]/g;
  const NAMES = {
    "torch-eager": "torch eager", "torch-compile": "torch.compile", onnxruntime: "ONNX Runtime", openvino: "OpenVINO",
  };

  document.addEventListener("click", openTarget);
  window.addEventListener("hashchange", () => open(location.hash));
  open(location.hash);
  const page = document.querySelector("[data-follow]");
  if (page) follow(page.dataset.follow, page.dataset.page);

  function openTarget(event) {
    const link = event.target.closest('.treemap a[href^="#"]');
    if (link) open(link.getAttribute("href"));
  }

  function open(hash) {
    const target = hash.length > 1 && document.getElementById(hash.slice(1));
    const details = target && target.closest("details");
    if (details) details.open = true;
  }

  function follow(api, address) {
    const connection = document.getElementById("connection");
    const curve = searchCurve(document.getElementById("search"), document.getElementById("curve"));
    let source = null;
    let last = 0;
    let ended = false;
    let failures = 0;
    let refreshing = false;
    let wanted = false;
    let refreshedAt = 0;

    connection.hidden = false;
    connect();
    const logTimer = setInterval(refreshLog, LOG_MS);
    const clock = setInterval(() => document.hidden || refresh(), CLOCK_MS);
    refreshLog();
    document.addEventListener("visibilitychange", refreshLog);
    addEventListener("online", () => source || connect());

    function connect() {
      show("connecting", "connecting");
      source = new EventSource(`${api}/events`);
      source.onopen = () => { failures = 0; show("live", "live"); };
      source.onerror = lost;
      for (const type of TYPES) source.addEventListener(type, receive);
    }

    function lost() {
      if (ended) return;
      if (source.readyState !== EventSource.CLOSED) { show("lost", "reconnecting"); return; }
      source.close();
      source = null;
      const wait = Math.min(2 ** failures, LONGEST_WAIT_SECONDS);
      failures += 1;
      countDown(wait);
    }

    function countDown(seconds) {
      if (source || ended) return;
      if (seconds <= 0) { connect(); return; }
      show("lost", `connection lost, again in ${seconds} s`);
      setTimeout(() => countDown(seconds - 1), 1000);
    }

    function receive(message) {
      const event = JSON.parse(message.data);
      if (event.seq <= last) return;
      last = event.seq;
      curve.add(event);
      keepBestWhile(event);
      if (FINAL.has(event.type)) finish(event.type);
      else refresh();
    }

    function keepBestWhile(event) {
      const form = document.getElementById("keep-best");
      if (!form) return;
      if (event.type === "started") form.hidden = false;
      if (event.type === "stage-finished" && event.data.stage === "tune") form.hidden = true;
    }

    function refresh() {
      wanted = true;
      if (refreshing || ended) return;
      refreshing = true;
      setTimeout(async () => {
        wanted = false;
        await load(`${address}/progress`, "#progress", "innerHTML");
        refreshedAt = Date.now();
        refreshing = false;
        const state = document.getElementById("state");
        if (state && document.querySelector("#progress .now")) { state.textContent = "running"; state.className = "badge running"; }
        if (wanted) refresh();
      }, Math.max(150, REFRESH_MS - (Date.now() - refreshedAt)));
    }

    async function finish(state) {
      ended = true;
      source.close();
      clearInterval(logTimer);
      clearInterval(clock);
      show("ended", state);
      document.title = document.title.replace(/ · \w+ · /, ` · ${state} · `);
      await load(address, "#compilation", "outerHTML", "#compilation");
      const announce = document.getElementById("announce");
      if (announce) announce.textContent = `The compilation has ${state === "cancelled" ? "been cancelled" : state}.`;
      open(location.hash);
    }

    function load(url, target, swap, select) {
      return htmx.ajax("GET", url, { target, swap, select, headers: { Accept: "text/html" } }).catch(() => {});
    }

    async function refreshLog() {
      const log = document.getElementById("log");
      if (!log || document.hidden || ended) return;
      let text;
      try {
        const response = await fetch(`${api}/logs`, { credentials: "same-origin" });
        if (!response.ok) return;
        text = (await response.text()).replace(COLORS, "");
      } catch { return; }
      if (text === log.textContent) return;
      const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
      log.textContent = text;
      if (atEnd) log.scrollTop = log.scrollHeight;
    }

    function show(state, text) {
      connection.dataset.state = state;
      connection.querySelector("span").textContent = text;
    }
  }

  function searchCurve(section, box) {
    let begun = null;
    let chart = null;
    let frame = 0;
    let names = [];
    const points = [];
    new ResizeObserver(() => chart && chart.setSize(size())).observe(section);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { names = []; draw(); });
    return { add };

    function add(event) {
      if (event.type === "started") { points.length = 0; begun = null; }
      const estimate = event.type === "progress" && event.data.estimate;
      if (!estimate) return;
      const at = Date.parse(event.at);
      begun = begun === null ? at : begun;
      points.push({ seconds: (at - begun) / 1000, ...estimate });
      if (!frame) frame = requestAnimationFrame(draw);
    }

    function draw() {
      frame = 0;
      if (!points.length) return;
      section.hidden = false;
      const latest = points[points.length - 1];
      const lines = [["untuned", latest.untuned_ms], ...Object.entries(latest.peers_ms || {})]
        .filter(([, value]) => Number.isFinite(value));
      const data = [
        points.map((point) => point.seconds),
        points.map((point) => point.latency_ms),
        ...lines.map(([, value]) => points.map(() => value)),
      ];
      const wanted = lines.map(([name]) => name);
      if (chart && wanted.join() === names.join()) { chart.setData(data); return; }
      if (chart) chart.destroy();
      names = wanted;
      chart = new uPlot(options(wanted, data), data, box);
    }

    function options(lines, data) {
      const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
      const axis = { stroke: color("quiet"), grid: { stroke: color("line"), width: 1 }, ticks: { stroke: color("line"), width: 1 } };
      const shown = (_chart, value) => (value === null || value === undefined ? "–" : duration(value));
      return {
        ...size(),
        legend: { live: false },
        hooks: { draw: [nameLines] },
        cursor: { drag: { x: false, y: false } },
        scales: { x: { time: false, range: (_c, _min, max) => [0, Math.max(max, 1)] }, y: latencies(data.slice(1).flat()) },
        axes: [
          { ...axis, space: 96, values: (_c, ticks) => ticks.map((tick) => (tick ? duration(tick * 1000, trimmed) : "0")) },
          { ...axis, size: 66, values: (_c, ticks) => ticks.map((tick) => (tick ? duration(tick, trimmed) : tick === 0 ? "0" : "")) },
        ],
        series: [
          { label: "time", value: (_c, value) => (value === null || value === undefined ? "–" : duration(value * 1000)) },
          { label: "estimated", stroke: color("bar"), width: 2.5, paths: uPlot.paths.stepped({ align: 1 }), points: { show: points.length < 2 }, value: shown },
          ...lines.map((name) => ({
            label: NAMES[name] || name,
            stroke: color(name === "untuned" ? "ink" : "steel"),
            width: 1.5,
            dash: name === "untuned" ? [] : [6, 4],
            points: { show: false },
            value: shown,
          })),
        ],
      };
    }

    /* From zero, or logarithmic if the slowest line would hide the differences between the others. */
    function latencies(values) {
      const known = values.filter((value) => value > 0).sort((one, other) => one - other);
      return known.length && known[known.length - 1] > 8 * known[0]
        ? { distr: 3, range: (_c, min, max) => [min / 1.3, max * 1.3] }
        : { range: (_c, _min, max) => [0, max * 1.12] };
    }

    /* Each line's name and latency at its right end, from the top, without overlaps and above the axis. */
    function nameLines(drawn) {
      const { ctx, bbox, data, series } = drawn;
      const ratio = devicePixelRatio;
      const last = data[0].length - 1;
      const labels = series.slice(1)
        .map((each, index) => ({ text: `${each.label} ${duration(data[index + 1][last])}`, y: drawn.valToPos(data[index + 1][last], "y", true), ours: index === 0 }))
        .sort((one, other) => one.y - other.y);
      ctx.save();
      ctx.font = `${12.5 * ratio}px system-ui, sans-serif`;
      ctx.textAlign = "right";
      ctx.lineJoin = "round";
      ctx.lineWidth = 4 * ratio;
      ctx.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--panel").trim();
      const step = 14 * ratio;
      let lowest = bbox.top;
      for (const [index, { text, y, ours }] of labels.entries()) {
        const below = step * (labels.length - 1 - index);
        const at = Math.min(Math.max(y - 5 * ratio, lowest + step), bbox.top + bbox.height - 4 * ratio - below);
        lowest = at;
        ctx.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(ours ? "--ember" : "--ink").trim();
        ctx.strokeText(text, bbox.left + bbox.width - 2 * ratio, at);
        ctx.fillText(text, bbox.left + bbox.width - 2 * ratio, at);
      }
      ctx.restore();
    }

    function size() {
      return { width: Math.max(box.clientWidth, 200), height: 260 };
    }
  }

  function trimmed(value) { return Number(value.toPrecision(3)).toString(); }

  function threeDigits(value) { return value >= 100 ? Math.round(value).toString() : value.toPrecision(3); }

  function duration(milliseconds, digits = threeDigits) {
    if (milliseconds < 1) return `${digits(milliseconds * 1000)} µs`;
    if (milliseconds < 1000) return `${digits(milliseconds)} ms`;
    if (milliseconds < 120000) return `${digits(milliseconds / 1000)} s`;
    const seconds = Math.round(milliseconds / 1000);
    return `${Math.floor(seconds / 60)} min ${String(seconds % 60).padStart(2, "0")} s`;
  }
})();
