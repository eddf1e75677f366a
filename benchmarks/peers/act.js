// The actions of act.py for Node: node act.js PEER work|one|bulk|latency [COUNT [GAP_S]]
"use strict";

const fs = require("fs");
const path = require("path");
const { performance } = require("perf_hooks");

const WARM_UP = 10;
// As in act.py: one by one is measured in so many parts, of which the median counts.
const PARTS = 10;
const every = Number(process.env.BENCH_TICK_EVERY || 1);
const ticks = fs.openSync(process.env.BENCH_TICKS || "/dev/null", "a");
const record = Buffer.alloc(24);
record.writeBigInt64LE(BigInt(process.pid), 0);
let runs = 0;
// As in act.py: the other arguments of each task.
const ARGUMENTS = { order: 4711, currency: "EUR" };

// The same clock as Python's time.monotonic().
const now = () => Number(process.hrtime.bigint()) / 1e9;

function ran(sentAt) {
  runs += 1;
  if (runs % every) return;
  record.writeDoubleLE(sentAt, 8);
  record.writeDoubleLE(now(), 16);
  fs.writeSync(ticks, record);
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

async function measure(count, send, parts = 1) {
  const seconds = [];
  const cpuSeconds = [];
  for (let part = 0; part < parts; part++) {
    const began = performance.now();
    const cpu = process.cpuUsage();
    await send(count / parts);
    const used = process.cpuUsage(cpu);
    seconds.push((performance.now() - began) / 1000);
    cpuSeconds.push((used.user + used.system) / 1e6);
  }
  return { count, seconds: median(seconds) * parts, cpu_s: median(cpuSeconds) * parts };
}

async function main() {
  const [name, action, count, gap] = process.argv.slice(2);
  const peer = require(path.join(__dirname, `${name}.js`));
  if (action === "work") return peer.work(ran);
  await peer.open(ARGUMENTS);
  const oneByOne = async (n) => {
    for (let i = 0; i < n; i++) await peer.sendOne(0);
  };
  const nowAndThen = async (n) => {
    for (let i = 0; i < n; i++) {
      await new Promise((go) => setTimeout(go, (0.5 + Math.random()) * Number(gap) * 1000));
      await peer.sendOne(now());
    }
  };
  let cost;
  if (action === "bulk") {
    cost = await measure(Number(count), peer.sendBulk);
  } else if (action === "latency") {
    cost = await measure(Number(count), nowAndThen);
  } else {
    const part = Math.max(1, Math.floor((Number(count) - WARM_UP) / PARTS));
    await oneByOne(Number(count) - part * PARTS);
    cost = await measure(part * PARTS, oneByOne, PARTS);
  }
  console.log(JSON.stringify(cost));
  process.exit(0);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
