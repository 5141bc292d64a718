// Lists: filters in the address, pages by cursor, rows that follow the keyboard.

import { get, query } from './api.js';
import { h, put } from './dom.js';
import { t } from './i18n.js';
import { empty, failure } from './ui.js';

const PAGE = 50;
/** How often a page that was short although there is more is continued by itself. */
const LOOKS = 5;

/**
 * `options`:
 * - `path`: the endpoint, or a function of the filters that answers one;
 * - `columns`: `{label, cell(item), class}`; `href(item)`: where a row leads;
 * - `filters`: `{name, label, choices | placeholder, param}`;
 * - `items(answer)`, `cursor(answer)`: where they are, if not where our own API has them;
 * - `none()`: what is shown when nothing is there at all; `absent()`: when the endpoint is not;
 * - `parts`: what the live updates call it; `select`: rows can be chosen, `chosen(items)` hears it.
 */
export function list(view, options) {
  const { columns, filters = [] } = options;
  const itemsOf = options.items ?? ((answer) => answer.items);
  const cursorOf = options.cursor ?? ((answer) => answer.nextCursor);
  const state = { items: [], cursor: null, pages: 0, chosen: new Set(), turn: 0 };

  const body = h('tbody');
  const all = options.select && h('input', { type: 'checkbox', 'aria-label': t('action.selectAll') });
  const table = h(
    'table',
    { class: 'list' },
    h('caption', { class: 'sr' }, options.caption ?? ''),
    h('thead', null, h('tr', null, options.select && h('th', { class: 'pick' }, all), columns.map((column) => h('th', { scope: 'col', class: column.class }, column.label)))),
    body,
  );
  const foot = h('div', { class: 'list-foot' });
  const place = h('div', { class: 'list-body', 'aria-live': 'off' });
  const fresh = h('button', { type: 'button', class: 'fresh', hidden: true, on: { click: () => load(true) } }, t('action.showNew'));

  const values = () => Object.fromEntries(filters.map((filter) => [filter.name, view.query.get(filter.name) ?? filter.default ?? '']));

  const form = filters.length > 0 && h(
    'form',
    { class: 'filters', role: 'search', 'aria-label': t('label.filter') },
    filters.map((filter) => control(filter, values()[filter.name])),
    h('button', { type: 'submit' }, t('action.filter')),
  );
  function apply() {
    const chosen = Object.fromEntries(new FormData(form));
    view.navigate(query(view.path, chosen));
  }
  if (form) {
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      apply();
    });
    for (const select of form.querySelectorAll('select')) select.addEventListener('change', apply);
  }

  function row(item) {
    const href = options.href?.(item);
    const cells = columns.map((column, index) => {
      const content = column.cell(item);
      // The first cell is the row's link; the rest of the row follows it for the mouse.
      const inner = index === 0 && href ? h('a', { href, class: 'row-link' }, content) : content;
      return h('td', { class: column.class, data: { label: column.label } }, h('div', null, inner));
    });
    const pick = options.select && h('input', {
      type: 'checkbox',
      'aria-label': t('action.select'),
      checked: state.chosen.has(options.select(item)),
      on: {
        change: (event) => {
          const key = options.select(item);
          if (event.target.checked) state.chosen.add(key);
          else state.chosen.delete(key);
          tell();
        },
      },
    });
    const node = h('tr', { class: href ? 'leads' : '' }, options.select && h('td', { class: 'pick' }, pick), cells);
    if (href) {
      node.addEventListener('click', (event) => {
        if (event.target.closest('a, button, input, label') || getSelection()?.toString()) return;
        node.querySelector('.row-link')?.click();
      });
    }
    return node;
  }

  function tell() {
    if (all) {
      const keys = state.items.map(options.select);
      all.checked = keys.length > 0 && keys.every((key) => state.chosen.has(key));
      all.indeterminate = !all.checked && state.chosen.size > 0;
    }
    options.chosen?.(state.chosen, state.items);
  }
  all?.addEventListener('change', () => {
    state.chosen = new Set(all.checked ? state.items.map(options.select) : []);
    draw();
  });

  function draw() {
    fresh.hidden = true;
    if (state.items.length === 0 && !state.cursor) {
      const filtered = Object.entries(values()).some(([name, value]) => value !== '' && value !== (filters.find((filter) => filter.name === name)?.default ?? ''));
      put(place, filtered ? empty(t('empty.filtered'), t('empty.filteredText')) : options.none());
      put(foot);
      tell();
      return;
    }
    put(body, state.items.map(row));
    put(place, table);
    put(foot, h('span', { class: 'quiet' }, t('list.shown', { count: state.items.length })));
    if (state.cursor) {
      const short = state.items.length === 0 || state.short;
      const label = short ? t('action.lookFurther') : t('action.more');
      foot.append(h('button', { type: 'button', on: { click: () => load(false) } }, label));
    }
    tell();
  }

  async function load(first) {
    const turn = ++state.turn;
    if (first && state.pages === 0) put(place, h('p', { class: 'loading', role: 'status' }, t('message.loading')));
    try {
      let items = first ? [] : state.items;
      let cursor = first ? null : state.cursor;
      let got = 0;
      for (let look = 0; look < LOOKS; look += 1) {
        const path = typeof options.path === 'function' ? options.path(values()) : options.path;
        const asked = typeof options.path === 'function' ? {} : Object.fromEntries(filters.map((filter) => [filter.param ?? filter.name, values()[filter.name]]));
        const paging = options.paging ? options.paging(cursor) : { limit: PAGE, cursor };
        const separator = path.includes('?') ? '&' : '?';
        const more = query('', { ...asked, ...paging }).replace('?', separator);
        const answer = await get(path + more, { signal: view.signal });
        if (turn !== state.turn) return;
        const found = itemsOf(answer);
        items = [...items, ...found];
        got += found.length;
        cursor = cursorOf(answer) ?? null;
        if (got > 0 || !cursor) break;
      }
      state.items = items;
      state.cursor = cursor;
      state.short = got === 0;
      state.pages = first ? 1 : state.pages + 1;
      draw();
    } catch (error) {
      if (error.name === 'AbortError' || turn !== state.turn) return;
      if (error.absent && options.absent) put(place, options.absent());
      else put(place, failure(error, () => load(first)));
      put(foot);
    }
  }

  if (options.parts) {
    view.onChange(options.parts, () => {
      // Whoever has gone on, or has chosen rows, is not disturbed.
      if (state.pages > 1 || state.chosen.size > 0) fresh.hidden = false;
      else load(true);
    });
  }
  load(true);
  return { node: h('div', { class: 'list-wrap' }, form, options.tools, fresh, place, foot), reload: () => { state.chosen.clear(); return load(true); }, values };
}

function control(filter, value) {
  const name = `filter-${filter.name}`;
  const input = filter.choices
    ? h('select', { name: filter.name, id: name }, filter.choices.map(([choice, label]) => h('option', { value: choice, selected: choice === value }, label)))
    : h('input', { type: filter.type ?? 'search', name: filter.name, id: name, value, placeholder: filter.placeholder ?? '', autocomplete: 'off', spellcheck: 'false' });
  return h('div', { class: 'filter' }, h('label', { for: name }, filter.label), input);
}

/** j and k: the next or previous row of the list on the page. */
export function moveRow(step) {
  const rows = [...document.querySelectorAll('.row-link')];
  if (rows.length === 0) return;
  const here = rows.indexOf(document.activeElement);
  const next = here < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(Math.max(here + step, 0), rows.length - 1);
  rows[next].focus();
  rows[next].closest('tr')?.scrollIntoView({ block: 'nearest' });
}
