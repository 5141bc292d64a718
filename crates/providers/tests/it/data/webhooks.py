# Signs and checks webhooks with the official packages: a JSON request comes in, a JSON answer goes out.
import json
import sys
import time
from datetime import datetime, timezone

import stripe
from standardwebhooks import Webhook


def sign_stripe(ask):
    return stripe.WebhookSignature.generate_signature_header(ask["body"], ask["secret"], ask["at"])


def sign_standard(ask):
    at = datetime.fromtimestamp(ask["at"], tz=timezone.utc)
    return Webhook(ask["secret"]).sign(ask["id"], at, ask["body"])


def verify_stripe(ask):
    header = ask["headers"].get("stripe-signature")
    stripe.WebhookSignature.verify_header(ask["body"], header, ask["secret"], 300)


def verify_standard(ask):
    Webhook(ask["secret"]).verify(ask["body"], ask["headers"], json_parse=False)


def taken(verify, ask):
    try:
        verify(ask)
    except Exception:
        return False
    return True


asked = json.load(sys.stdin)
answer = {
    "now": lambda: int(time.time()),
    "sign_stripe": lambda: [sign_stripe(ask) for ask in asked["list"]],
    "sign_standard": lambda: [sign_standard(ask) for ask in asked["list"]],
    "verify_stripe": lambda: [taken(verify_stripe, ask) for ask in asked["list"]],
    "verify_standard": lambda: [taken(verify_standard, ask) for ask in asked["list"]],
}[asked["do"]]()
json.dump(answer, sys.stdout)
