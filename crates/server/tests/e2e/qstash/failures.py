"""Retries, callbacks, dead letters and queues with a failing head, with the Python client."""

import base64
import json
import threading
import time

from kit import NEVER, Sink, buried, client, ended, later_than, refused, run, until

SLACK = 0.005


def decoded(text):
    return base64.b64decode(text).decode()


def gaps(heard):
    return [after.at - before.at for before, after in zip(heard, heard[1:])]


def an_expression_says_how_long_to_wait():
    sink = Sink()
    sink.replies("/retry", {"status": 500}, {"status": 503}, {})
    expression = "400 * (1 + retried)"
    answer = client.message.publish(url=sink.url("/retry"), body="x", retries=2, retry_delay=expression)
    waits = gaps(sink.hears("/retry", 3))
    assert waits[0] >= 0.4 - SLACK and waits[1] >= 0.8 - SLACK, waits
    lines = ended(answer.message_id, "DELIVERED")
    assert [line.state.value for line in lines].count("DELIVERED") == 1
    failed = next(line for line in lines if line.state.value == "ERROR")
    assert failed.response_status == 500
    planned = next(line for line in lines if line.state.value == "RETRY")
    assert planned.next_delivery_time >= failed.time + 395, planned
    assert failed.retry_delay_expression == expression
    assert client.message.get(answer.message_id).retry_delay_expression == expression


def the_destination_says_how_long_to_wait():
    sink = Sink()
    sink.replies("/after", {"status": 429, "headers": {"Retry-After": "2"}}, {})
    sink.replies("/once", {"status": 429, "headers": {"Retry-After": "0"}}, {})
    for path in ["/after", "/once"]:
        client.message.publish(url=sink.url(path), retries=1, retry_delay="3600000")
    assert gaps(sink.hears("/after", 2))[0] >= 2 - SLACK
    sink.hears("/once", 2)


def a_destination_that_says_never_again():
    sink = Sink()
    sink.replies("/never", NEVER)
    answer = client.message.publish(url=sink.url("/never"), retries=3, retry_delay="100")
    letter = buried(answer.message_id)
    assert (letter.response_status, letter.response_body, letter.max_retries) == (489, "no", 3)
    later_than(1)
    assert len(sink.heard) == 1


def callbacks_of_every_attempt_and_of_the_end():
    sink = Sink()
    sink.replies("/work", {"status": 503, "body": b"sorry"})
    answer = client.message.publish_json(
        url=sink.url("/work"),
        body={"job": 1},
        headers={"X-Job": "1"},
        retries=1,
        retry_delay="100",
        callback=sink.url("/each"),
        failure_callback=sink.url("/end"),
        callback_headers={"Forward-X-Of": "callback"},
        failure_callback_headers={"Forward-X-Of": "failure"},
    )
    each = sink.hears("/each", 2)
    end = sink.hears("/end")[0]
    assert all(heard.headers["X-Of"] == "callback" for heard in each)
    assert end.headers["X-Of"] == "failure"
    reports = sorted((json.loads(heard.body) for heard in each), key=lambda report: report["retried"])
    assert [report["retried"] for report in reports] == [0, 1]
    last = json.loads(end.body)
    for report in [*reports, last]:
        assert (report["status"], decoded(report["body"])) == (503, "sorry")
        assert report["sourceMessageId"] == answer.message_id
        assert json.loads(decoded(report["sourceBody"])) == {"job": 1}
        assert report["sourceHeader"]["X-Job"] == ["1"]
        assert (report["url"], report["maxRetries"]) == (sink.url("/work"), 1)
    assert last["dlqId"] == buried(answer.message_id).dlq_id
    message = client.message.get(answer.message_id)
    assert (message.callback, message.failure_callback) == (sink.url("/each"), sink.url("/end"))


