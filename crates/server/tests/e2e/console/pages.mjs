// Every page, in both languages, light and dark, on a desk and on a phone: without a barrier, without a complaint.

import { createHmac } from 'node:crypto';
import { api, base, barriers, browser, check, go, open, press, same, screenshot, settled, text, there, until } from './support.mjs';

// A bit of everything.
const pay = (key, method, amount = 5000) => api('/payments', { method: 'POST', headers: { 'Idempotency-Key': key }, body: { bookingId: `b-${key}`, userId: 'u-1', amount, currency: 'JPY', paymentMethod: method } });
const lost = await pay('pages-lost', 'pm_card_visa');
const paid = await pay('pages-paid', 'pm_card_visa', 12_000);
await api(`/payments/${paid.id}/capture`, { method: 'POST', headers: { 'Idempotency-Key': 'pages-capture' }, body: {} });
await api(`/payments/${paid.id}/refund`, { method: 'POST', headers: { 'Idempotency-Key': 'pages-refund' }, body: { amount: 2000, reason: 'one of two' } });
await pay('pages-declined', 'pm_card_chargeDeclined').catch(() => {});
const order = await api('/do/order', { method: 'POST', headers: { 'Idempotency-Key': 'pages-order-0001' }, body: { instrument: 'USDJPY', side: 'BUY', qty: 1, idempotency_key: 'pages-order-0001' } });
check(order, 'an order');
const { messageId } = await api('/v2/publish/http://127.0.0.1:9/nobody', { method: 'POST', headers: { 'Upstash-Retries': '0' }, body: { job: 1 } });
await api('/v2/queues', { method: 'POST', body: { queueName: 'nightly', parallelism: 2, paused: true } });
await api('/v2/enqueue/nightly/http://127.0.0.1:9/nobody', { method: 'POST', body: {} });
await api('/v2/schedules/http://127.0.0.1:9/nobody', { method: 'POST', headers: { 'Upstash-Cron': '0 3 * * *', 'Upstash-Schedule-Id': 'every-night' }, body: {} });
await api('/billings', { method: 'POST', body: { officeId: 'office-1', stripeCustomerId: 'cus_1' } });
const event = JSON.stringify({ id: 'evt_pages_1', object: 'event', type: 'invoice.payment_succeeded', created: Math.floor(Date.now() / 1000), data: { object: { id: 'in_1', object: 'invoice', customer: 'cus_1' } } });
const at = Math.floor(Date.now() / 1000);
const signature = createHmac('sha256', process.env.STRIPE_WEBHOOK_SECRET).update(`${at}.${event}`).digest('hex');
const hook = await fetch(`${base}/webhooks/stripe`, { method: 'POST', headers: { 'Stripe-Signature': `t=${at},v1=${signature}`, 'Content-Type': 'application/json' }, body: event });
same(hook.status, 204, 'a webhook');

const letter = await there('/v2/dlq', (answer) => answer.messages[0]);
const openCase = await there('/cases?status=open', (answer) => answer.items[0]);
const alert = await there('/alerts', (answer) => answer.items[0]);
const effect = await there('/outbox?key=pages-order-0001', (answer) => answer.items[0]);
const webhook = await there('/webhook-events', (answer) => answer.items[0]);
const billing = await there('/billings', (answer) => answer.items[0]);

const PAGES = [
  ['overview', '/console'],
  ['cases', '/console/cases'],
  ['case', `/console/cases/${openCase.id}`],
  ['alerts', '/console/alerts'],
  ['alert', `/console/alerts/${alert.id}`],
  ['payments', '/console/payments'],
  ['payment', `/console/payments/${paid.id}`],
  ['payment-lost', `/console/payments/${lost.id}`],
  ['payments-none', '/console/payments?userId=nobody'],
  ['reservations', '/console/reservations'],
  ['reservations-all', '/console/reservations/all'],
  ['renders', '/console/renders'],
  ['webhooks', '/console/webhooks'],
  ['webhook', `/console/webhooks/${webhook.id}`],
  ['queue', '/console/queue'],
  ['message', `/console/queue/messages/${messageId}`],
  ['dead-letters', '/console/queue/dead-letters'],
  ['dead-letter', `/console/queue/dead-letters/${letter.dlqId}`],
  ['queues', '/console/queue/queues'],
  ['schedules', '/console/queue/schedules'],
  ['flow-control', '/console/queue/flow-control'],
  ['orders', '/console/orders'],
  ['order', '/console/orders/pages-order-0001'],
  ['effect', `/console/orders/${effect.id}`],
  ['no-order', '/console/orders/nobody-has-this-key'],
  ['mail', '/console/mail'],
  ['mail-deliveries', '/console/mail/deliveries'],
  ['mail-inbox', '/console/mail/inbox'],
  ['billing', '/console/billing'],
  ['office', `/console/billing/${billing.id}`],
  ['audit', '/console/audit'],
  ['settings', '/console/settings'],
  ['search', '/console/search?q=u-1'],
  ['nowhere', '/console/nowhere'],
];

