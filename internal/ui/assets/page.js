'use strict';
// The pages work without this script, except for the preview while a user types. The script requests a page
// again, and replaces parts of the page by the new ones.

const main = () => document.getElementById('main');
const live = document.getElementById('origin')?.dataset.live;

// replace replaces a part of the page by that of another document, and keeps the focus, the scroll position and typed text.
function replace(id, from) {
  const was = document.getElementById(id);
  const is = from.getElementById(id);
  if (!was || !is) return;
  const scrolled = [...was.querySelectorAll('.scroll')].map((e) => [e.scrollTop, e.scrollLeft]);
  const focused = document.activeElement && was.contains(document.activeElement) ? path(was, document.activeElement) : null;
  was.replaceChildren(...is.childNodes);
  [...was.querySelectorAll('.scroll')].forEach((e, i) => { if (scrolled[i]) [e.scrollTop, e.scrollLeft] = scrolled[i]; });
  if (focused) at(was, focused)?.focus({ preventScroll: true });
}

function path(root, e) {
  const steps = [];
  for (; e !== root; e = e.parentElement) steps.unshift([...e.parentElement.children].indexOf(e));
  return steps;
}

function at(root, steps) {
  return steps.reduce((e, i) => e?.children[i], root);
}

async function fetched(address, options) {
  const answer = await fetch(address, options);
  return answer.ok || answer.status === 404 ? answer.text() : null;
}

let asking = null;
async function refresh(address, id) {
  asking?.abort();
  asking = new AbortController();
  try {
    const text = await fetched(address, { signal: asking.signal });
    if (text) replace(id, new DOMParser().parseFromString(text, 'text/html'));
  } catch (e) {
    if (e.name !== 'AbortError') throw e;
  }
}

// A filter updates the result while the user types.
document.addEventListener('input', (event) => {
  const form = event.target.closest('form[data-live-filter]');
  if (!form) return;
  const values = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
  const address = '/' + (values.size ? '?' + values : '');
  history.replaceState(null, '', address);
  refresh(address, 'result');
});

// The what-if preview is updated a moment after the last keystroke.
let timer = 0;
let trying = null;
async function whatIf(form) {
  trying?.abort();
  trying = new AbortController();
  const began = performance.now();
  try {
    const text = await fetched(form.action, { method: 'POST', body: new URLSearchParams(new FormData(form)), signal: trying.signal });
    const outcome = document.getElementById('outcome');
    if (text === null || !outcome) return;
    outcome.replaceChildren(...new DOMParser().parseFromString(text, 'text/html').body.childNodes);
    document.getElementById('took').textContent = Math.round(performance.now() - began) + ' ms';
  } catch (e) {
    if (e.name !== 'AbortError') throw e;
  }
}
document.addEventListener('input', (event) => {
  if (event.target.id !== 'policy') return;
  clearTimeout(timer);
  timer = setTimeout(() => whatIf(event.target.form), 60);
});
document.addEventListener('submit', (event) => {
  if (event.target.id !== 'whatif') return;
  event.preventDefault();
  whatIf(event.target);
});
document.addEventListener('click', (event) => {
  if (event.target.id !== 'copy') return;
  navigator.clipboard.writeText(document.getElementById('policy').value);
});
const copy = document.getElementById('copy');
if (copy && navigator.clipboard) copy.hidden = false;

// Updates are shown as they arrive, except while the user edits.
if (live) {
  let first = true;
  let events = null;
  let version = '';
  // A browser has only a few connections for each server, so a hidden tab uses none.
  const open = () => {
    events = new EventSource('/events');
    events.onmessage = told;
    events.onerror = () => { document.getElementById('pulse').textContent = ' · may be out of date'; };
  };
  document.addEventListener('visibilitychange', () => {
    events?.close();
    if (!document.hidden) open();
  });
  const told = (event) => {
    document.getElementById('pulse').textContent = '';
    if (event.data === version) return;
    version = event.data;
    if (first) { first = false; return; }
    const typing = document.activeElement?.matches('input, select, textarea') && main().contains(document.activeElement);
    if (document.getElementById('result')) refresh(location.href, 'result');
    else if (!typing && !document.getElementById('policy')) refresh(location.href, 'main');
  };
  if (!document.hidden) open();
}
