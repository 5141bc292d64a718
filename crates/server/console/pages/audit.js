import { get, post } from '../api.js';
import { h, put } from '../dom.js';
import { named, number, t } from '../i18n.js';
import { list } from '../list.js';
import { bar, button, describe, empty, facts, header, json, panel, toast, when } from '../ui.js';

export default async function audit(view) {
  const state = h('div', { class: 'verification' });
  const start = button(t('audit.verify'), async () => {
    try {
      draw(await post('/console/api/audit/verification'));
      await follow();
    } catch (error) {
      toast(describe(error), 'bad');
    }
  }, { tone: 'primary', disabled: !view.mayAct, title: view.mayAct ? undefined : t('role.onlyOperator') });

  function draw(walk) {
    if (walk.state === 'none') {
      put(state, h('p', { class: 'quiet' }, t('audit.never')));
      return;
    }
    const running = walk.state === 'running';
    const tone = { intact: 'good', broken: 'bad', failed: 'bad', running: 'busy' }[walk.state];
    put(state,
      h('p', { class: `verdict ${tone}`, role: 'status', data: { state: walk.state } }, t(`audit.${walk.state}`)),
      running && bar([[walk.seals, 'good']], Math.max(walk.totalSeals, walk.seals), t('audit.chain')),
      facts([[t('audit.seals'), `${number(walk.seals)} / ${number(Math.max(walk.totalSeals, walk.seals))}`], [t('audit.lines'), number(walk.lines)], [t('audit.unsealed'), number(walk.unsealed)], [t('audit.expired'), walk.expired > 0 && number(walk.expired)], [t('label.by'), walk.who], [t('label.ended'), walk.endedAt && when(walk.endedAt)]]),
      walk.findings.length > 0 && h('ul', { class: 'findings' }, walk.findings.map((finding) => h('li', null, named('finding', finding.what), ' ', h('code', null, String(finding.line ?? finding.seal))))),
      walk.findingCount > walk.findings.length && h('p', null, t('audit.moreFindings', { count: number(walk.findingCount - walk.findings.length) })));
    start.disabled = !view.mayAct || running;
  }
  async function follow() {
    for (;;) {
      const walk = await get('/console/api/audit/verification', { signal: view.signal });
      draw(walk);
      if (walk.state !== 'running') return;
      await new Promise((resolve) => { setTimeout(resolve, 500); });
      if (view.signal.aborted) return;
    }
  }

  const { node } = list(view, {
    path: '/audit-logs',
    caption: t('nav.audit'),
    parts: ['audit'],
    filters: [
      { name: 'action', label: t('label.action'), placeholder: 'payment.captured' },
      { name: 'targetType', label: t('label.subject'), placeholder: 'payment' },
      { name: 'targetId', label: t('label.subjectId') },
      { name: 'officeId', label: t('label.office') },
    ],
    columns: [
      { label: t('label.time'), class: 'time', cell: (one) => when(one.createdAt) },
      { label: t('label.action'), cell: (one) => h('code', null, one.action) },
      { label: t('label.who'), cell: (one) => [one.actorId ?? t('audit.system'), ' ', h('span', { class: 'quiet' }, named('role', one.actorRole))] },
      { label: t('label.subject'), class: 'grow', cell: (one) => `${named('subject', one.targetType)} ${one.targetId}` },
      { label: t('label.details'), cell: (one) => h('details', null, h('summary', null, t('label.show')), json(one.details)) },
    ],
    none: () => empty(t('audit.none'), t('audit.noneText')),
  });
  put(view.root, header(t('nav.audit'), { lead: t('audit.lead') }), panel(t('audit.chain'), h('p', null, t('audit.chainText')), start, state), node);
  follow().catch((error) => { if (error.name !== 'AbortError') toast(describe(error), 'bad'); });
}
