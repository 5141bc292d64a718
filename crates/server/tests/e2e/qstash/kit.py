"""What the Python programs stand on: the published SDK, a destination that keeps what it hears and checks
every signature with the SDK's own Receiver, and a runner for cases.

    QSTASH_URL=… QSTASH_TOKEN=… target/qstash-packages/venv/bin/python publish.py [part of a case's name]

The cases of a program run at the same time, each on a thread and with destinations of its own. Nothing here
sleeps to let something happen: it looks again and again, and gives up after a long while.
"""

import os
import re
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import qstash
from qstash import QStash, Receiver
from qstash.errors import QStashError

URL = os.environ["QSTASH_URL"]
TOKEN = os.environ["QSTASH_TOKEN"]
# Far longer than anything takes on a busy machine.
PATIENCE = 60
LOOK_EVERY = 0.02
NEVER = {"status": 489, "headers": {"Upstash-NonRetryable-Error": "true"}, "body": b"no"}

client = QStash(TOKEN, base_url=URL)


def until(what, look, patience=PATIENCE):
    """Looks until there is something to see, and returns it."""
    end = time.monotonic() + patience
    while True:
        seen = look()
        if seen:
            return seen
        assert time.monotonic() < end, f"waited in vain: {what}"
        time.sleep(LOOK_EVERY)


def receiver():
    keys = client.signing_key.get()
    return Receiver(keys.current, keys.next)


def refused(status, call):
    """What a call raises, which must be an answer of the server with this status; returns its text."""
    try:
        answer = call()
    except QStashError as error:
        text = str(error)
        assert text.startswith(f"Request failed with status: {status}, body: {{"), text
        return re.search(r'"error":\s*"(.*?)(?<!\\)"', text).group(1)
    raise AssertionError(f"was taken: {answer}")


class Heard:
    """One request as it arrived."""

    def __init__(self, handler, body):
        self.at = time.time()
        self.method = handler.command
        # As it was sent: the server library merges slashes in its own `path`.
        self.target = handler.requestline.split(" ")[1]
        self.path = self.target.split("?")[0]
        self.headers = handler.headers
        self.bytes = body
        self.failure = None

    @property
    def body(self):
        return self.bytes.decode()

    @property
    def id(self):
        return self.headers["Upstash-Message-Id"]


class Sink:
    """A destination on a free port.

    A reply is a dict of `status`, `headers`, `body` and `when`, a threading.Event that it waits for.
    Replies of a path are given in order, the last one for good; without any it is 200.
    """

    def __init__(self, verifier="current"):
        self.heard = []
        self.most_in_flight = 0
        self._in_flight = 0
        self._replies = {}
        self._lock = threading.Lock()
        self._verifier = receiver() if verifier == "current" else verifier
        self._server = Listener(("127.0.0.1", 0), self._handler())
        self.origin = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def url(self, path):
        return self.origin + path

    def replies(self, path, *replies):
        with self._lock:
            self._replies[path] = list(replies)

    def at(self, path):
        """Everything heard at a path, whatever the query."""
        with self._lock:
            return [heard for heard in self.heard if heard.path == path]

    def hears(self, path, count=1, patience=PATIENCE):
        """Waits for a number of requests at a path; all of them must be signed."""
        enough = lambda: len(self.at(path)) >= count and self.at(path)
        found = until(f"{count} at {path}", enough, patience)
        for heard in found:
            if heard.failure is not None:
                raise heard.failure
        return found

    def _take(self, heard):
        """Notes a request; returns the reply."""
        if self._verifier is not None:
            try:
                self._verifier.verify(
                    signature=heard.headers["Upstash-Signature"],
                    body=heard.body,
                    url=self.origin + heard.target,
                )
            except Exception as failure:
                heard.failure = failure
        with self._lock:
            self.heard.append(heard)
            self._in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self._in_flight)
            replies = self._replies.get(heard.path, [{}])
            return replies.pop(0) if len(replies) > 1 else replies[0]

    def _answered(self):
        with self._lock:
            self._in_flight -= 1

    def _handler(self):
        sink = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def take(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                reply = sink._take(Heard(self, body))
                if "when" in reply:
                    reply["when"].wait(PATIENCE)
                sink._answered()
                answer = reply.get("body", b"")
                self.send_response(reply.get("status", 200))
                for name, value in reply.get("headers", {}).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = take

            def log_message(self, *_):
                pass

        return Handler


class Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request, client_address):
        # A caller that has hung up; what counts is what was heard.
        pass


def logs(message_id):
    """The lines of the log about one message, oldest first."""
    return client.log.list(filter={"message_id": message_id}).logs[::-1]


def ended(message_id, state):
    """Waits until the log of a message has a state, and returns it."""

    def look():
        lines = logs(message_id)
        return any(line.state.value == state for line in lines) and lines

    return until(f"{message_id} {state}", look)


def buried(message_id):
    """Waits for the dead letter of a message."""

    def look():
        found = client.dlq.list(filter={"message_id": message_id}).messages
        return found and found[0]

    return until(f"the dead letter of {message_id}", look)


def later_than(seconds):
    """Publishes something that is due after a while, and waits for it: by then the rest has not happened."""
    sink = Sink()
    client.message.publish(url=sink.url("/later"), delay=seconds)
    sink.hears("/later")


def run(*cases, one_by_one=False):
    # The SDK prints what it was answered about the log, every time.
    qstash.log.print = lambda *_: None
    part = sys.argv[1] if len(sys.argv) > 1 else ""
    wanted = [case for case in cases if part in case.__name__]

    def attempt(case):
        began = time.monotonic()
        try:
            case()
            verdict, details = "ok     ", ""
        except Exception:
            verdict, details = "FAILED ", "\n" + traceback.format_exc()
        took = (time.monotonic() - began) * 1000
        print(f"{verdict} {case.__name__} ({took:.0f} ms){details}", flush=True)
        return not details

    with ThreadPoolExecutor(1 if one_by_one else max(1, len(wanted))) as threads:
        passed = list(threads.map(attempt, wanted))
    print(f"{sum(passed)} passed, {len(passed) - sum(passed)} failed", flush=True)
    # Threads of destinations may still wait for something.
    os._exit(0 if passed and all(passed) else 1)
