// Plots of the last hour, drawn as SVG.

import { h, put, s } from './dom.js';
import { hourMinute, number } from './i18n.js';

const HEIGHT = 150;
const PAD = { left: 56, right: 8, top: 10, bottom: 20 };

/** A round number that is not smaller. */
function ceiling(value) {
  if (value <= 2) return 2;
  const size = 10 ** Math.floor(Math.log10(value));
  const step = [1, 2, 2.5, 5, 10].find((factor) => factor * size >= value);
  return step * size;
}

/**
 * Lines over time. `series`: `{name, tone, points: [[ms, value | null], …]}`; a `null` is a gap.
 * `stacked` adds the series up and fills them.
 */
export function plot({ title, series, from, to, format = number, max, stacked = false, note }) {
  const place = h('div', { class: 'plot-body' });
  const shown = series.filter((one) => one.points.some(([, value]) => value !== null && value > 0));
  const legend = h('ul', { class: 'legend' }, (shown.length ? shown : series.slice(0, 1)).map((one) => {
    const last = [...one.points].reverse().find(([, value]) => value !== null);
    return h('li', null, h('span', { class: `swatch ${one.tone}`, 'aria-hidden': 'true' }), one.name, ' ', h('b', null, last ? format(last[1]) : '—'));
  }));
  const said = shown.map((one) => `${one.name} ${format([...one.points].reverse().find(([, value]) => value !== null)?.[1] ?? 0)}`).join(', ');

  function draw() {
    const width = Math.max(place.clientWidth, 240);
    const inner = { width: width - PAD.left - PAD.right, height: HEIGHT - PAD.top - PAD.bottom };
    const columns = stacked ? stack(shown) : shown.map((one) => one.points.map(([at, value]) => [at, value === null ? null : [0, value]]));
    const highest = Math.max(0, ...columns.flat().map(([, pair]) => (pair ? pair[1] : 0)));
    const top = max ?? ceiling(highest);
    const x = (at) => PAD.left + ((at - from) / (to - from)) * inner.width;
    const y = (value) => PAD.top + inner.height - (Math.min(value, top) / top) * inner.height;
    const grid = [0, 0.5, 1].map((share) => [
      s('line', { class: 'grid', x1: PAD.left, x2: width - PAD.right, y1: y(top * share), y2: y(top * share) }),
      s('text', { class: 'tick', x: PAD.left - 6, y: y(top * share) + 4, 'text-anchor': 'end' }, format(top * share)),
    ]);
    const ticks = [0, 0.25, 0.5, 0.75, 1].filter((share) => width > 420 || share !== 0.25 && share !== 0.75).map((share) => {
      const at = from + (to - from) * share;
      return s('text', { class: 'tick', x: x(at), y: HEIGHT - 4, 'text-anchor': share === 0 ? 'start' : share === 1 ? 'end' : 'middle' }, hourMinute(at));
    });
    const drawn = shown.map((one, index) => {
      const runs = split(columns[index]);
      return runs.map((run) => {
        const line = run.map(([at, pair]) => `${x(at).toFixed(1)},${y(pair[1]).toFixed(1)}`);
        const back = [...run].reverse().map(([at, pair]) => `${x(at).toFixed(1)},${y(pair[0]).toFixed(1)}`);
        return [
          stacked && s('polygon', { class: `area ${one.tone}`, points: [...line, ...back].join(' ') }),
          run.length > 1 ? s('polyline', { class: `line ${one.tone}`, points: line.join(' ') }) : s('circle', { class: `dot ${one.tone}`, cx: x(run[0][0]), cy: y(run[0][1][1]), r: 3 }),
        ];
      });
    });
    put(place, s('svg', { viewBox: `0 0 ${width} ${HEIGHT}`, height: HEIGHT, role: 'img', 'aria-label': `${title}: ${said || format(0)}` }, grid, ticks, drawn));
  }
  const observer = new ResizeObserver(() => draw());
  observer.observe(place);
  return h('figure', { class: 'plot' }, h('figcaption', null, h('h3', null, title), note && h('span', { class: 'quiet' }, note)), place, legend);
}

function stack(series) {
  const sums = new Map();
  return series.map((one) => one.points.map(([at, value]) => {
    if (value === null) return [at, null];
    const low = sums.get(at) ?? 0;
    const high = low + value;
    sums.set(at, high);
    return [at, [low, high]];
  }));
}

/** Pieces without gaps. */
function split(points) {
  const runs = [];
  let open = null;
  for (const point of points) {
    if (point[1] === null) {
      open = null;
      continue;
    }
    if (!open) {
      open = [];
      runs.push(open);
    }
    open.push(point);
  }
  return runs;
}
