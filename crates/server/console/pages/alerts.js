import { ApiError, get, maybe, post } from '../api.js';
import { h, put } from '../dom.js';
import { language, named, number, t } from '../i18n.js';
import { list } from '../list.js';
import { badge, button, confirm, describe, empty, facts, header, id, json, loading, panel, toast, when } from '../ui.js';

let known = null;

/** What the rules say, in the reader's language: alerts themselves are written down in English. */
export async function ruleTexts() {
  if (known?.language === language()) return known.texts;
  const found = await maybe(get('/alerts/rules'));
  known = { language: language(), texts: new Map((found?.items ?? []).map((rule) => [rule.name, rule])) };
  return known.texts;
}

export const sayAlert = (one, texts) => (language() === 'en' ? one.message : texts.get(one.rule)?.message ?? one.message);

export default async function alerts(view) {
  const [which] = view.params;
  if (which) return detail(view, which);
  const texts = await ruleTexts();
  const { node } = list(view, {
    path: '/alerts',
    caption: t('nav.alerts'),
    parts: ['alerts'],
    filters: [{ name: 'state', label: t('label.state'), choices: [['', t('label.all')], ['firing', named('status', 'firing')], ['resolved', named('status', 'resolved')]] }],
    columns: [
      { label: t('label.rule'), cell: (one) => h('code', null, one.rule) },
      { label: t('label.severity'), cell: (one) => badge(one.severity, 'severity') },
      { label: t('label.state'), cell: (one) => badge(one.state) },
      { label: t('label.count'), class: 'number', cell: (one) => number(one.count) },
      { label: t('label.message'), class: 'grow', cell: (one) => sayAlert(one, texts) },
      { label: t('label.fired'), class: 'time', cell: (one) => when(one.firedAt) },
      { label: t('label.resolved'), class: 'time', cell: (one) => when(one.resolvedAt) },
    ],
    href: (one) => `/console/alerts/${one.id}`,
    none: () => empty(t('alerts.none'), t('alerts.noneText')),
  });
  put(view.root, header(t('nav.alerts'), { lead: t('alerts.lead') }), node);
}

async function find(which, signal) {
  const direct = await maybe(get(`/alerts/${encodeURIComponent(which)}`, { signal }));
  if (direct) return direct;
  let cursor = '';
  for (let page = 0; page < 20; page += 1) {
    const answer = await get(`/alerts?limit=500${cursor && `&cursor=${cursor}`}`, { signal });
    const found = answer.items.find((one) => one.id === which);
    if (found) return found;
    cursor = answer.nextCursor ?? '';
    if (!cursor) break;
  }
  throw new ApiError(404, { code: 'ALERT_NOT_FOUND', detail: t('alerts.notFound') });
}

async function detail(view, which) {
  put(view.root, loading());
  async function act(verb, bodyOf, consequence, needsNote) {
    const answer = await confirm({ title: t(`alerts.${verb}`), consequence, label: t(`alerts.${verb}`), needsNote });
    if (!answer) return;
    try {
      await post(`/alerts/${encodeURIComponent(which)}/${verb}`, bodyOf(answer.note));
      toast(t('message.done'));
      await load();
    } catch (error) {
      toast(error.absent ? t('alerts.unsupported') : describe(error), 'bad');
    }
  }
  async function load() {
    const [one, texts] = await Promise.all([find(which, view.signal), ruleTexts()]);
    view.title(one.rule);
    const firing = one.state === 'firing';
    put(view.root,
      header(one.rule, {
        back: { href: '/console/alerts', label: t('nav.alerts') },
        badges: [badge(one.severity, 'severity'), badge(one.state)],
        actions: firing ? [
          button(t('alerts.acknowledge'), () => act('acknowledge', () => ({}), t('alerts.acknowledgeText'), false), { disabled: !view.mayAct || Boolean(one.acknowledgedAt) }),
          button(t('alerts.silence'), () => act('silence', (reason) => ({ minutes: 60, reason }), t('alerts.silenceText'), true), { disabled: !view.mayAct }),
        ] : [],
      }),
      panel(null, h('p', { class: 'summary' }, sayAlert(one, texts)),
        texts.get(one.rule)?.advice && h('p', { class: 'advice' }, texts.get(one.rule).advice),
        facts([[t('label.count'), number(one.count)], [t('label.fired'), when(one.firedAt)], [t('label.resolved'), one.resolvedAt && when(one.resolvedAt)], [t('alerts.acknowledged'), one.acknowledgedAt && when(one.acknowledgedAt)], [t('label.by'), one.acknowledgedBy], [t('alerts.silencedUntil'), one.silencedUntil && when(one.silencedUntil)], [t('label.id'), id(one.id)]]),
        one.labels && Object.keys(one.labels).length > 0 && h('details', null, h('summary', null, t('label.labels')), json(one.labels))));
  }
  view.onChange(['alerts'], load);
  await load();
}
