import { post } from '../api.js';
import { h, put } from '../dom.js';
import { t } from '../i18n.js';
import { describe } from '../ui.js';

/** By name and password, or with an API token. */
export default function login(session, done, toggles) {
  const said = h('p', { class: 'form-error', role: 'alert' });
  const send = h('button', { type: 'submit', class: 'primary wide' }, t('login.submit'));
  const byToken = !session.users;
  const fields = h('div', null);
  const form = h('form', { class: 'login' }, fields, said, send);

  function field(name, label, type, complete) {
    return h('div', { class: 'field' }, h('label', { for: `login-${name}` }, label), h('input', { id: `login-${name}`, name, type, autocomplete: complete, required: true, maxlength: '1024' }));
  }
  function show(token) {
    put(fields, token
      ? field('token', t('login.token'), 'password', 'off')
      : [field('name', t('login.name'), 'text', 'username'), field('password', t('login.password'), 'password', 'current-password')]);
    put(other, token ? t('login.withPassword') : t('login.withToken'));
    other.dataset.token = String(token);
    fields.querySelector('input').focus();
  }
  const other = h('button', { type: 'button', class: 'linklike', on: { click: () => show(other.dataset.token !== 'true') } });

  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    put(said);
    send.disabled = true;
    try {
      await post('/console/api/login', Object.fromEntries(new FormData(form)));
      await done();
    } catch (error) {
      put(said, describe(error));
      send.disabled = false;
      fields.querySelector('input[type=password]')?.select();
    }
  });
  show(byToken);
  return h('main', { class: 'alone' },
    h('div', { class: 'login-box' },
      h('h1', null, h('b', null, 'Tashika'), ' ', h('span', { lang: 'ja' }, '確か')),
      h('p', { class: 'lead' }, t('login.lead')),
      !isSecureContext && h('p', { class: 'failure' }, t('login.insecure')),
      form,
      session.users && session.tokens && other,
      h('div', { class: 'login-foot' }, toggles)));
}
