import { get, maybe, query } from '../api.js';
import { h, put } from '../dom.js';
import { money, named, t } from '../i18n.js';
import { badge, empty, header, link, loading, panel } from '../ui.js';

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** Everything that an id or a key may stand for is asked at once. */
export default async function search(view) {
  const text = view.query.get('q') ?? '';
  const field = document.querySelector('#search');
  if (field && field !== document.activeElement) field.value = text;
  put(view.root, header(t('search.title', { text })), loading());
  const at = encodeURIComponent(text);
  const ask = async (title, path, hits) => {
    const answer = await maybe(get(path, { signal: view.signal }));
    const found = answer ? hits(answer) : [];
    return [title, found];
  };
  const payment = (one) => [`/console/payments/${one.id}`, `${money(one.amount, one.currency)} · ${one.bookingId}`, badge(one.status)];
  const effect = (one) => [`/console/orders/${one.id}`, `${named('lane', one.lane)} · ${one.idempotencyKey ?? one.id}`, badge(one.status, 'effect')];
  const questions = UUID.test(text) ? [
    ask(t('nav.payments'), `/payments/${at}`, (one) => [payment(one)]),
    ask(t('nav.orders'), `/outbox/${at}`, (one) => [effect(one)]),
    ask(t('nav.webhooks'), `/webhook-events/${at}`, (one) => [[`/console/webhooks/${one.id}`, one.eventType, badge(one.status)]]),
    ask(t('nav.billing'), `/billings/${at}`, (one) => [[`/console/billing/${one.id}`, one.officeId, badge(one.status, 'billing')]]),
    ask(t('nav.cases'), `/cases/${at}`, (one) => [[`/console/cases/${one.id}`, one.summary, badge(one.status)]]),
    ask(t('nav.reservations'), `/reservations/${at}`, (one) => [[`/console/reservations/${one.reservationId ?? one.id}`, `${one.projectionDate} · ${one.slotNumber}`, badge(one.status, 'reservation')]]),
    ask(t('reservations.renders'), `/renders/${at}`, (one) => [[`/console/renders/${one.id}`, one.id, badge(one.status, 'render')]]),
  ] : [];
  if (text.startsWith('msg_')) questions.push(ask(t('queue.messages'), query('/console/api/messages', { id: text }), (answer) => answer.items.map((one) => [`/console/queue/messages/${one.id}`, one.url, badge(one.state, 'messageState')])));
  questions.push(
    ask(t('outbox.byKey'), query('/outbox', { key: text }), (answer) => answer.items.map(effect)),
    ask(t('search.byBooking'), query('/payments', { bookingId: text, limit: 5 }), (answer) => answer.items.map(payment)),
    ask(t('search.byUser'), query('/payments', { userId: text, limit: 5 }), (answer) => answer.items.map(payment)),
    ask(t('nav.billing'), query('/billings', { officeId: text, limit: 5 }), (answer) => answer.items.map((one) => [`/console/billing/${one.id}`, one.officeId, badge(one.status, 'billing')])),
    ask(t('nav.audit'), query('/audit-logs', { action: text, limit: 5 }), (answer) => answer.items.map((one) => [`/console/audit?action=${encodeURIComponent(one.action)}`, `${one.action} · ${one.targetId}`, null])),
  );
  if (text.includes('@')) questions.push(ask(t('mail.deliveries'), query('/mail/deliveries', { to: text, limit: 5 }), (answer) => answer.items.map((one) => [`/console/mail/deliveries?to=${at}`, `${one.to} · ${one.template ?? ''}`, badge(one.status, 'mail')])));
  const groups = (await Promise.all(questions)).filter(([, hits]) => hits.length > 0);
  put(view.root, header(t('search.title', { text })),
    groups.length === 0
      ? empty(t('search.none'), t('search.noneText'))
      : groups.map(([title, hits]) => panel(title, h('ul', { class: 'brief hits' }, hits.map(([href, label, mark]) => h('li', null, h('a', { href, class: 'row-link' }, label), ' ', mark))))));
  // One hit is what was meant.
  const all = groups.flatMap(([, hits]) => hits);
  if (all.length === 1) view.navigate(all[0][0], true);
}
