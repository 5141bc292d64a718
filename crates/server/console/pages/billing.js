import { get } from '../api.js';
import { h, put } from '../dom.js';
import { named, t } from '../i18n.js';
import { list } from '../list.js';
import { badge, empty, facts, header, id, link, loading, panel, when } from '../ui.js';

export default async function billing(view) {
  const [which] = view.params;
  if (which) return detail(view, which);
  const { node } = list(view, {
    path: '/billings',
    caption: t('nav.billing'),
    parts: ['webhooks', 'audit'],
    filters: [{ name: 'officeId', label: t('label.office'), placeholder: 'office-1' }],
    columns: [
      { label: t('label.office'), cell: (one) => one.officeId },
      { label: t('label.status'), cell: (one) => badge(one.status, 'billing') },
      { label: t('label.customer'), cell: (one) => h('code', null, one.stripeCustomerId ?? '—') },
      { label: t('label.trialEnd'), class: 'time', cell: (one) => when(one.trialEndDate) },
      { label: t('label.lastPayment'), class: 'time', cell: (one) => when(one.lastPaymentAt) },
      { label: t('label.updated'), class: 'time', cell: (one) => when(one.updatedAt) },
    ],
    href: (one) => `/console/billing/${one.id}`,
    none: () => empty(t('billing.none'), t('billing.noneText'), `curl -i BASE/billings -H 'Content-Type: application/json' \\\n  -d '{"officeId":"office-1","stripeCustomerId":"cus_123"}'`),
  });
  put(view.root, header(t('nav.billing'), { lead: t('billing.lead') }), node);
}

async function detail(view, which) {
  put(view.root, loading());
  async function load() {
    const one = await get(`/billings/${encodeURIComponent(which)}`, { signal: view.signal });
    view.title(one.officeId);
    put(view.root,
      header(`${t('label.office')} ${one.officeId}`, { back: { href: '/console/billing', label: t('nav.billing') }, badges: [badge(one.status, 'billing')] }),
      panel(t('label.facts'), facts([[t('label.status'), named('billing', one.status)], [t('label.customer'), one.stripeCustomerId && id(one.stripeCustomerId)], [t('label.subscription'), one.stripeSubscriptionId && id(one.stripeSubscriptionId)], [t('label.trialEnd'), one.trialEndDate && when(one.trialEndDate)], [t('label.lastPayment'), one.lastPaymentAt && when(one.lastPaymentAt)], [t('label.created'), when(one.createdAt)], [t('label.updated'), when(one.updatedAt)], [t('label.id'), id(one.id)]]),
        h('p', null, link(`/console/audit?targetType=billing&targetId=${one.id}`, t('billing.history')))));
  }
  view.onChange(['webhooks', 'audit'], load);
  await load();
}
