import { get, post, query } from '../api.js';
import { h, put } from '../dom.js';
import { named, number, t } from '../i18n.js';
import { list } from '../list.js';
import { badge, button, confirm, describe, empty, facts, header, id, json, link, loading, panel, toast, when } from '../ui.js';

export default async function webhooks(view) {
  const [which] = view.params;
  if (which) return detail(view, which);
  const all = button(t('webhooks.replayAll'), async () => {
    const answer = await confirm({ title: t('webhooks.replayAll'), consequence: t('webhooks.replayAllText'), label: t('webhooks.replayAll') });
    if (!answer) return;
    const { type, source } = found.values();
    try {
      const { replayed } = await post(query('/webhook-events/replay', { type, source }));
      toast(t('webhooks.replayed', { count: number(replayed) }));
      await found.reload();
    } catch (error) {
      toast(describe(error), 'bad');
    }
  }, { disabled: !view.mayAct });
  const found = list(view, {
    path: '/webhook-events',
    caption: t('nav.webhooks'),
    parts: ['webhooks'],
    filters: [
      { name: 'status', label: t('label.status'), choices: [['', t('label.all')], ...['pending', 'success', 'failed', 'skipped'].map((status) => [status, named('status', status)])] },
      { name: 'type', label: t('label.type'), placeholder: 'invoice.paid' },
      { name: 'source', label: t('label.source'), placeholder: 'stripe' },
    ],
    columns: [
      { label: t('label.event'), cell: (one) => h('code', null, one.eventId) },
      { label: t('label.type'), cell: (one) => one.eventType },
      { label: t('label.source'), cell: (one) => one.source },
      { label: t('label.status'), cell: (one) => badge(one.status) },
      { label: t('label.error'), class: 'grow', cell: (one) => one.errorMessage ?? '—' },
      { label: t('label.received'), class: 'time', cell: (one) => when(one.createdAt) },
    ],
    href: (one) => `/console/webhooks/${one.id}`,
    none: () => empty(t('webhooks.none'), t('webhooks.noneText'), 'STRIPE_WEBHOOK_SECRET=whsec_… tashika serve\nstripe listen --forward-to BASE/webhooks/stripe'),
  });
  put(view.root, header(t('nav.webhooks'), { lead: t('webhooks.lead'), actions: [all] }), found.node);
}

async function detail(view, which) {
  put(view.root, loading());
  async function load() {
    const one = await get(`/webhook-events/${encodeURIComponent(which)}`, { signal: view.signal });
    view.title(one.eventType);
    const replay = one.status === 'failed' && button(t('webhooks.replay'), async () => {
      const answer = await confirm({ title: t('webhooks.replay'), consequence: t('webhooks.replayText'), label: t('webhooks.replay') });
      if (!answer) return;
      try {
        await post(`/webhook-events/${one.id}/replay`);
        toast(t('message.done'));
      } catch (error) {
        toast(describe(error), 'bad');
      }
      await load();
    }, { tone: 'primary', disabled: !view.mayAct });
    put(view.root,
      header(one.eventType, { back: { href: '/console/webhooks', label: t('nav.webhooks') }, badges: [badge(one.status)], actions: replay ? [replay] : [] }),
      panel(t('label.facts'), facts([[t('label.event'), id(one.eventId)], [t('label.source'), one.source], [t('label.error'), one.errorMessage], [t('label.occurred'), one.occurredAt && when(one.occurredAt)], [t('label.received'), when(one.createdAt)], [t('label.processed'), one.processedAt && when(one.processedAt)], [t('label.office'), one.officeId], [t('nav.billing'), one.billingId && link(`/console/billing/${one.billingId}`, one.billingId)], [t('label.confirmBy'), one.confirmBy], [t('label.id'), id(one.id)]])),
      panel(t('label.payload'), json(one.payload)),
      one.confirmed && panel(t('label.confirmed'), json(one.confirmed)));
  }
  view.onChange(['webhooks', 'outbox'], load);
  await load();
}
