// A payment as a picture: when it was tried, when nobody knew, which way it took.

import { h, s } from './dom.js';
import { clock, duration, named, t } from './i18n.js';

const WIDTH = 900;
const LEFT = 96;
const RIGHT = 110;
const ROWS = { status: 34, attempts: 78, checks: 116 };

const time = (text) => new Date(text).getTime();

/**
 * Places moments so that milliseconds and hours fit on one axis: the width of a gap grows with its
 * logarithm. The labels say the true times.
 */
function axis(moments) {
  const sorted = [...new Set(moments)].sort((a, b) => a - b);
  const widths = sorted.slice(1).map((at, index) => 0.6 + Math.log10(1 + (at - sorted[index]) / 20));
  const total = widths.reduce((sum, width) => sum + width, 0) || 1;
  const places = new Map([[sorted[0], LEFT]]);
  let x = LEFT;
  widths.forEach((width, index) => {
    x += (width / total) * (WIDTH - LEFT - RIGHT);
    places.set(sorted[index + 1], x);
  });
  return { sorted, x: (at) => places.get(at) ?? LEFT };
}

/** Windows in which nobody knew what had happened. */
function doubts(lines, open, now) {
  const windows = [];
  let since = null;
  for (const line of lines) {
    if ((line.kind === 'attempt' || line.kind === 'check') && line.outcome === 'lost' && since === null) {
      since = time(line.startedAt ?? line.at);
    }
    if ((line.kind === 'transition' || line.kind === 'person') && since !== null) {
      windows.push([since, time(line.at), false]);
      since = null;
    }
  }
  if (since !== null) windows.push([since, open ? now : time(lines.at(-1).at), open]);
  return windows;
}

