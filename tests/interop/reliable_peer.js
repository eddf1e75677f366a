/**
 * A program in another language on a reliable queue: nothing but a Redis client and the functions of the library.
 *
 * argv[2]: path of the server's socket. Pushes to "to-python", then works on "to-node" until it reads "stop", and prints
 * what it got as one JSON line.
 */
"use strict";
const redis = require("redis");

const client = redis.createClient({ path: process.argv[2] });
const PARTS = ["undelivered", "delayed", "delivered", "dead", "bodies", "history", "state", "wake"];
const keysOf = (queue) => PARTS.map((part) => `rsmq::reliable:${queue}:${part}`);

function send(...words) {
  return new Promise((resolve, reject) => {
    client.send_command(words[0], words.slice(1), (error, reply) => (error ? reject(error) : resolve(reply)));
  });
}

function call(name, queues, ...words) {
  const keys = ["rsmq::reliable", ...queues.flatMap(keysOf)];
  return send("FCALL", name, keys.length, ...keys, ...words);
}

/** Pop, and wait for up to two seconds when there is nothing. */
async function pop(queues, count) {
  for (;;) {
    const found = await call("rq_pop", queues, count, "node");
    if (found.length > 0) return found;
    await send("BLPOP", ...queues.map((queue) => keysOf(queue)[7]), 2);
  }
}

async function main() {
  const [failing] = await call("rq_push", ["to-python"], 0, "one", "two");
  const wrong = await call("rq_pop", ["to-python"], "many").catch((error) => error.message);
  const got = [];
  while (got[got.length - 1] !== "stop") {
    for (const [queue, id, body] of await pop(["urgent", "to-node"], 10)) {
      got.push(body);
      if (body === "crash") continue; // never acknowledged
      await call("rq_ack", [queue], id);
    }
  }
  process.stdout.write(JSON.stringify({ failing, wrong, got }) + "\n");
  client.quit();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
