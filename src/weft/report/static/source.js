// The source: a finding brings its line into the middle, j and k go from one to the next.
(() => {
  "use strict";
  const view = document.getElementById("source-view");
  if (!view) return;
  const links = [...document.querySelectorAll(".findings a")];
  const rowOf = (link) => document.getElementById(link.getAttribute("href").slice(1));
  const choose = (link, smooth) => {
    links.forEach((each) => each.classList.toggle("chosen", each === link));
    view.querySelectorAll("tr.chosen").forEach((row) => row.classList.remove("chosen"));
    const row = rowOf(link);
    row.classList.add("chosen");
    const top = row.getBoundingClientRect().top - view.getBoundingClientRect().top + view.scrollTop;
    view.scrollTo({ top: top - view.clientHeight / 3, behavior: smooth ? "smooth" : "instant" });
  };
  links.forEach((link) => link.addEventListener("click", (event) => { event.preventDefault(); choose(link, true); }));
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, canvas")) return;
    const step = { j: 1, k: -1 }[event.key];
    if (!step || !links.length) return;
    const at = links.findIndex((link) => link.classList.contains("chosen"));
    const next = links[(at + step + links.length) % links.length];
    next.focus({ preventScroll: true });
    document.getElementById("source").scrollIntoView();
    choose(next, true);
  });
  for (const link of document.querySelectorAll("a[data-line]")) link.addEventListener("click", (event) => {
    const found = links.find((each) => each.getAttribute("href") === link.getAttribute("href"));
    if (found) { event.preventDefault(); document.getElementById("source").scrollIntoView(); choose(found, false); }
  });
  const lit = links.find((link) => rowOf(link).classList.contains("cause")) || links[0];
  if (lit) choose(lit, false);
})();