export function timelinePicture(lines, payment) {
  const now = Date.now();
  const open = Boolean(payment.pendingVerification || payment.verificationFailed);
  const tries = lines.filter((line) => ['attempt', 'check', 'prepared', 'heard'].includes(line.kind));
  const changes = lines.filter((line) => line.kind === 'transition');
  const windows = doubts(lines, open, now);
  const moments = [time(lines[0].at), ...lines.map((line) => time(line.at)), ...tries.filter((line) => line.startedAt).map((line) => time(line.startedAt)), ...windows.flatMap(([a, b]) => [a, b])];
  if (open) moments.push(now);
  const { sorted, x } = axis(moments);
  const end = x(sorted.at(-1)) || WIDTH - RIGHT;

  const spans = [];
  let status = 'PENDING';
  let since = time(lines[0].at);
  for (const change of changes) {
    if (change.to === status) continue;
    spans.push([status, since, time(change.at)]);
    status = change.to;
    since = time(change.at);
  }
  const states = [...spans.map(([name, a, b]) => [name, x(a), x(b)]), [status, x(since), Math.max(end, x(since) + 100)]];

  const shade = windows.map(([a, b, still]) =>
    s('g', null,
      s('rect', { class: `doubt ${still ? 'open' : ''}`, x: x(a), y: 16, width: Math.max(x(b) - x(a), 3), height: 116 }, s('title', null, `${t('timeline.doubt')}: ${duration(b - a)}`)),
      x(b) - x(a) > 90 && s('text', { class: 'doubt-label', x: (x(a) + x(b)) / 2, y: 12, 'text-anchor': 'middle' }, `${t('timeline.doubt')} · ${duration(b - a)}`)));

  const bars = states.map(([name, a, b]) =>
    s('g', null,
      s('rect', { class: `state ${name}`, x: a, y: ROWS.status - 12, width: Math.max(b - a, 2), height: 22, rx: 3 }, s('title', null, named('status', name))),
      b - a > 60 && s('text', { class: `state-label ${name}`, x: a + 6, y: ROWS.status + 4 }, named('status', name))));

  const marks = tries.map((line) => {
    const y = line.kind === 'check' || line.kind === 'heard' ? ROWS.checks : ROWS.attempts;
    const [a, b] = [x(time(line.startedAt ?? line.at)), x(time(line.at))];
    const tone = line.kind === 'prepared' ? 'done' : line.kind === 'heard' ? 'heard' : line.outcome ?? 'done';
    const said = [named('timeline', line.kind), line.operation, line.outcome && named('outcome', line.outcome), line.found, line.code, line.startedAt && duration(time(line.at) - time(line.startedAt))].filter(Boolean).join(' · ');
    return s('g', { class: `try ${tone}` },
      s('line', { x1: a, x2: b, y1: y, y2: y }),
      line.outcome === 'lost' ? s('path', { d: `M${b - 5} ${y - 5}L${b + 5} ${y + 5}M${b - 5} ${y + 5}L${b + 5} ${y - 5}` }) : line.kind === 'heard' ? s('path', { d: `M${b} ${y - 6}L${b + 6} ${y}L${b} ${y + 6}L${b - 6} ${y}Z` }) : s('circle', { cx: b, cy: y, r: 5 }),
      s('title', null, `${clock(line.at)} ${said}`));
  });

  const people = lines.filter((line) => line.kind === 'person').map((line) =>
    s('g', { class: 'person' }, s('line', { x1: x(time(line.at)), x2: x(time(line.at)), y1: 16, y2: 132 }), s('title', null, `${named('timeline', 'person')}: ${line.decision} (${line.who})`)));

  // Labels that would lie over each other are left out.
  let last = -Infinity;
  const ticks = sorted.filter((at) => {
    const fits = x(at) - last > 66;
    if (fits) last = x(at);
    return fits;
  }).map((at) => s('g', { class: 'axis' }, s('line', { x1: x(at), x2: x(at), y1: 134, y2: 139 }), s('text', { x: x(at), y: 152, 'text-anchor': 'middle' }, at === sorted[0] ? clock(at) : `+${duration(at - sorted[0])}`)));

  const rows = [['status', t('timeline.status')], ['attempts', t('timeline.attempts')], ['checks', t('timeline.checks')]].map(([row, label]) =>
    s('text', { class: 'row-label', x: 0, y: ROWS[row] + 4 }, label));

  const said = t('timeline.summary', { attempts: tries.filter((line) => line.kind === 'attempt').length, checks: tries.filter((line) => line.kind === 'check').length, windows: windows.length });
  return h('figure', { class: 'picture' },
    h('div', { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': t('timeline.picture') },
      s('svg', { viewBox: `0 0 ${WIDTH} 160`, role: 'img', 'aria-label': said }, shade, rows, bars, people, marks, s('line', { class: 'base', x1: LEFT, x2: WIDTH - RIGHT, y1: 134, y2: 134 }), ticks)),
    h('figcaption', { class: 'quiet' }, `${said} ${t('timeline.compressed')}`));
}

const NODES = { PENDING: [70, 70], AUTHORIZED: [250, 70], CAPTURED: [430, 70], REFUNDED: [610, 70], FAILED: [250, 150] };
const EDGES = [
  ['PENDING', 'AUTHORIZED', 'Authorize', 'M130 70H190'],
  ['AUTHORIZED', 'CAPTURED', 'Capture', 'M310 70H370'],
  ['CAPTURED', 'REFUNDED', 'RefundRest', 'M490 70H550'],
  ['AUTHORIZED', 'REFUNDED', 'Void', 'M250 54C270 8 590 8 610 54'],
  ['CAPTURED', 'CAPTURED', 'RefundPart', 'M412 86C396 124 464 124 448 86'],
  ['PENDING', 'FAILED', 'Fail', 'M70 86C74 128 130 150 190 150'],
];

/** The machine, with the way that this payment took. */
export function stateDiagram(lines, payment) {
  const taken = new Set(lines.filter((line) => line.kind === 'transition').map((line) => `${line.from}>${line.to}`));
  const visited = new Set(['PENDING', payment.status, ...lines.filter((line) => line.kind === 'transition').flatMap((line) => [line.from, line.to])]);
  const edges = EDGES.map(([from, to, event, d]) => {
    const on = taken.has(`${from}>${to}`);
    return s('g', null, s('path', { class: `edge ${on ? 'taken' : ''}`, d, 'marker-end': `url(#${on ? 'arrow-on' : 'arrow'})` }), s('title', null, `${from} → ${to}: ${named('event', event)}`));
  });
  const nodes = Object.entries(NODES).map(([name, [x, y]]) => {
    const kind = name === payment.status ? 'here' : visited.has(name) ? 'visited' : '';
    return s('g', { class: `node ${kind}` }, s('rect', { x: x - 60, y: y - 16, width: 120, height: 32, rx: 6 }), s('text', { x, y: y + 5, 'text-anchor': 'middle' }, named('status', name)));
  });
  const arrow = (name, cls) => s('marker', { id: name, viewBox: '0 0 8 8', refX: 7, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: 'userSpaceOnUse', orient: 'auto-start-reverse' }, s('path', { class: cls, d: 'M0 0L8 4L0 8z' }));
  const way = ['PENDING', ...lines.filter((line) => line.kind === 'transition').map((line) => line.to)];
  return h('figure', { class: 'picture' },
    h('div', { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': t('timeline.diagram') },
      s('svg', { class: 'diagram', viewBox: '0 0 690 180', role: 'img', 'aria-label': `${t('timeline.diagram')}: ${way.map((name) => named('status', name)).join(' → ')}` }, s('defs', null, arrow('arrow', 'tip'), arrow('arrow-on', 'tip taken')), edges, nodes)));
}
