// A worker that computes the SHA-256 of a file and of its parts. Browsers cannot hash streams, and hash nothing at
// all on pages without TLS, so this implements SHA-256.
"use strict";

const K = new Uint32Array(64);
const START = new Uint32Array(8);
for (let n = 2, count = 0; count < 64; n++) {
  let prime = true;
  for (let d = 2; d * d <= n; d++) if (n % d === 0) prime = false;
  if (!prime) continue;
  if (count < 8) START[count] = (Math.sqrt(n) % 1) * 4294967296;
  K[count++] = (Math.cbrt(n) % 1) * 4294967296;
}

class Sha256 {
  constructor() {
    this.state = START.slice();
    this.words = new Int32Array(64);
    this.rest = new Uint8Array(64);
    this.held = 0;
    this.bytes = 0;
  }

  update(data) {
    let at = 0;
    this.bytes += data.length;
    if (this.held) {
      const more = Math.min(64 - this.held, data.length);
      this.rest.set(data.subarray(0, more), this.held);
      this.held += more;
      at = more;
      if (this.held < 64) return this;
      this.blocks(this.rest, 0, 64);
      this.held = 0;
    }
    const end = at + ((data.length - at) & ~63);
    this.blocks(data, at, end);
    this.rest.set(data.subarray(end), 0);
    this.held = data.length - end;
    return this;
  }

  hex() {
    const bits = this.bytes * 8;
    const tail = new Uint8Array(this.held < 56 ? 64 : 128);
    tail.set(this.rest.subarray(0, this.held));
    tail[this.held] = 0x80;
    const view = new DataView(tail.buffer);
    view.setUint32(tail.length - 8, Math.floor(bits / 4294967296));
    view.setUint32(tail.length - 4, bits % 4294967296);
    this.blocks(tail, 0, tail.length);
    return Array.from(this.state, (word) => word.toString(16).padStart(8, "0")).join("");
  }

  blocks(data, from, to) {
    const w = this.words;
    const s = this.state;
    for (let at = from; at < to; at += 64) {
      for (let i = 0, j = at; i < 16; i++, j += 4) {
        w[i] = (data[j] << 24) | (data[j + 1] << 16) | (data[j + 2] << 8) | data[j + 3];
      }
      for (let i = 16; i < 64; i++) {
        const x = w[i - 15];
        const y = w[i - 2];
        const p = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
        const q = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
        w[i] = (w[i - 16] + p + w[i - 7] + q) | 0;
      }
      let a = s[0] | 0, b = s[1] | 0, c = s[2] | 0, d = s[3] | 0;
      let e = s[4] | 0, f = s[5] | 0, g = s[6] | 0, h = s[7] | 0;
      for (let i = 0; i < 64; i++) {
        const p = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
        const t = (h + p + (g ^ (e & (f ^ g))) + K[i] + w[i]) | 0;
        const q = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
        const u = (q + ((a & b) | (c & (a | b)))) | 0;
        h = g; g = f; f = e; e = (d + t) | 0;
        d = c; c = b; b = a; a = (t + u) | 0;
      }
      s[0] += a; s[1] += b; s[2] += c; s[3] += d; s[4] += e; s[5] += f; s[6] += g; s[7] += h;
    }
  }
}

onmessage = async (event) => {
  const { file, partBytes } = event.data;
  try {
    const whole = new Sha256();
    const parts = [];
    for (let at = 0; at < file.size; at += partBytes) {
      const data = new Uint8Array(await file.slice(at, at + partBytes).arrayBuffer());
      whole.update(data);
      parts.push(file.size <= partBytes ? null : new Sha256().update(data).hex());
      postMessage({ hashed: at + data.length });
    }
    const digest = whole.hex();
    postMessage({ digest, parts: parts.map((part) => part || digest) });
  } catch (error) {
    postMessage({ failure: String(error) });
  }
};
