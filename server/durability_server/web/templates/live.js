"use strict";
// Keeps the parts of the page within "live" as new as the server's store. What comes is, by id, markup that the
// server has made and escaped, as the page itself.
(() => {
  const part = document.getElementById("live"), word = document.getElementById("connection");
  if (!part) return;
  let source = null, since = null, waiting = {}, again = 0;

  const isSelected = () => {
    const chosen = getSelection();
    return chosen && !chosen.isCollapsed && part.contains(chosen.anchorNode);
  };
  const say = (text) => {
    word.textContent = text;
    word.hidden = !text;
  };
  const name = (one) => one.getAttribute("href") || one.getAttribute("aria-label");
  const likes = (wanted) => [...part.querySelectorAll("a[href], .scroll")].filter((one) => name(one) === wanted);
  const show = () => {
    const held = part.contains(document.activeElement) ? document.activeElement : null;
    const wanted = held && name(held), number = held && likes(wanted).indexOf(held);
    const places = [...part.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
    for (const [id, markup] of Object.entries(waiting)) document.getElementById(id).innerHTML = markup;
    waiting = {};
    const tables = part.querySelectorAll(".scroll");
    if (tables.length === places.length) tables.forEach((one, number) => { one.scrollLeft = places[number]; });
    if (held && !held.isConnected) {  // the keyboard stays where it was
      const now = likes(wanted);
      if (now.length) now[Math.min(number, now.length - 1)].focus({ preventScroll: true });
    }
  };
  const open = () => {
    source = new EventSource(part.dataset.from);
    source.onopen = () => { since = null; say(""); };
    source.onerror = () => {
      since = since || new Date();
      say("Not connected since " + since.toLocaleTimeString() + ": what is shown here is from then.");
      if (source.readyState === EventSource.CLOSED) { source.close(); again = setTimeout(open, 10000); }
    };
    source.onmessage = (event) => {
      Object.assign(waiting, JSON.parse(event.data));
      if (!isSelected()) show();  // else somebody copies
    };
  };
  // A page that nobody sees needs no stream; browsers allow few for one address.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { source.close(); clearTimeout(again); } else { open(); }
  });
  if (!document.hidden) { open(); } else { source = { close: () => {} }; }
})();
