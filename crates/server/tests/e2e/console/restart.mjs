// The server goes away and comes back: pages say so, and go on by themselves.

import { spawn } from 'node:child_process';
import { createServer } from 'node:net';
import { check, same } from './support.mjs';

// A port of our own, so that the second process is found where the first was.
const port = await new Promise((resolve) => {
  const probe = createServer();
  probe.listen(0, '127.0.0.1', () => { const { port: free } = probe.address(); probe.close(() => resolve(free)); });
});
const address = `http://127.0.0.1:${port}`;

async function start() {
  const child = spawn(process.env.TASHIKA_BINARY, ['serve'], { env: { TASHIKA_LISTEN: `127.0.0.1:${port}`, TASHIKA_DATABASE_URL: process.env.TASHIKA_DATABASE_URL, TASHIKA_LOG: 'warn', TASHIKA_SHUTDOWN_SEC: '5' }, stdio: ['ignore', 'ignore', 'inherit'] });
  for (;;) {
    if (child.exitCode !== null) throw new Error(`the server ended: ${child.exitCode}`);
    if (await fetch(`${address}/healthz`).then((answer) => answer.ok, () => false)) return child;
    await new Promise((resolve) => { setTimeout(resolve, 50); });
  }
}
const stop = (child) => new Promise((resolve) => { child.once('exit', resolve); child.kill('SIGTERM'); });
const pay = (key) => fetch(`${address}/payments`, { method: 'POST', headers: { 'Content-Type': 'application/json', 'Idempotency-Key': key }, body: JSON.stringify({ bookingId: `b-${key}`, userId: 'u-1', amount: 5000, currency: 'JPY', paymentMethod: 'sandbox_ok' }) });

process.env.TASHIKA_URL = address;
const support = await import('./support.mjs?of-our-own');
let server = await start();
try {
  await support.browser(async (chromium) => {
    const { page, wrong } = await support.open(chromium);
    await pay('before-the-restart');
    await support.go(page, '/console/payments');
    await page.evaluate(() => { globalThis.stayed = true; });
    await support.until(page, 'the live connection', () => document.querySelector('#live.up'));
    await support.until(page, 'the payment', () => document.querySelectorAll('.row-link').length === 1);

    await stop(server);
    await support.until(page, 'that the page has noticed', () => !document.querySelector('#live.up'));
    await support.screenshot(page, 'restart-away');
    server = await start();
    // Made while nobody listened: the page asks again when it is told that the connection stands.
    await pay('after-the-restart');
    await support.until(page, 'the live connection again', () => document.querySelector('#live.up'));
    await support.until(page, 'the second payment', () => document.querySelectorAll('.row-link').length === 2);
    check(await page.evaluate(() => globalThis.stayed), 'the page was not loaded again');
    same(wrong.filter((one) => !one.includes('EventSource')), [], 'what the browser complains about');
  });
} finally {
  await stop(server);
}
