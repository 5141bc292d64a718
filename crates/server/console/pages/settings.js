import { get } from '../api.js';
import { h, put } from '../dom.js';
import { named, t } from '../i18n.js';
import { facts, header, loading, panel } from '../ui.js';

export default async function settings(view) {
  put(view.root, header(t('nav.settings'), { lead: t('settings.lead') }), loading());
  const found = await get('/console/api/settings', { signal: view.signal });
  const filter = h('input', { type: 'search', id: 'filter-settings', placeholder: 'PAYMENT_', autocomplete: 'off', spellcheck: 'false' });
  const changed = h('input', { type: 'checkbox', id: 'only-changed' });
  const place = h('div', null);

  function draw() {
    const wanted = filter.value.trim().toLowerCase();
    const shown = found.settings.filter((one) => (!wanted || `${one.name} ${one.about ?? ''}`.toLowerCase().includes(wanted)) && (!changed.checked || one.origin !== 'default'));
    const sections = new Map();
    for (const one of shown) {
      const name = one.section ? named('section', one.section) : `${t('label.lane')}: ${one.lane ?? ''}`;
      sections.set(name, [...(sections.get(name) ?? []), one]);
    }
    put(place, shown.length === 0 ? h('p', { class: 'quiet' }, t('empty.filtered')) : [...sections].map(([name, all]) => panel(name, h('table', { class: 'list settings' },
      h('thead', null, h('tr', null, [t('label.name'), t('label.value'), t('label.origin'), t('label.meaning')].map((label) => h('th', { scope: 'col' }, label)))),
      h('tbody', null, all.map((one) => h('tr', { class: one.origin === 'default' ? '' : 'changed' },
        h('td', { data: { label: t('label.name') } }, h('code', null, one.name)),
        h('td', { data: { label: t('label.value') } }, one.value === '' ? h('span', { class: 'quiet' }, t('settings.notSet')) : h('code', null, one.value)),
        h('td', { data: { label: t('label.origin') }, class: 'quiet' }, one.origin),
        h('td', { data: { label: t('label.meaning') }, class: 'grow meaning', lang: 'en' }, one.about ?? '')))))))); 
  }
  filter.addEventListener('input', draw);
  changed.addEventListener('change', draw);
  put(view.root,
    header(t('nav.settings'), { lead: t('settings.lead') }),
    panel(t('settings.server'), facts([[t('settings.version'), found.version], [t('settings.database'), found.database], [t('settings.node'), h('code', null, found.node)]])),
    found.warnings.length > 0 && panel(t('settings.warnings'), h('ul', { class: 'warnings', lang: 'en' }, found.warnings.map((text) => h('li', null, text)))),
    h('form', { class: 'filters', role: 'search', 'aria-label': t('label.filter'), on: { submit: (event) => event.preventDefault() } }, h('div', { class: 'filter' }, h('label', { for: 'filter-settings' }, t('label.filter')), filter), h('div', { class: 'filter check' }, changed, h('label', { for: 'only-changed' }, t('settings.onlyChanged')))),
    place);
  draw();
}
