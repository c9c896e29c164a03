"use strict";
// Keeps the parts of the page within "live" as new as the server's store. What comes is, by id, markup that the
// server has made and escaped, as the page itself.
(() => {
  const part = document.getElementById("live"), word = document.getElementById("connection");
  if (!part) return;
  const quietMs = 30000;  // the server says something within 22 s, changed or not
  let source = null, timer = 0, heard = new Date(), lost = false, waiting = {};

  const isSelected = () => {
    const chosen = getSelection();
    return chosen && !chosen.isCollapsed && part.contains(chosen.anchorNode);
  };
  const say = () => {
    let text = "";
    if (lost) text = "Not connected since " + heard.toLocaleTimeString() + ": what is shown here is from then.";
    else if (Object.keys(waiting).length) text = "Text is selected: changes are shown after that.";
    if (word.textContent !== text) word.textContent = text;
    word.hidden = !text;
  };
  const name = (one) => one.getAttribute("href") || one.getAttribute("aria-label");
  const likes = (wanted) => [...part.querySelectorAll("a[href], .scroll")].filter((one) => name(one) === wanted);
  const show = () => {
    if (!Object.keys(waiting).length || isSelected()) return;  // somebody copies
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
  const wait = (what, ms) => { clearTimeout(timer); timer = setTimeout(what, ms); };
  const lose = () => { lost = true; say(); };
  const quiet = () => { lose(); open(); };  // a connection may die without a word
  const open = () => {
    if (source) source.close();
    source = new EventSource(part.dataset.from);
    wait(quiet, quietMs);
    source.onerror = () => {
      lose();
      if (source.readyState === EventSource.CLOSED) wait(open, 10000);
    };
    source.onmessage = (event) => {
      heard = new Date();
      lost = false;
      wait(quiet, quietMs);
      Object.assign(waiting, JSON.parse(event.data));
      show();
      say();
    };
  };
  document.addEventListener("selectionchange", () => { show(); say(); });
  // A page that nobody sees needs no stream; browsers allow few for one address.
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) open();
    else if (source) { source.close(); clearTimeout(timer); }
  });
  if (!document.hidden) open();
})();
