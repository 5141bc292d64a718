// A day at the shop, on real data: reservations, payments and their pictures, renders, races, mail with its progress, alerts.
//
// Everything on these pages was made over the API, with the sandbox as gateway, renderer and postman.

import { api, barriers, base, browser, check, go, open, press, same, screenshot, settled, text, there, until } from './support.mjs';

const DAY = new Date(Date.now() + 86_400_000).toISOString().slice(0, 10);
const make = (path, key, body) => api(path, { method: 'POST', headers: { 'Idempotency-Key': key }, body });

// Payments: settled at once, unknown and then settled, unknown and then failed, refunded, released.
const pay = (key, method) => make('/payments', key, { bookingId: `b-${key}`, userId: 'u-shop', amount: 5000, currency: 'JPY', paymentMethod: method });
const act = (payment, verb, body = {}) => make(`/payments/${payment.id}/${verb}`, `${payment.id}-${verb}`, body);
const settledOne = await pay('shop-settled', 'sandbox_ok');
await act(settledOne, 'capture');
const found = await pay('shop-found', 'sandbox_charged_but_silent');
const lost = await pay('shop-lost', 'sandbox_lost_before_charge');
const refunded = await pay('shop-refunded', 'sandbox_ok');
await act(refunded, 'capture');
await act(refunded, 'refund');
const released = await pay('shop-released', 'sandbox_ok');
await act(released, 'void');

// Reservations: one that is held, one paid, one paid whose video fails, one paid and cancelled twice.
const reserve = async (slot, videoId = 7) => (await make('/reservations', `shop-slot-${slot}`, { videoId, projectionDate: DAY, slotNumber: slot, userId: `visitor-${slot}`, userEmail: `visitor-${slot}@example.com`, locale: slot % 2 ? 'ja' : 'en', amount: 3000, currency: 'JPY' })).reservationId;
const reservation = (id, status) => there(`/reservations/${id}`, (one) => one.status === status && one);
async function paidFor(id) {
  const { sessionId } = await api(`/reservations/${id}/checkout`, { method: 'POST', body: {} });
  await api(`/sandbox/checkout/${sessionId}/pay`, { method: 'POST', body: {} });
  return reservation(id, 'confirmed');
}
const held = await reserve(1);
const confirmed = await reserve(2);
await paidFor(confirmed);
const withoutVideo = await reserve(3, 9001);
await paidFor(withoutVideo);
const cancelled = await reserve(4);
await paidFor(cancelled);
await Promise.all([1, 2].map(() => api(`/reservations/${cancelled}/cancel`, { method: 'POST', body: {} })));
await there(`/reservations/${cancelled}`, (one) => one.payment?.refundedAmount === 3000);
const failedRender = await there('/renders?status=failed', (answer) => answer.items.find((one) => one.reservationId === withoutVideo));
const doneRender = await there('/renders?status=done', (answer) => answer.items[0]);
check((await api('/races')).items.some((race) => race.scenario === 'DUPLICATE_CANCEL'), 'a race');

// Mail: one letter, and what the alerts are about.
const letterData = { reservationId: 'r-1', refundAmount: 3000, currency: 'JPY' };
await api('/mail', { method: 'POST', body: { to: 'first@example.com', template: 'reservation-expired-refunded', locale: 'ja', data: letterData } });
const letter = await there('/mail/inbox?to=first@example.com', (answer) => answer.items[0]);
await api('/v2/publish/http://127.0.0.1:9/nobody', { method: 'POST', headers: { 'Upstash-Retries': '0' }, body: { job: 1 } });
const firing = await there('/alerts?state=firing', (answer) => answer.items.find((one) => one.rule === 'queue_dead_letters'));
await there(`/payments/${found.id}`, (one) => one.status === 'AUTHORIZED');
await there(`/payments/${lost.id}`, (one) => one.status === 'FAILED');

/** What the diagram of the payment on the page shows: where it is, where it has been, and how many arrows it took. */
const diagram = (page) => page.evaluate(() => ({
  here: [...document.querySelectorAll('.node.here text')].map((node) => node.textContent),
  visited: [...document.querySelectorAll('.node.visited text')].map((node) => node.textContent),
  arrows: document.querySelectorAll('.edge.taken').length,
  doubts: document.querySelectorAll('.doubt').length,
  lost: document.querySelectorAll('.try.lost').length,
  bars: [...document.querySelectorAll('rect.state')].map((node) => node.querySelector('title').textContent),
}));