/** Pages whose pictures are worth keeping in every look. */
const KEPT = new Set(['overview', 'case', 'payment', 'payment-lost', 'queue', 'dead-letters', 'orders', 'audit', 'settings', 'mail', 'payments']);

await browser(async (chromium) => {
  const looks = [
    { look: 'light-en', theme: 'light', language: 'en' },
    { look: 'dark-ja', theme: 'dark', language: 'ja' },
    { look: 'phone', theme: 'light', language: 'ja', width: 390, height: 844, phone: true },
  ];
  for (const { look, ...how } of looks) {
    const { page, wrong, context } = await open(chromium, how);
    let first = true;
    for (const [name, path] of PAGES) {
      if (first) await go(page, path);
      else {
        // As a reader does it: without loading everything again.
        await page.evaluate((href) => { history.pushState(null, '', href); dispatchEvent(new PopStateEvent('popstate')); }, path);
        await settled(page);
      }
      first = false;
      // Colours and words are the same on a phone; there, the pages with pictures and lists are enough.
      if (!how.phone || KEPT.has(name)) same(await barriers(page), [], `${look} ${name}: barriers`);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      check(wide <= 0, `${look} ${name}: the page is ${wide} pixels wider than the window`);
      const failed = await page.$eval('.failure', (node) => node.textContent).catch(() => null);
      same(failed, null, `${look} ${name}: what went wrong`);
      const bare = await page.evaluate(() => document.body.innerText.match(/\b(undefined|NaN|\[object Object\])\b/)?.[0]);
      check(!bare, `${look} ${name}: ${bare}`);
      if (how.language === 'en' || KEPT.has(name)) await screenshot(page, `${look}-${name}`);
    }
    same(wrong, [], `${look}: what the browser complains about`);
    await context.close();
  }

  // Keys, theme and language.
  const { page, wrong } = await open(chromium);
  await go(page, '/console');
  await page.keyboard.press('?');
  await page.waitForSelector('dialog.help');
  same(await barriers(page), [], 'help: barriers');
  await screenshot(page, 'help');
  await page.keyboard.press('Escape');
  await until(page, 'the end of the help', () => !document.querySelector('dialog'));
  await page.keyboard.press('g');
  await page.keyboard.press('p');
  await until(page, 'the payments', () => location.pathname === '/console/payments' && document.querySelector('.row-link'));
  await page.keyboard.press('j');
  await page.keyboard.press('j');
  const second = await page.evaluate(() => [...document.querySelectorAll('.row-link')].indexOf(document.activeElement));
  same(second, 1, 'the second row after two times j');
  await page.select('.top select', 'dark');
  same(await page.evaluate(() => document.documentElement.dataset.theme), 'dark', 'the chosen theme');
  await press(page, '日本語', '.top');
  await until(page, 'Japanese', () => document.querySelector('h1')?.textContent === '決済');
  same(await page.evaluate(() => document.documentElement.lang), 'ja', 'the language');
  await page.reload();
  await settled(page);
  same([await text(page, 'h1'), await page.evaluate(() => document.documentElement.dataset.theme)], ['決済', 'dark'], 'both are remembered');

  // Live: what happens elsewhere appears.
  await until(page, 'the live connection', () => document.querySelector('#live')?.classList.contains('up'));
  const before = await page.$$eval('.row-link', (all) => all.length);
  await pay('pages-live', 'pm_card_visa');
  await until(page, 'the new payment', (count) => document.querySelectorAll('.row-link').length > count, before);
  same(wrong, [], 'what the browser complains about');
});
