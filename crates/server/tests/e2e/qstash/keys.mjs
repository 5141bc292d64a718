// Keys: who verifies what, before and after one rotation and two. Alone, because it changes the keys.

import { Receiver, SignatureError, Sink, api, assert, client, receiver, run } from "./kit.mjs";

async function keys(method, path) {
  const { status, json, text } = await api(method, path);
  assert.equal(status, 200, text);
  assert.match(json.current, /^sig_.{28,}$/);
  assert.match(json.next, /^sig_.{28,}$/);
  return json;
}

await run({
  async "a receiver outlives one rotation"() {
    const before = await keys("GET", "/v2/keys");
    const old = await receiver();
    const sink = await Sink.start({ verifier: null });
    let number = 0;
    const deliver = async () => {
      const path = `/k${(number += 1)}`;
      await client.publishJSON({ url: sink.url(path), body: { number } });
      const [{ headers, body }] = await sink.hears(path);
      return { signature: headers["upstash-signature"], body, url: sink.url(path) };
    };
    const fails = (verifying) => assert.rejects(verifying, SignatureError);

    const first = await deliver();
    assert.equal(await old.verify(first), true);
    await fails(old.verify({ ...first, body: `${first.body} ` }));
    await fails(old.verify({ ...first, url: `${first.url}x` }));
    await fails(new Receiver({ currentSigningKey: "sig_x", nextSigningKey: "sig_y" }).verify(first));
    const claims = JSON.parse(Buffer.from(first.signature.split(".")[1], "base64url").toString());
    assert.equal(claims.iss, "Upstash");
    assert.equal(claims.sub, first.url);
    assert.equal(claims.exp, claims.iat + 300);
    assert.equal(claims.nbf, 0);
    assert.equal(typeof claims.jti, "string");

    const once = await keys("POST", "/v2/keys/rotate");
    assert.equal(once.current, before.next);
    assert.notEqual(once.next, before.current);
    assert.deepEqual(await keys("GET", "/v2/keys"), once);
    const second = await deliver();
    assert.equal(await old.verify(second), true, "its next key is the current one now");
    assert.equal(await (await receiver()).verify(second), true);
    const only = new Receiver({ currentSigningKey: before.current, nextSigningKey: before.current });
    await fails(only.verify(second));

    await keys("POST", "/v2/keys/rotate");
    const third = await deliver();
    await fails(old.verify(third));
    assert.equal(await (await receiver()).verify(third), true);
  },
});
