"""Schedules, flow control and the asynchronous client. How schedules fire is in `minutes.py`."""

import asyncio
import threading

import qstash
from qstash import AsyncQStash

from kit import NEVER, TOKEN, URL, Sink, buried, client, ended, later_than, refused, run, until

FAR = "0 0 1 1 *"


def a_schedule_has_a_life():
    sink = Sink()
    schedule_id = client.schedule.create_json(
        destination=sink.url("/never"),
        cron="CRON_TZ=America/New_York 0 9 * * *",
        body={"a": 1},
        headers={"X-Mine": "1"},
        retries=2,
        delay="1h30m",
        timeout=30,
        callback=sink.url("/callback"),
        label="of-python",
        flow_control={"key": "scheduled", "rate": 5, "period": "1m"},
    )
    schedule = client.schedule.get(schedule_id)
    assert (schedule.schedule_id, schedule.destination) == (schedule_id, sink.url("/never"))
    assert schedule.cron == "CRON_TZ=America/New_York 0 9 * * *"
    assert (schedule.method, schedule.retries, schedule.delay, schedule.timeout) == ("POST", 2, 5400, 30)
    assert schedule.body == '{"a": 1}' and schedule.callback == sink.url("/callback")
    assert schedule.headers == {"Content-Type": ["application/json"], "X-Mine": ["1"]}
    assert schedule.label == "of-python" and not schedule.paused
    flow = schedule.flow_control
    assert (flow.key, flow.rate, flow.period, flow.parallelism) == ("scheduled", 5, 60, None)
    assert any(found.schedule_id == schedule_id for found in client.schedule.list())
    client.schedule.pause(schedule_id)
    assert client.schedule.get(schedule_id).paused
    client.schedule.resume(schedule_id)
    assert not client.schedule.get(schedule_id).paused
    client.schedule.delete(schedule_id)
    refused(404, lambda: client.schedule.get(schedule_id))


def the_same_id_overwrites():
    sink = Sink()
    create = lambda **more: client.schedule.create(destination=sink.url("/x"), schedule_id="own", **more)
    assert create(cron=FAR, body="old", retries=9, label="old") == "own"
    create(cron="0 1 1 1 *")
    schedule = client.schedule.get("own")
    assert (schedule.cron, schedule.retries) == ("0 1 1 1 *", 3)
    assert schedule.body is None and schedule.label is None


def flow_control_holds_back():
    sink = Sink()
    held = threading.Event()
    sink.replies("/f", {"when": held})
    flow = {"key": "of-python", "parallelism": 2}
    ids = [client.message.publish(url=sink.url("/f"), flow_control=flow).message_id for _ in range(5)]
    sink.hears("/f", 2)
    later_than(1)
    assert len(sink.heard) == 2
    state = client.flow_control.get("of-python")
    assert (state.key, state.parallelism_max) == ("of-python", 2)
    assert (state.parallelism_count, state.wait_list_size) == (2, 3), state
    assert client.flow_control.get_global_parallelism().parallelism_count >= 2
    told = client.message.get(ids[0]).flow_control
    assert (told.key, told.parallelism, told.rate, told.period) == ("of-python", 2, None, 1)
    held.set()
    sink.hears("/f", 5)
    assert sink.most_in_flight == 2


def flow_control_is_pinned_paused_and_reset():
    sink = Sink()
    publish = lambda **flow: client.message.publish(url=sink.url("/p"), flow_control={"key": "pin", **flow})
    publish(parallelism=5)
    client.flow_control.pin("pin", {"parallelism": 3, "rate": 20, "period": 10})
    publish(parallelism=9)
    state = client.flow_control.get("pin")
    assert (state.parallelism_max, state.rate_max, state.rate_period) == (3, 20, 10), state
    assert state.is_pinned_parallelism and state.is_pinned_rate
    client.flow_control.unpin("pin", {"parallelism": True, "rate": True})
    publish(parallelism=9)
    state = client.flow_control.get("pin")
    assert state.parallelism_max == 9 and not state.is_pinned_parallelism, state
    sink.hears("/p", 3)
    client.flow_control.pause("pin")
    assert client.flow_control.get("pin").is_paused
    publish(parallelism=9)
    later_than(1)
    assert len(sink.heard) == 3
    client.flow_control.reset_rate("pin")
    client.flow_control.resume("pin")
    sink.hears("/p", 4)
    assert not client.flow_control.get("pin").is_paused


def the_asynchronous_client_does_the_same():
    qstash.asyncio.log.print = lambda *_: None
    sink = Sink()
    sink.replies("/dead", NEVER)
    other = AsyncQStash(TOKEN, base_url=URL)

    async def story():
        published = [other.message.publish_json(url=sink.url(f"/a{n}?n={n}"), body={"n": n}) for n in range(10)]
        answers = await asyncio.gather(*published)
        item = {"url": sink.url("/b"), "body": 1}
        batch = await other.message.batch_json([item, {**item, "queue": "aio"}])
        assert len(batch) == 2
        await other.queue.upsert("aio", parallelism=1)
        await other.message.enqueue(queue="aio", url=sink.url("/q"), body="x")
        assert (await other.queue.get("aio")).parallelism == 1
        await other.url_group.upsert_endpoints("aio", [{"url": sink.url("/g")}])
        grouped = await other.message.publish(url_group="aio", body="x")
        dead = await other.message.publish(url=sink.url("/dead"))
        kept = await other.message.publish(url=sink.url("/kept"), delay=2)
        gone = await other.message.publish(url=sink.url("/gone"), delay=2)
        assert await other.message.cancel_many([gone.message_id]) == 1
        schedule_id = await other.schedule.create(destination=sink.url("/s"), cron=FAR)
        assert (await other.schedule.get(schedule_id)).cron == FAR
        await other.schedule.delete(schedule_id)
        keys = await other.signing_key.get()
        assert keys.current.startswith("sig_")
        return answers, grouped, dead, kept

    answers, grouped, dead, kept = asyncio.run(story())
    for n, answer in enumerate(answers):
        heard = sink.hears(f"/a{n}")[0]
        assert (heard.target, heard.id) == (f"/a{n}?n={n}", answer.message_id)
    sink.hears("/b", 2)
    sink.hears("/q")
    assert sink.hears("/g")[0].id == grouped[0].message_id
    letter = buried(dead.message_id)
    assert sink.hears("/kept")[0].id == kept.message_id
    ended(kept.message_id, "DELIVERED")

    async def end():
        last = AsyncQStash(TOKEN, base_url=URL)
        logs = await last.log.list(filter={"message_id": kept.message_id})
        assert [line.state.value for line in logs.logs] == ["DELIVERED", "ACTIVE", "CREATED"]
        assert (await last.dlq.get(letter.dlq_id)).message_id == dead.message_id
        assert await last.dlq.delete_many([letter.dlq_id]) == 1
        assert (await last.message.get(dead.message_id)).url == sink.url("/dead")

    asyncio.run(end())
    assert sink.at("/gone") == []


run(
    a_schedule_has_a_life,
    the_same_id_overwrites,
    flow_control_holds_back,
    flow_control_is_pinned_paused_and_reset,
    the_asynchronous_client_does_the_same,
)
