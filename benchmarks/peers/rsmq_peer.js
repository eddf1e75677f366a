// Node rsmq, the reference implementation: a library, not a worker. The loop that its users write, a hundred of it.
"use strict";

const RedisSMQ = require("rsmq");

const LOOPS = 100;
const CHUNK = 100;
const queue = { qname: "bench" };
const rsmq = new RedisSMQ({ host: "127.0.0.1", port: Number(process.env.BENCH_PORT), realtime: true });

let rest;

async function open(otherArguments) {
  rest = otherArguments;
  await rsmq.createQueueAsync(queue).catch((error) => {
    if (error.name !== "queueExists") throw error;
  });
}

const sendOne = (sentAt) =>
  rsmq.sendMessageAsync({ ...queue, message: JSON.stringify({ kwargs: { sent_at: sentAt, ...rest } }) });

async function sendBulk(count) {
  // It has no bulk call; what is sent in one turn of the event loop travels together.
  for (let sent = 0; sent < count; sent += CHUNK) {
    await Promise.all(Array.from({ length: Math.min(CHUNK, count - sent) }, () => sendOne(0)));
  }
}

async function work(ran) {
  await open();
  let asleep = [];
  const listener = new (require("ioredis"))(Number(process.env.BENCH_PORT), "127.0.0.1");
  await listener.subscribe("rsmq:rt:bench");
  const wake = () => {
    asleep.splice(0).forEach((go) => go());
  };
  listener.on("message", wake);
  setInterval(wake, 100);
  const loop = async () => {
    for (;;) {
      const message = await rsmq.receiveMessageAsync(queue);
      if (!message.id) {
        await new Promise((go) => asleep.push(go));
        continue;
      }
      ran(JSON.parse(message.message).kwargs.sent_at);
      await rsmq.deleteMessageAsync({ ...queue, id: message.id });
    }
  };
  for (let i = 0; i < LOOPS; i++) loop();
}

module.exports = { open, sendOne, sendBulk, work };
