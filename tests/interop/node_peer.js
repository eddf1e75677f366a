/**
 * The Node side of the interoperability tests: npm `rsmq` and `rsmq-worker` behind a pipe.
 *
 * Reads one JSON request per line and answers each with one JSON line of the same `seq`:
 *   {"seq": 1, "call": "sendMessage", "options": {"qname": "mail"}, "body_b64": "aGk="}
 *   {"seq": 1, "result": "g73zkl38qz..."}   or   {"seq": 1, "error": {"name": "queueNotFound", "message": "..."}}
 * Bodies travel in base64, because JSON lines cannot carry every byte. Ends when its input ends.
 *
 * argv[2]: JSON connection options of the npm client, {"path": "/a/socket"} or {"host": ..., "port": ...}.
 */
"use strict";
const readline = require("readline");
const RedisSMQ = require("rsmq");
const RSMQWorker = require("rsmq-worker");
const redis = require("redis");

const connection = JSON.parse(process.argv[2]);
const clients = new Map(); // namespace + realtime -> RedisSMQ
const workers = new Map(); // queue name -> RSMQWorker
let subscribers = [];
let published = []; // texts heard on subscribed channels, in order
let processed = []; // bodies that rsmq-worker handed to us, base64

function clientFor({ ns = "rsmq", realtime = false }) {
  const key = `${ns} ${realtime}`;
  // The client writes into the object it is given, hence the copy.
  if (!clients.has(key)) clients.set(key, new RedisSMQ({ ...connection, ns, realtime }));
  return clients.get(key);
}

const toText = (base64) => Buffer.from(base64, "base64").toString("utf8");
const toBase64 = (text) => (text == null ? null : Buffer.from(text, "utf8").toString("base64"));

/** Calls of our own, for what is no method of the client. */
const extras = {
  /** Forget everything and connect anew: this client never notices that a server lost its scripts. */
  async reset() {
    for (const worker of workers.values()) worker.stop();
    for (const client of [...subscribers, ...[...clients.values()].map((rsmq) => rsmq.redis)]) client.end(false);
    workers.clear();
    clients.clear();
    [subscribers, published, processed] = [[], [], []];
  },
  async subscribe({ channel }) {
    const subscriber = redis.createClient({ ...connection });
    subscribers.push(subscriber);
    subscriber.on("error", () => {});
    subscriber.on("message", (_channel, text) => published.push(text));
    await new Promise((resolve) => {
      subscriber.on("subscribe", resolve);
      subscriber.subscribe(channel);
    });
  },
  async published() {
    return published;
  },
  async startWorker({ qname }) {
    const worker = new RSMQWorker(qname, { rsmq: clientFor({}), interval: 0.02, timeout: 0, defaultDelay: 0 });
    worker.on("message", (body, next) => {
      processed.push(toBase64(body));
      next();
    });
    worker.start();
    workers.set(qname, worker);
  },
  async workerSend({ qname }, body) {
    return new Promise((resolve, reject) => {
      workers.get(qname).send(body, 0, (error, id) => (error ? reject(error) : resolve(id)));
    });
  },
  async processed() {
    return processed;
  },
  /** Read the values of a call of a task, and send a call with values of our own. */
  async answerCall({ qname }) {
    const rsmq = clientFor({});
    const { kwargs, task } = JSON.parse((await rsmq.popMessageAsync({ qname })).message);
    const found = {
      at_ms: new Date(kwargs.at).getTime(),
      day: new Date(`${kwargs.day}T00:00:00Z`).toISOString(),
      colour: kwargs.colour,
      total: kwargs.items.reduce((sum, item) => sum + Number(item.price), 0),
    };
    const at = new Date(found.at_ms + 1000);
    const items = [{ price: 2.5 }, { price: "0.50" }];
    const answer = { at, day: at.toISOString().slice(0, 10), wait: 90, colour: "red", items, user: kwargs.user };
    await rsmq.sendMessageAsync({ qname, message: JSON.stringify({ task, kwargs: answer }) });
    return found;
  },
};

async function answer({ call, options = {}, client = {}, body_b64: body }) {
  if (call in extras) return extras[call](options, body === undefined ? undefined : toText(body));
  const rsmq = clientFor(client);
  if (body !== undefined) options.message = toText(body);
  const result = call === "listQueues" ? await rsmq.listQueuesAsync() : await rsmq[`${call}Async`](options);
  if (result && typeof result === "object" && "message" in result) {
    const { message, ...rest } = result;
    return { ...rest, body_b64: toBase64(message) };
  }
  return result;
}

readline
  .createInterface({ input: process.stdin })
  .on("line", async (line) => {
    const request = JSON.parse(line);
    let reply;
    try {
      reply = { result: (await answer(request)) ?? null };
    } catch (error) {
      reply = { error: { name: error.name, message: error.message } };
    }
    process.stdout.write(JSON.stringify({ seq: request.seq, ...reply }) + "\n");
  })
  .on("close", () => process.exit(0));
