// Flow control: how many at once, how many in a period, and what an operator can do about it.

import { Sink, api, assert, client, door, ended, laterThan, refused, run, until } from "./kit.mjs";

const publish = (sink, flowControl, more = {}) =>
  client.publish({ url: sink.url("/f"), flowControl, ...more });

await run({
  async "under load no more than allowed are under way"() {
    const sink = await Sink.start();
    sink.replies("/f", { after: 30 });
    const flowControl = { key: "load", parallelism: 3 };
    const items = Array.from({ length: 60 }, (_, n) => ({ url: sink.url("/f"), body: `${n}`, flowControl }));
    await Promise.all([0, 20, 40].map((from) => client.batch(items.slice(from, from + 20))));
    const state = await client.flowControl.get("load");
    assert.deepEqual([state.flowControlKey, state.parallelismMax], ["load", 3]);
    assert.ok(state.parallelismCount <= 3, JSON.stringify(state));
    const heard = await sink.hears("/f", 60);
    assert.equal(sink.mostInFlight, 3, "as many as allowed, and no more");
    assert.equal(new Set(heard.map((request) => request.body)).size, 60);
    await until("nothing to be left", async () => {
      const { waitListSize, parallelismCount } = await client.flowControl.get("load");
      return !waitListSize && !parallelismCount;
    });
    assert.equal(sink.heard.length, 60);
  },

  async "what is over the limit waits, and is told as waiting"() {
    const sink = await Sink.start();
    const held = door();
    sink.replies("/f", { when: held.opened });
    const flowControl = { key: "waiting", parallelism: 2 };
    for (let n = 0; n < 5; n += 1) await publish(sink, flowControl);
    await sink.hears("/f", 2);
    await laterThan(1);
    assert.equal(sink.heard.length, 2);
    const state = await client.flowControl.get("waiting");
    assert.deepEqual([state.waitListSize, state.parallelismCount], [3, 2], JSON.stringify(state));
    const { parallelismMax, parallelismCount } = await client.flowControl.getGlobalParallelism();
    assert.ok(parallelismCount >= 2 && parallelismMax >= 0);
    held.open();
    await sink.hears("/f", 5);
    assert.equal(sink.mostInFlight, 2);
  },

  async "in a period no more than allowed are sent"() {
    const sink = await Sink.start();
    const flowControl = { key: "rate", rate: 3, period: "2s" };
    const began = Date.now();
    for (let n = 0; n < 12; n += 1) await publish(sink, flowControl);
    const heard = await sink.hears("/f", 12);
    const times = heard.map((request) => request.at - began);
    // The first period was not over when we began; each of the others takes two seconds.
    for (const [period, first] of [times[3], times[6], times[9]].entries()) {
      assert.ok(first >= period * 2000, times.join());
    }
    const state = await client.flowControl.get("rate");
    assert.deepEqual([state.rateMax, state.ratePeriod], [3, 2], JSON.stringify(state));
    assert.ok(state.rateCount <= 3, JSON.stringify(state));
    assert.ok(Math.abs(state.ratePeriodStart - Date.now() / 1000) < 600, JSON.stringify(state));
  },

  async "a message tells of its flow control, with a period of one second"() {
    const sink = await Sink.start();
    const { messageId } = await publish(sink, { key: "told", parallelism: 4 });
    const message = await client.messages.get(messageId);
    assert.deepEqual([message.flowControlKey, message.parallelism, message.period], ["told", 4, 1]);
    assert.ok(!("rate" in message), JSON.stringify(message));
    const other = await publish(sink, { key: "told", rate: 10, period: 60 });
    const second = await client.messages.get(other.messageId);
    assert.deepEqual([second.rate, second.period], [10, 60]);
    assert.ok(!("parallelism" in second), JSON.stringify(second));
    await ended(messageId, "DELIVERED");
    const { logs } = await client.logs({ filter: { flowControlKey: "told" } });
    assert.equal(new Set(logs.map((line) => line.messageId)).size, 2);
    assert.equal(logs[0].flowControlKey, "told");
  },

  async "the newest message says how many, unless that is pinned"() {
    const sink = await Sink.start();
    const key = "pinned";
    await publish(sink, { key, parallelism: 5 });
    assert.equal((await client.flowControl.get(key)).parallelismMax, 5);
    await publish(sink, { key, parallelism: 6 });
    assert.equal((await client.flowControl.get(key)).parallelismMax, 6);

    await client.flowControl.pin(key, { parallelism: 2, rate: 50, period: 30 });
    await publish(sink, { key, parallelism: 7, rate: 9 });
    const pinned = await client.flowControl.get(key);
    assert.deepEqual(
      [pinned.parallelismMax, pinned.rateMax, pinned.ratePeriod, pinned.isPinnedParallelism, pinned.isPinnedRate],
      [2, 50, 30, true, true],
      JSON.stringify(pinned),
    );

    await client.flowControl.unpin(key, { parallelism: true });
    const half = await client.flowControl.get(key);
    assert.ok(!half.isPinnedParallelism && half.isPinnedRate, JSON.stringify(half));
    assert.equal(half.parallelismMax, 2, "as it was, until the next message");
    await publish(sink, { key, parallelism: 8, rate: 9 });
    const moved = await client.flowControl.get(key);
    assert.deepEqual([moved.parallelismMax, moved.rateMax], [8, 50], JSON.stringify(moved));
    await client.flowControl.unpin(key, { rate: true });
    assert.ok(!(await client.flowControl.get(key)).isPinnedRate);
  },

  async "what is pinned holds, whatever messages say"() {
    const sink = await Sink.start();
    const held = door();
    sink.replies("/f", { when: held.opened });
    const flowControl = { key: "held", parallelism: 10 };
    await client.publish({ url: sink.url("/first"), flowControl });
    await sink.hears("/first");
    await client.flowControl.pin("held", { parallelism: 1 });
    for (let n = 0; n < 3; n += 1) await publish(sink, flowControl);
    await sink.hears("/f");
    await laterThan(1);
    assert.equal(sink.at("/f").length, 1);
    held.open();
    await sink.hears("/f", 3);
    assert.equal(sink.mostInFlight, 1);
  },

  async "a paused key delivers nothing"() {
    const sink = await Sink.start();
    const key = "paused";
    await publish(sink, { key, parallelism: 5 }, { body: "first" });
    await sink.hears("/f");
    await client.flowControl.pause(key);
    assert.equal((await client.flowControl.get(key)).isPaused, true);
    for (let n = 0; n < 3; n += 1) await publish(sink, { key, parallelism: 5 });
    await laterThan(1);
    assert.equal(sink.heard.length, 1);
    assert.equal((await client.flowControl.get(key)).waitListSize, 3);
    await client.flowControl.resume(key);
    await sink.hears("/f", 4);
    assert.ok(!(await client.flowControl.get(key)).isPaused);
  },

  async "a period can be ended early"() {
    const sink = await Sink.start();
    const key = "reset";
    for (let n = 0; n < 2; n += 1) await publish(sink, { key, rate: 1, period: "1h" });
    await sink.hears("/f");
    await laterThan(1);
    assert.equal(sink.heard.length, 1, "the second waits for an hour");
    await client.flowControl.resetRate(key);
    await sink.hears("/f", 2);
  },

  async "keys are listed and can be forgotten"() {
    const sink = await Sink.start();
    await publish(sink, { key: "listed-1", parallelism: 1 });
    await publish(sink, { key: "listed-2", parallelism: 1 });
    const all = await api("GET", "/v2/flowControl?search=listed-");
    assert.equal(all.status, 200, all.text);
    const found = all.json.map((state) => state.flowControlKey).sort();
    assert.deepEqual(found, ["listed-1", "listed-2"]);
    await sink.hears("/f", 2);
    const reset = await api("POST", "/v2/flowControl/listed-1/reset");
    assert.ok(reset.status < 300, reset.text);
    await refused(404, client.flowControl.pause("never-heard-of")).catch((error) => {
      // Either is fine: to refuse, or to take it for a key that comes later.
      assert.match(error.message, /was taken/);
    });
  },

  async "what waits can be cancelled by its key"() {
    const sink = await Sink.start();
    const held = door();
    sink.replies("/f", { when: held.opened });
    const key = "cancelled";
    for (let n = 0; n < 4; n += 1) await publish(sink, { key, parallelism: 1 }, { body: `${n}` });
    await sink.hears("/f");
    const { cancelled } = await client.messages.cancel({ filter: { flowControlKey: key } });
    assert.ok(cancelled === 3 || cancelled === 4, String(cancelled));
    held.open();
    await until("nothing to wait", async () => !(await client.flowControl.get(key)).waitListSize);
    await laterThan(1);
    assert.equal(sink.heard.length, 1);
  },
});