def dead_letters_are_found_read_and_deleted():
    sink = Sink()
    sink.replies("/dead", NEVER)
    ids = [client.message.publish(url=sink.url("/dead"), body=str(n), label=f"n{n}").message_id for n in range(5)]
    letters = [buried(message_id) for message_id in ids]
    url = {"url": sink.url("/dead")}
    seen, cursor = [], None
    while True:
        page = client.dlq.list(count=2, cursor=cursor, filter=url)
        assert len(page.messages) <= 2
        seen += [letter.dlq_id for letter in page.messages]
        cursor = page.cursor
        if not cursor:
            break
    assert sorted(seen) == sorted(letter.dlq_id for letter in letters)
    found = client.dlq.list(filter={**url, "label": "n3", "response_status": 489}).messages
    assert [letter.message_id for letter in found] == [ids[3]]
    assert client.dlq.list(filter={**url, "response_status": 500}).messages == []
    read = client.dlq.get(letters[0].dlq_id)
    assert (read.message_id, read.body, read.response_status) == (ids[0], "0", 489)
    client.dlq.delete(letters[0].dlq_id)
    refused(404, lambda: client.dlq.delete(letters[0].dlq_id))
    refused(404, lambda: client.dlq.get(letters[0].dlq_id))
    # Named in the body: whoever does not look deletes everything.
    assert client.dlq.delete_many([letters[1].dlq_id, letters[2].dlq_id]) == 2
    left = client.dlq.list(filter=url).messages
    assert sorted(letter.message_id for letter in left) == sorted(ids[3:])


def a_queue_keeps_its_order_while_the_head_fails():
    sink = Sink()
    sink.replies("/order", {"status": 500}, {"status": 500}, {})
    client.queue.upsert("failing", parallelism=1)
    for n in range(6):
        client.message.enqueue(queue="failing", url=sink.url("/order"), body=str(n), retries=3, retry_delay="200")
    heard = sink.hears("/order", 8)
    assert [one.body for one in heard] == ["0", "0", "0", "1", "2", "3", "4", "5"]
    assert sink.most_in_flight == 1
    assert min(gaps(heard)[:2]) >= 0.2 - SLACK


def a_queue_is_made_paused_resumed_and_deleted():
    sink = Sink()
    client.queue.upsert("life", parallelism=2, paused=True)
    queue = client.queue.get("life")
    assert (queue.name, queue.parallelism, queue.lag, queue.paused) == ("life", 2, 0, True)
    for n in range(3):
        client.message.enqueue_json(queue="life", url=sink.url("/life"), body=n)
    later_than(1)
    assert sink.heard == [] and client.queue.get("life").lag == 3
    client.queue.resume("life")
    sink.hears("/life", 3)
    until("nothing to be left", lambda: client.queue.get("life").lag == 0)
    client.queue.pause("life")
    assert client.queue.get("life").paused
    assert any(found.name == "life" for found in client.queue.list())
    client.queue.delete("life")
    refused(404, lambda: client.queue.get("life"))


def cancelled_between_two_attempts():
    sink = Sink()
    sink.replies("/cancel", {"status": 500})
    answer = client.message.publish(url=sink.url("/cancel"), retries=5, retry_delay="2000")
    ended(answer.message_id, "ERROR")
    client.message.cancel(answer.message_id)
    ended(answer.message_id, "CANCELED")
    later_than(3)
    assert len(sink.heard) == 1


def a_slow_answer_is_none():
    sink = Sink()
    held = threading.Event()
    sink.replies("/slow", {"when": held}, {})
    # An attempt begins before it arrives, so the wait is counted from the beginning of all.
    began = time.time()
    answer = client.message.publish(url=sink.url("/slow"), timeout=1, retries=1, retry_delay="100")
    assert sink.hears("/slow", 2)[1].at >= began + 1.1
    ended(answer.message_id, "DELIVERED")
    held.set()


run(
    an_expression_says_how_long_to_wait,
    the_destination_says_how_long_to_wait,
    a_destination_that_says_never_again,
    callbacks_of_every_attempt_and_of_the_end,
    dead_letters_are_found_read_and_deleted,
    a_queue_keeps_its_order_while_the_head_fails,
    a_queue_is_made_paused_resumed_and_deleted,
    cancelled_between_two_attempts,
    a_slow_answer_is_none,
)
