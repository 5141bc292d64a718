// Schedules that fire: whoever has one waits for the next minute.

import { Sink, assert, client, ended, run, until } from "./kit.mjs";

const FAR = "0 0 1 1 *";
// A tick comes within a minute; a busy machine may be late.
const NEXT_MINUTE_MS = 130_000;

await run({
  async "every minute it fires once, the paused one not at all"() {
    const sink = await Sink.start();
    const name = "fired-group";
    const endpoints = [{ url: sink.url("/g1") }, { url: sink.url("/g2") }];
    await client.urlGroups.addEndpoints({ name, endpoints });
    const make = (destination, more) =>
      client.schedules.create({ destination, cron: "* * * * *", body: "tick", ...more });
    const began = Date.now();
    const { scheduleId } = await make(sink.url("/tick?n=1"), {
      headers: { "X-Mine": "1" },
      redact: { body: true },
    });
    const paused = await make(sink.url("/paused"));
    await client.schedules.pause({ schedule: paused.scheduleId });
    const deleted = await make(sink.url("/deleted"));
    await client.schedules.delete(deleted.scheduleId);
    const overwritten = await make(sink.url("/overwritten"), { scheduleId: "overwritten" });
    await client.schedules.create({ destination: sink.url("/overwritten"), cron: FAR, ...overwritten });
    await make(sink.url("/queued"), { queueName: "scheduled" });
    await make(name, {});

    const [heard] = await sink.hears("/tick", 1, NEXT_MINUTE_MS);
    assert.equal(heard.url, "/tick?n=1");
    assert.equal(heard.body, "tick");
    assert.equal(heard.headers["x-mine"], "1");
    assert.equal(heard.headers["content-type"], "application/json");
    assert.equal(heard.headers["upstash-schedule-id"], scheduleId);
    const minute = Math.floor(heard.at / 60_000);
    assert.ok(minute > Math.floor(began / 60_000), "not before its minute");
    await sink.hears("/g1");
    await sink.hears("/g2");
    const [queued] = await sink.hears("/queued");
    const inQueue = await client.messages.get(queued.headers["upstash-message-id"]);
    assert.equal(inQueue.queueName, "scheduled");

    const messageId = heard.headers["upstash-message-id"];
    await ended(messageId, "DELIVERED");
    const message = await client.messages.get(messageId);
    assert.equal(message.scheduleId, scheduleId);
    assert.match(message.body, /^REDACTED:/);
    const schedule = await until("the schedule to know", async () => {
      const schedule = await client.schedules.get(scheduleId);
      return schedule.lastScheduleStates?.[messageId] === "SUCCESS" ? schedule : undefined;
    });
    assert.equal(Math.floor(schedule.lastScheduleTime / 60_000), minute);
    assert.ok(schedule.nextScheduleTime > schedule.lastScheduleTime, JSON.stringify(schedule));
    const { logs } = await client.logs({ filter: { scheduleId } });
    assert.ok(logs.every((line) => line.scheduleId === scheduleId) && logs.length >= 3);
    const inThatMinute = sink.at("/tick").filter((request) => Math.floor(request.at / 60_000) === minute);
    assert.equal(inThatMinute.length, 1);
    assert.deepEqual([sink.at("/paused").length, sink.at("/deleted").length], [0, 0]);
    assert.equal(sink.at("/overwritten").length, 0);
  },
});
