// BullMQ: one process that works on a hundred jobs at a time and keeps nothing of finished ones.
"use strict";

const { Queue, Worker } = require("bullmq");

const CHUNK = 1000;
const connection = { host: "127.0.0.1", port: Number(process.env.BENCH_PORT), maxRetriesPerRequest: null };
const options = { removeOnComplete: true, removeOnFail: true };
let queue;
let rest;

async function open(otherArguments) {
  rest = otherArguments;
  queue = new Queue("bench", { connection });
  await queue.waitUntilReady();
}

const sendOne = (sentAt) => queue.add("noop", { sent_at: sentAt, ...rest }, options);

async function sendBulk(count) {
  for (let sent = 0; sent < count; sent += CHUNK) {
    const size = Math.min(CHUNK, count - sent);
    await queue.addBulk(Array.from({ length: size }, () => ({ name: "noop", data: { sent_at: 0, ...rest }, opts: options })));
  }
}

async function work(ran) {
  new Worker("bench", async (job) => ran(job.data.sent_at), { connection, concurrency: 100 });
}

module.exports = { open, sendOne, sendBulk, work };
