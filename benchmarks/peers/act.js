// The actions of act.py for Node: node act.js PEER work|one|bulk|latency [COUNT [GAP_S]]
"use strict";

const fs = require("fs");
const path = require("path");
const { performance } = require("perf_hooks");

const WARM_UP = 10;
const every = Number(process.env.BENCH_TICK_EVERY || 1);
const ticks = fs.openSync(process.env.BENCH_TICKS || "/dev/null", "a");
const record = Buffer.alloc(24);
record.writeBigInt64LE(BigInt(process.pid), 0);
let runs = 0;

// The same clock as Python's time.monotonic().
const now = () => Number(process.hrtime.bigint()) / 1e9;

function ran(sentAt) {
  runs += 1;
  if (runs % every) return;
  record.writeDoubleLE(sentAt, 8);
  record.writeDoubleLE(now(), 16);
  fs.writeSync(ticks, record);
}

async function measure(count, send) {
  const began = performance.now();
  const cpu = process.cpuUsage();
  await send(count);
  const used = process.cpuUsage(cpu);
  return { count, seconds: (performance.now() - began) / 1000, cpu_s: (used.user + used.system) / 1e6 };
}

async function main() {
  const [name, action, count, gap] = process.argv.slice(2);
  const peer = require(path.join(__dirname, `${name}.js`));
  if (action === "work") return peer.work(ran);
  await peer.open();
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
    await oneByOne(WARM_UP);
    cost = await measure(Number(count) - WARM_UP, oneByOne);
  }
  console.log(JSON.stringify(cost));
  process.exit(0);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