await browser(async (chromium) => {
  const { page, wrong } = await open(chromium);

  // The pictures of payments.
  for (const [name, payment, wanted] of [
    ['settled', settledOne, { here: ['Captured'], visited: ['Pending', 'Authorized'], arrows: 2, doubts: 0, lost: 0, bars: ['Pending', 'Authorized', 'Captured'] }],
    ['found', found, { here: ['Authorized'], visited: ['Pending'], arrows: 1, doubts: 1, lost: 1, bars: ['Pending', 'Authorized'] }],
    ['failed', lost, { here: ['Failed'], visited: ['Pending'], arrows: 1, doubts: 1, lost: 1, bars: ['Pending', 'Failed'] }],
    ['refunded', refunded, { here: ['Refunded'], visited: ['Pending', 'Authorized', 'Captured'], arrows: 3, doubts: 0, lost: 0, bars: ['Pending', 'Authorized', 'Captured', 'Refunded'] }],
    ['released', released, { here: ['Refunded'], visited: ['Pending', 'Authorized'], arrows: 2, doubts: 0, lost: 0, bars: ['Pending', 'Authorized', 'Refunded'] }],
  ]) {
    await go(page, `/console/payments/${payment.id}`);
    same(await diagram(page), wanted, `the picture of the payment that was ${name}`);
    same(await barriers(page), [], `payment ${name}: barriers`);
    await screenshot(page, `shop-payment-${name}`);
  }

  // The day as a grid; from a slot to its reservation, to its payment, and back again.
  await go(page, `/console/reservations?date=${DAY}`);
  const slots = await page.$$eval('.slot', (all) => all.map((node) => [node.querySelector('b').textContent, node.className.replace('slot ', ''), node.querySelector('.slot-user')?.textContent ?? '', node.querySelector('.slot-past')?.textContent ?? '']));
  same(slots.slice(0, 5), [['1', 'hold', 'visitor-1', ''], ['2', 'confirmed', 'visitor-2', ''], ['3', 'confirmed', 'visitor-3', ''], ['4', 'free', '', '1 cancelled'], ['5', 'free', '', '']], 'the grid');
  same(await barriers(page), [], 'the grid: barriers');
  await screenshot(page, 'shop-grid');
  await page.click('.slot.confirmed a');
  await until(page, 'the reservation', (id) => location.pathname.endsWith(id) && document.querySelector('h1'), confirmed);
  await settled(page);
  check((await text(page, 'main')).includes('Captured'), 'the payment of the reservation');
  await page.evaluate(() => document.querySelector('main a[href^="/console/payments/"]').click());
  await until(page, 'its payment', () => document.querySelector('.diagram'));
  await page.goBack();
  await until(page, 'the reservation again', (id) => location.pathname.endsWith(id), confirmed);
  await page.goBack();
  await until(page, 'the grid again', (day) => location.search.includes(day) && document.querySelectorAll('.slot.confirmed').length === 2, DAY);
  await page.goForward();
  await until(page, 'forward', (id) => location.pathname.endsWith(id), confirmed);

  // An empty day says what to do.
  await go(page, '/console/reservations?date=2030-01-01');
  check((await text(page, 'main')).includes('POST /reservations'), 'what to do about an empty day');

  // A cancelled reservation says what happened; another one is cancelled here, and its slot is free without a reload.
  await go(page, `/console/reservations/${cancelled}`);
  check((await text(page, 'main')).includes('Cancelled twice, or while paying'), 'its race');
  await screenshot(page, 'shop-reservation');
  const watcher = await open(chromium);
  await go(watcher.page, `/console/reservations?date=${DAY}`);
  await watcher.page.evaluate(() => { globalThis.stayed = true; });
  await go(page, `/console/reservations/${held}`);
  await press(page, 'Cancel the reservation', 'main');
  await page.waitForSelector('dialog[open]');
  check((await text(page, '.consequence')).includes('becomes free'), 'the consequence in words');
  await press(page, 'Cancel the reservation', 'dialog');
  await until(page, 'the cancellation', () => document.querySelector('.title-row .badge')?.textContent === 'cancelled');
  await until(watcher.page, 'the free slot', () => document.querySelector('.slot.free .slot-past') && !document.querySelector('.slot.hold'));
  check(await watcher.page.evaluate(() => globalThis.stayed), 'without a reload');

  // A render that failed is tried again, and fails again: it has its case.
  await go(page, `/console/renders/${failedRender.id}`);
  check((await text(page, 'main')).includes('SANDBOX_FAILED'), 'why it failed');
  await screenshot(page, 'shop-render-failed');
  await press(page, 'Try the render again', 'main');
  await press(page, 'Try the render again', 'dialog');
  await until(page, 'the next attempt', () => document.querySelector('main').textContent.match(/2 \/ 2|1 \/ 2/));
  await go(page, `/console/renders/${doneRender.id}`);
  check((await text(page, 'main')).includes('sandbox://renders/'), 'where the video is');

  // A batch is followed live: the bar moves and ends, and nobody has loaded the page again.
  const recipients = Array.from({ length: 40 }, (_, n) => ({ to: `${n % 10 === 9 ? 'refused' : 'staff'}+${n}@example.com`, data: letterData }));
  const batch = await make('/mail/batches', 'shop-batch', { template: 'reservation-expired-refunded', locale: 'en', recipients });
  await go(page, `/console/mail/batches/${batch.id}`);
  await page.evaluate(() => {
    globalThis.seen = [];
    const look = () => globalThis.seen.push(Number(document.querySelector('.bar')?.getAttribute('aria-valuenow')));
    look();
    new MutationObserver(look).observe(document.querySelector('main'), { childList: true, subtree: true });
  });
  await until(page, 'the bar to move', () => globalThis.seen.some((value) => value > globalThis.seen[0] && value < 40));
  await screenshot(page, 'shop-batch-running');
  await until(page, 'the end of the batch', () => document.querySelector('.title-row .badge')?.textContent === 'finished' && document.querySelector('.bar')?.getAttribute('aria-valuenow') === '40');
  const steps = await page.evaluate(() => [...new Set(globalThis.seen)]);
  check(steps.length >= 3 && steps.every((value, at) => at === 0 || value > steps[at - 1]), `the bar only grew: ${steps}`);
  same((await api(`/mail/batches/${batch.id}`)).failed, 4, 'failures');
  await until(page, 'the failures', () => document.querySelectorAll('table.plain tbody tr').length === 4);
  same(await barriers(page), [], 'the batch: barriers');
  await screenshot(page, 'shop-batch-finished');

  // The inbox: a letter by its address, although many came after it; by keyboard another one.
  await go(page, `/console/mail/inbox/${letter.id}`);
  await until(page, 'the letter', () => document.querySelector('.inbox .json')?.textContent.includes('3,000'));
  await page.keyboard.press('j');
  await page.keyboard.press('Enter');
  await until(page, 'another letter', (id) => !location.pathname.endsWith(id) && document.querySelector('.inbox .json'), letter.id);
  await screenshot(page, 'shop-inbox');

  // The alert is acknowledged; the sentence says what to do.
  await go(page, `/console/alerts/${firing.id}`);
  check((await text(page, 'main')).includes('Look at the dead letters'), 'the advice');
  await press(page, 'Acknowledge', 'main');
  await press(page, 'Acknowledge', 'dialog');
  await there(`/alerts/${firing.id}`, (one) => one.acknowledgedAt);

  // A sender that the server refuses: the lane stops, and says so.
  await api('/mail', { method: 'POST', body: { to: 'badlogin@example.com', template: 'reservation-expired-refunded', locale: 'en', data: letterData } });
  await go(page, '/console/mail');
  await until(page, 'the lane that has stopped', () => [...document.querySelectorAll('.lane button')].some((one) => one.textContent === 'Resume sending'));
  await screenshot(page, 'shop-mail-stopped');
  same(wrong, [], 'what the browser complains about');
  same(watcher.wrong, [], 'what the other browser complains about');
  await watcher.context.close();

  // Every page with what is there now, in every look.
  const pages = [
    ['overview', '/console'], ['grid', `/console/reservations?date=${DAY}`], ['reservations', '/console/reservations/all'], ['reservation', `/console/reservations/${cancelled}`],
    ['renders', '/console/renders'], ['render', `/console/renders/${failedRender.id}`], ['mail', '/console/mail'], ['batch', `/console/mail/batches/${batch.id}`],
    ['deliveries', '/console/mail/deliveries'], ['inbox', `/console/mail/inbox/${letter.id}`], ['alerts', '/console/alerts'], ['alert', `/console/alerts/${firing.id}`],
    ['cases', '/console/cases'], ['payments', '/console/payments'], ['payment', `/console/payments/${refunded.id}`], ['settings', '/console/settings'],
  ];
  for (const { look, ...how } of [{ look: 'dark-ja', theme: 'dark', language: 'ja' }, { look: 'phone-ja', language: 'ja', width: 390, height: 844, phone: true }, { look: 'light-en' }]) {
    const other = await open(chromium, how);
    for (const [name, path] of pages) {
      // A deep link, each time.
      await go(other.page, path);
      same(await barriers(other.page), [], `${look} ${name}: barriers`);
      const wide = await other.page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      check(wide <= 0, `${look} ${name}: the page is ${wide} pixels wider than the window`);
      const bare = await other.page.evaluate(() => document.body.innerText.match(/\b(undefined|NaN|\[object Object\])\b/)?.[0]);
      check(!bare, `${look} ${name}: ${bare}`);
      if (how.language === 'ja') {
        const english = await other.page.evaluate(() => [...document.querySelectorAll('h1, h2, th, dt, label, button, .tabs a, .badge')].map((node) => node.textContent.trim()).filter((word) => /^[A-Za-z][a-z]+( [a-z]+)*$/.test(word) && !['English', 'Webhook'].includes(word)));
        same(english, [], `${look} ${name}: words that nobody has translated`);
      }
      await screenshot(other.page, `shop-${look}-${name}`);
    }
    same(other.wrong, [], `${look}: what the browser complains about`);
    await other.context.close();
  }
  check(base, 'the end');
});
