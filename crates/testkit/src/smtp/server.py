"""A mail server that does as it is told: aiosmtpd with STARTTLS (or TLS) and AUTH, and a script.

Started by `smtp.rs` with its settings as JSON in the first argument. Its first line says where it listens. Then each line of its
standard input is a command and gets one line of answer; when the input ends, so does the server.

What happens to a mail is chosen by the recipient's local part, up to a `+`:

  nouser        550 at RCPT                           hangbefore    no answer to DATA
  greylist      451 at RCPT, twice, then taken        hangafter     no answer to the final dot, not taken
  shutdown      421 at RCPT, and closes               hangaccepted  no answer to the final dot, but taken
  outoforder    503 at RCPT                           dropbefore    closes instead of answering DATA
  throttled     454 sending rate, once, then taken    drop          takes the mail and closes without an answer
  quota         454 daily quota, while `quota` is on  closeafter    takes the mail, answers 250, and closes
  unverified    554 not verified                      strange       takes the mail and answers 200
  denied        554 access denied                     slow          as any other, but waits for `release`
  toolong       552
  tempfail      451 after the mail, always            anything else is taken
"""

import asyncio
import email
import email.policy
import json
import logging
import ssl
import sys
import time
from collections import Counter, deque

from aiosmtpd.smtp import SMTP, AuthResult

# It warns about its own use of what it calls deprecated, twice for every login.
logging.getLogger("mail.log").setLevel(logging.ERROR)

SETTINGS = {
    "tls": "starttls",  # starttls, tls, none
    "certificate": None,
    "key": None,
    "user": "tashika",
    "password": "secret",
    "login": "required",  # required, bad, temporary, off
    "mechanisms": ["PLAIN", "LOGIN"],
    "quota": "recipient",  # recipient: only `quota@`; all: everybody; off: nobody
    "rate": None,  # mails taken in any second, at most
    "size": 33554432,
}

AFTER_DATA = {
    "unverified": "554 Message rejected: Email address is not verified.",
    "denied": "554 Access denied: the user is not authorized to send as this address",
    "toolong": "552 Message is too long",
    "tempfail": "451 Temporary service failure",
}


class World:
    """What has happened so far."""

    def __init__(self, settings):
        self.settings = {**SETTINGS, **settings}
        self.accepted = []
        self.mails = {}
        self.answers = Counter()
        self.seen = Counter()
        self.window = deque()
        self.sending = set()
        self.connections = set()
        self.hanging = 0
        self.logins = 0
        self.accepted_connections = 0
        self.connections_max = 0
        self.sending_max = 0
        self.released = asyncio.Event()

    def stats(self):
        return {
            "accepted": len(self.accepted),
            "answers": dict(self.answers),
            "connections": len(self.connections),
            "connections_total": self.accepted_connections,
            "connections_max": self.connections_max,
            "sending": len(self.sending),
            "sending_max": self.sending_max,
            "hanging": self.hanging,
            "logins": self.logins,
            "busiest_second": self.busiest_second(),
        }

    def busiest_second(self):
        """Most mails in any window of a second: what a strict server counts."""
        busiest, window = 0, deque()
        for mail in self.accepted:
            window.append(mail["at"])
            while window[0] <= mail["at"] - 1:
                window.popleft()
            busiest = max(busiest, len(window))
        return busiest

    async def hang(self):
        self.hanging += 1
        try:
            await self.released.wait()
        finally:
            self.hanging -= 1

    def take(self, envelope):
        mail = email.message_from_bytes(envelope.original_content, policy=email.policy.default)
        message_id = mail["Message-ID"].strip("<>")
        body = {part: mail.get_body((part,)) for part in ("plain", "html")}
        self.accepted.append({"id": message_id, "to": envelope.rcpt_tos[0], "at": time.monotonic()})
        self.mails.setdefault(message_id, []).append(
            {
                "from": envelope.mail_from,
                "to": envelope.rcpt_tos[0],
                "headers": [[name, str(value)] for name, value in mail.items()],
                "text": body["plain"] and body["plain"].get_content(),
                "html": body["html"] and body["html"].get_content(),
                "defects": [str(defect) for defect in mail.defects],
                "raw": envelope.original_content.decode("ascii"),
            }
        )
        return f"250 Ok 0100-{len(self.accepted)}"


