import { get } from '../api.js';
import { plot } from '../charts.js';
import { h, put } from '../dom.js';
import { duration, named, number, t } from '../i18n.js';
import { badge, empty, header, link, loading, panel, raceTable, when } from '../ui.js';
import { ruleTexts, sayAlert } from './alerts.js';
import { subjectLink, summaryOf } from './cases.js';

const LANES = ['orders', 'payments', 'webhooks', 'deliveries', 'mail', 'renders', 'timers', 'events'];
const HOUR = 3_600_000;
/** What is shown at least. */
const LEAST = 300_000;
/** Points of a plot: of a full hour, a minute each. */
const POINTS = 60;

export default async function overview(view) {
  const place = h('div', null, loading());
  put(view.root, header(t('nav.overview'), { lead: t('overview.lead') }), place);
  async function load() {
    const [found, texts] = await Promise.all([get('/console/api/overview', { signal: view.signal }), ruleTexts()]);
    put(place, tiles(found), h('div', { class: 'two' }, needs(found), alerts(found, texts)), plots(found), races(found));
  }
  view.onChange(['cases', 'alerts', 'races', 'flow', 'queue', 'outbox', 'payments', 'webhooks'], load);
  await load();
}

function tiles(found) {
  const tile = (name, href, bad = true) => {
    const value = found.counts[name];
    const text = value >= found.countMax ? `${number(found.countMax)}+` : number(value);
    return h('a', { class: `tile ${value > 0 && bad ? 'bad' : ''}`, href }, h('span', { class: 'tile-value' }, text), h('span', { class: 'tile-label' }, t(`count.${name}`)));
  };
  return h('div', { class: 'tiles' },
    tile('openCases', '/console/cases?status=open'),
    tile('firingAlerts', '/console/alerts?state=firing'),
    tile('paymentsInDoubt', '/console/payments?pendingVerification=true'),
    tile('deadLetters', '/console/queue/dead-letters'),
    tile('abortedEffects', '/console/orders?status=aborted'),
    tile('failedWebhooks', '/console/webhooks?status=failed'));
}

function needs(found) {
  if (found.cases.length === 0) return panel(t('overview.cases'), empty(t('overview.noCases'), t('overview.noCasesText')));
  return panel(t('overview.cases'), h('ul', { class: 'brief' }, found.cases.map((one) =>
    h('li', null, link(`/console/cases/${one.id}`, named('case', one.kind)), ' ', subjectLink(one), h('p', null, summaryOf(one)), h('p', { class: 'quiet' }, when(one.openedAt))))));
}

function alerts(found, texts) {
  if (found.alerts.length === 0) return panel(t('overview.alerts'), empty(t('overview.noAlerts'), t('overview.noAlertsText')));
  return panel(t('overview.alerts'), h('ul', { class: 'brief' }, found.alerts.map((one) =>
    h('li', null, badge(one.severity, 'severity'), ' ', link(`/console/alerts/${one.id}`, one.rule), one.count > 1 && ` ×${number(one.count)}`, h('p', null, sayAlert(one, texts)), h('p', { class: 'quiet' }, when(one.firedAt))))));
}

/** Steps of some seconds, gathered into the points of the plots. */
function gather(found) {
  const to = new Date(found.at).getTime();
  // A process that has just started is seen from its beginning: a few minutes at the edge of an hour show nothing.
  const first = found.steps.length ? new Date(found.steps[0].at).getTime() - found.steps[0].sec * 1000 : to;
  const from = Math.max(to - HOUR, Math.min(first, to - LEAST));
  const width = (to - from) / POINTS;
  const slots = Array.from({ length: POINTS }, (_, index) => ({ at: from + (index + 1) * width, seen: false, seconds: 0, done: {}, failed: 0, all: 0, p50: {}, p95: {}, waiting: {} }));
  for (const step of found.steps) {
    const at = new Date(step.at).getTime();
    const slot = slots[Math.min(Math.max(Math.floor((at - from) / width), 0), POINTS - 1)];
    if (at < from) continue;
    slot.seen = true;
    slot.seconds += step.sec;
    for (const [lane, count] of Object.entries(step.waiting)) slot.waiting[lane] = Math.max(slot.waiting[lane] ?? 0, count);
    for (const [lane, [succeeded, failed, aborted, p50, p95]] of Object.entries(step.lanes)) {
      slot.done[lane] = (slot.done[lane] ?? 0) + succeeded + failed + aborted;
      slot.failed += failed + aborted;
      slot.all += succeeded + failed + aborted;
      slot.p50[lane] = Math.max(slot.p50[lane] ?? 0, p50 ?? 0);
      slot.p95[lane] = Math.max(slot.p95[lane] ?? 0, p95 ?? 0);
    }
  }
  return { slots, from, to };
}

function plots(found) {
  const { slots, from, to } = gather(found);
  const seen = new Set(slots.flatMap((slot) => [...Object.keys(slot.done), ...Object.keys(slot.waiting)]));
  const lanes = [...LANES, ...[...seen].filter((lane) => !LANES.includes(lane))].filter((lane) => seen.has(lane));
  const shown = lanes.length ? lanes : ['orders'];
  const series = (value) => shown.map((lane) => ({ name: named('lane', lane), tone: `tone-${LANES.indexOf(lane) + 1}`, points: slots.map((slot) => [slot.at, slot.seen ? value(slot, lane) : null]) }));
  const rate = (value) => (value >= 100 ? number(Math.round(value)) : number(Math.round(value * 10) / 10));
  return panel(t('overview.hour'),
    h('p', { class: 'quiet' }, t('overview.node', { node: found.node })),
    h('div', { class: 'plots' },
      plot({ title: t('plot.flow'), note: t('plot.flowNote'), from, to, stacked: true, format: rate, series: series((slot, lane) => (slot.seconds ? (slot.done[lane] ?? 0) / (slot.seconds / 60) : 0)) }),
      plot({ title: t('plot.success'), note: t('plot.successNote'), from, to, max: 100, format: (value) => `${rate(value)} %`, series: [{ name: t('plot.allLanes'), tone: 'tone-2', points: slots.map((slot) => [slot.at, slot.all ? ((slot.all - slot.failed) / slot.all) * 100 : null]) }] }),
      plot({ title: t('plot.latency'), note: t('plot.latencyNote'), from, to, format: duration, series: series((slot, lane) => slot.p95[lane] ?? null) }),
      plot({ title: t('plot.waiting'), note: t('plot.waitingNote'), from, to, stacked: true, format: (value) => number(Math.round(value * 10) / 10), series: series((slot, lane) => slot.waiting[lane] ?? 0) })));
}

function races(found) {
  if (found.races.length === 0) return panel(t('overview.races'), empty(t('overview.noRaces'), t('overview.noRacesText')));
  return panel(t('overview.races'), raceTable(found.races, subjectLink));
}
