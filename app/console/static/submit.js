// The page that submits a model: hashes a file, uploads it in parts, and shows the API's errors at their fields.
// Without this script, the form sends the file itself.
"use strict";

(() => {
  const find = (id) => document.getElementById(id);
  const form = find("submit");
  const root = form.dataset.root;
  const partBytes = Number(form.dataset.partBytes);
  const input = find("file");
  const drop = find("drop");
  const bar = find("upload-bar");
  const toggle = find("upload-toggle");
  const RETRIES = 8;
  let current = null;
  let submits = false;

  const extensions = find("extension-files");

  input.removeAttribute("name"); // the file is sent in parts
  extensions.addEventListener("change", () => {
    form.elements.extension_files.value = [...extensions.files].map((file) => file.name).join("\n");
    refresh();
  });

  const shownBytes = (count) =>
    count < 1048576 ? `${(count / 1024).toFixed(1)} KiB` : `${(count / 1048576).toFixed(1)} MiB`;
  const say = (text) => { find("upload-status").textContent = text; };
  const refresh = () => form.dispatchEvent(new Event("refresh"));
  const wait = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

  class Refused extends Error {}
  class Stopped extends Error {}

  async function request(method, path, body, type, signal) {
    const headers = { Accept: "application/json", "Content-Type": type };
    const response = await fetch(`${root}/console/uploads${path}`, { method, headers, body, signal });
    if (response.ok) return response.status === 204 ? null : response.json();
    const problem = await response.json().catch(() => null);
    const mayEnd = response.status === 429 && problem?.code !== "quota-exceeded";
    if (response.status < 500 && !mayEnd) {
      throw new Refused(problem ? problem.detail : `The service answered ${response.status}.`);
    }
    throw new Error(problem ? problem.detail : `The service answered ${response.status}.`);
  }

  // Retries a request that a lost connection or a busy service made fail, unless the upload is paused.
  async function persistently(upload, act) {
    for (let tries = 0; ; ) {
      await upload.going;
      if (upload !== current) throw new Stopped();
      try {
        return await act(upload.control.signal);
      } catch (error) {
        if (upload.control.signal.aborted) continue;
        if (error instanceof Refused || ++tries > RETRIES) throw error;
        const seconds = Math.min(2 ** (tries - 1), 30);
        say(`Connection lost. Trying again in ${seconds} s.`);
        await wait(seconds * 1000);
      }
    }
  }

  function hashed(upload) {
    return new Promise((resolve, reject) => {
      const worker = new Worker(form.dataset.worker);
      upload.worker = worker;
      worker.onerror = () => reject(new Error("The file could not be read."));
      worker.onmessage = ({ data }) => {
        if (upload !== current) {
          worker.terminate();
          reject(new Stopped());
        } else if (data.failure) {
          reject(new Error("The file could not be read."));
        } else if (data.digest) {
          worker.terminate();
          resolve(data);
        } else {
          bar.value = data.hashed / upload.file.size;
          say(`Hashing: ${Math.floor(bar.value * 100)} %`);
        }
      };
      worker.postMessage({ file: upload.file, partBytes });
    });
  }

  async function send(upload) {
    const { file } = upload;
    const { digest, parts } = await hashed(upload);
    const plan = JSON.stringify({ digest, size_bytes: file.size, file: file.name, parts });
    toggle.hidden = false;
    for (;;) {
      const ask = (signal) => request("POST", "", plan, "application/json", signal);
      const { missing, model } = await persistently(upload, ask);
      if (model) return model;
      const lacking = new Set(missing);
      let done = parts.length - parts.filter((part) => lacking.has(part)).length;
      for (let index = 0; index < parts.length; index++) {
        if (!lacking.delete(parts[index])) continue;
        const data = file.slice(index * partBytes, (index + 1) * partBytes);
        const type = "application/octet-stream";
        await persistently(upload, (signal) => request("PUT", `/parts/${parts[index]}`, data, type, signal));
        bar.value = ++done / parts.length;
        say(`Uploading: ${Math.floor(bar.value * 100)} %`);
      }
      say("Storing");
    }
  }

  async function start(file) {
    if (current && current.worker) current.worker.terminate();
    if (current) current.control.abort();
    const upload = { file, control: new AbortController(), going: Promise.resolve(), resume: null };
    current = upload;
    find("upload").hidden = false;
    find("upload-name").textContent = file.name;
    find("upload-size").textContent = shownBytes(file.size);
    find("model-digest").value = "";
    find("file-name").value = file.name;
    find("signature").replaceChildren();
    document.querySelector(".stored")?.remove();
    bar.hidden = false;
    toggle.textContent = "Pause";
    showError("model", "");
    refresh();
    try {
      if (file.size === 0) throw new Refused("The file is empty.");
      if (file.size > Number(form.dataset.maxBytes)) throw new Refused("The file is larger than the service takes.");
      const model = await send(upload);
      if (upload !== current) return;
      find("model-digest").value = model.digest;
      say(`Stored as ${model.digest.slice(0, 12)}`);
      bar.hidden = true;
      current = null;
      refresh();
      if (submits) {
        form.requestSubmit();
        return;
      }
      htmx.ajax("GET", `${root}/console/submit/model?model=${model.digest}`, { target: "#signature", swap: "outerHTML" });
    } catch (error) {
      if (error instanceof Stopped || upload !== current) return;
      current = null;
      submits = false;
      find("go-status").textContent = "";
      say("Failed");
      showError("model", error.message);
    } finally {
      if (upload !== current) toggle.hidden = current === null;
    }
  }

  toggle.addEventListener("click", () => {
    if (!current) return;
    if (current.resume) {
      current.control = new AbortController();
      current.resume();
      current.resume = null;
      toggle.textContent = "Pause";
      say("Uploading");
    } else {
      current.going = new Promise((resolve) => { current.resume = resolve; });
      current.control.abort();
      toggle.textContent = "Resume";
      say("Paused");
    }
  });

  input.addEventListener("change", () => { if (input.files.length) start(input.files[0]); });
  let depth = 0;
  const over = (count) => { depth = count; drop.classList.toggle("over", depth > 0); };
  document.addEventListener("dragenter", (event) => { event.preventDefault(); over(depth + 1); });
  document.addEventListener("dragleave", () => over(Math.max(0, depth - 1)));
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => {
    over(0);
    if (event.target === extensions) return;
    event.preventDefault();
    if (event.dataTransfer.files.length) start(event.dataTransfer.files[0]);
  });

  form.addEventListener("submit", (event) => {
    if (!current) return;
    event.preventDefault();
    submits = true;
    find("go-status").textContent = "Compiles when the upload ends";
  });

  function showError(path, text) {
    const place = document.querySelector(`[data-error="${CSS.escape(path)}"]`);
    if (!place) return;
    place.textContent = text;
    place.hidden = !text;
    const field = path === "model" ? input : document.querySelector(`[data-field="${CSS.escape(path)}"]`);
    if (!field) return;
    if (text) field.setAttribute("aria-invalid", "true");
    else field.removeAttribute("aria-invalid");
  }

  document.body.addEventListener("htmx:afterSettle", () => {
    const fresh = document.querySelector("#problems[data-fresh]");
    if (!fresh) return;
    fresh.removeAttribute("data-fresh");
    const messages = new Map();
    for (const each of fresh.querySelectorAll("[data-path]")) messages.set(each.dataset.path, each.textContent);
    for (const place of document.querySelectorAll("[data-error]")) {
      const path = place.dataset.error;
      if (path !== "model") showError(path, messages.get(path) || "");
    }
  });
  document.body.addEventListener("htmx:load", (event) => { if (event.target.id === "signature") refresh(); });

  const copy = find("copy");
  copy.hidden = !navigator.clipboard;
  copy.addEventListener("click", async () => {
    const kind = form.querySelector("[name=show]:checked").value;
    await navigator.clipboard.writeText(document.querySelector(`#code .${kind}`).textContent);
    copy.textContent = "Copied";
    setTimeout(() => { copy.textContent = "Copy"; }, 1500);
  });
})();