class Handler:
    def __init__(self, world):
        self.world = world

    async def handle_MAIL(self, server, session, envelope, address, options):
        self.world.sending.add(id(server))
        self.world.sending_max = max(self.world.sending_max, len(self.world.sending))
        envelope.mail_from = address
        return "250 OK"

    async def handle_RCPT(self, server, session, envelope, address, options):
        word = local_part(address)
        self.world.seen[word, address] += 1
        if word == "nouser":
            return "550 5.1.1 no such user: " + address
        if word == "greylist" and self.world.seen[word, address] <= 2:
            return "451 4.7.1 come again later"
        if word == "outoforder":
            return "503 Service Temporarily Unavailable"
        if word == "shutdown":
            server.closes = True
            return "421 4.3.2 Service shutting down"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        world = self.world
        address = envelope.rcpt_tos[0]
        word = local_part(address)
        world.seen[word, address, "data"] += 1
        quota = world.settings["quota"]
        if quota == "all" or (quota == "recipient" and word == "quota"):
            return "454 Throttling failure: Daily message quota exceeded."
        if word == "throttled" and world.seen[word, address, "data"] == 1:
            return "454 Throttling failure: Maximum sending rate exceeded."
        if word in AFTER_DATA:
            return AFTER_DATA[word]
        if word == "hangafter":
            await world.hang()
            return "451 Timeout waiting for data from client"
        if word == "slow":
            await world.hang()
        if not within_rate(world):
            return "454 Throttling failure: Maximum sending rate exceeded."
        answer = world.take(envelope)
        if word == "hangaccepted":
            await world.hang()
        if word == "drop":
            server.transport.abort()
        if word == "closeafter":
            server.closes = True
        return "200 strange" if word == "strange" else answer


class Server(SMTP):
    """Counts what it says, and does what handlers cannot."""

    def __init__(self, world, **options):
        self.world = world
        self.closes = False
        super().__init__(Handler(world), hostname="localhost", **options)

    def connection_made(self, transport):
        if self not in self.world.connections:
            self.world.connections.add(self)
            self.world.accepted_connections += 1
            self.world.connections_max = max(self.world.connections_max, len(self.world.connections))
        super().connection_made(transport)

    def connection_lost(self, error):
        self.world.connections.discard(self)
        self.world.sending.discard(id(self))
        super().connection_lost(error)

    async def push(self, status):
        self.world.answers[str(status)[:3]] += 1
        await super().push(status)
        if self.closes:
            self.transport.close()

    async def smtp_DATA(self, arg):
        word = local_part(self.envelope.rcpt_tos[0]) if self.envelope.rcpt_tos else ""
        if word == "hangbefore":
            await self.world.hang()
        if word == "dropbefore":
            self.transport.abort()
            return
        await super().smtp_DATA(arg)
        self.world.sending.discard(id(self))

    # aiosmtpd finds the syntax of a command at its method.
    smtp_DATA.__smtp_syntax__ = SMTP.smtp_DATA.__smtp_syntax__


def local_part(address):
    return address.split("@")[0].split("+")[0]


def within_rate(world):
    rate, now = world.settings["rate"], time.monotonic()
    while world.window and world.window[0] <= now - 1:
        world.window.popleft()
    if rate is not None and len(world.window) >= rate:
        return False
    world.window.append(now)
    return True


def authenticator(world):
    def check(server, session, envelope, mechanism, data):
        world.logins += 1
        if world.settings["login"] == "temporary":
            message = "454 4.7.0 Temporary authentication failure"
            return AuthResult(success=False, handled=False, message=message)
        expected = (world.settings["user"].encode(), world.settings["password"].encode())
        good = world.settings["login"] != "bad" and (data.login, data.password) == expected
        return AuthResult(success=good, handled=False)

    return check


def answer(world, command):
    if "set" in command:
        world.settings.update(command["set"])
        return world.settings
    if "release" in command:
        world.released.set()
        return True
    if "close_idle" in command:
        # Closing would wait for the client's last word, which an idle client does not say.
        for server in list(world.connections):
            server.transport.abort()
        return True
    what = command["get"]
    if what == "stats":
        return world.stats()
    if what == "accepted":
        return world.accepted
    if what == "mail":
        return world.mails.get(command["id"], [])
    raise KeyError(what)


async def main():
    settings = json.loads(sys.argv[1])
    world = World(settings)
    settings = world.settings
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(settings["certificate"], settings["key"])
    starttls = settings["tls"] == "starttls"
    loop = asyncio.get_running_loop()
    excluded = {"PLAIN", "LOGIN"} - set(settings["mechanisms"])

    def server():
        return Server(
            world,
            tls_context=context if starttls else None,
            require_starttls=starttls,
            auth_required=settings["login"] != "off",
            auth_require_tls=starttls,
            auth_exclude_mechanism=excluded,
            authenticator=authenticator(world),
            data_size_limit=settings["size"],
            loop=loop,
        )

    listening = await loop.create_server(
        server, "127.0.0.1", 0, ssl=context if settings["tls"] == "tls" else None
    )
    print(json.dumps({"port": listening.sockets[0].getsockname()[1]}), flush=True)

    commands = asyncio.StreamReader(limit=2**24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while line := await commands.readline():
        print(json.dumps(answer(world, json.loads(line))), flush=True)


asyncio.run(main())
