// A search: choosing a candidate in the tree, in the chart or in a table; filtering what was learnt.
(() => {
  "use strict";
  const cards = document.getElementById("cards");
  if (!cards) return;
  const nodes = [...document.querySelectorAll("#lineage-chart .node")];
  const everywhere = [...document.querySelectorAll("[data-candidate]")];
  const nodeOf = (id) => nodes.find((node) => node.dataset.candidate === String(id));
  let chosen = null;
  function choose(id, { focus = false, scroll = false } = {}) {
    const card = document.getElementById(`c${id}`), node = nodeOf(id);
    if (!card || !node) return;
    chosen = String(id);
    cards.querySelectorAll(".chosen").forEach((each) => each.classList.remove("chosen"));
    card.classList.add("chosen");
    cards.scrollTop = 0;
    everywhere.forEach((each) => each.classList.toggle("chosen", each.dataset.candidate === chosen));
    nodes.forEach((each) => each.setAttribute("aria-current", String(each === node)));
    const tree = document.getElementById("tree");
    const x = Number(node.dataset.x), y = Number(node.dataset.y);
    if (x < tree.scrollLeft + 40 || x > tree.scrollLeft + tree.clientWidth - 110) tree.scrollLeft = x - tree.clientWidth / 2;
    if (y < tree.scrollTop + 30 || y > tree.scrollTop + tree.clientHeight - 30) tree.scrollTop = y - tree.clientHeight / 2;
    if (scroll) document.getElementById("lineage").scrollIntoView();
    if (focus) node.focus({ preventScroll: true });
  }
  document.documentElement.classList.add("scripted");
  everywhere.forEach((each) => each.addEventListener("click", (event) => {
    event.preventDefault();
    choose(each.dataset.candidate, { scroll: !each.closest("#lineage") });
  }));
  const steps = {
    ArrowLeft: (node) => node.dataset.parents.split(" ").filter(Boolean)[0],
    ArrowRight: (node) => nodes.find((each) => each.dataset.parents.split(" ")[0] === node.dataset.candidate)?.dataset.candidate,
    ArrowUp: (node) => beside(node, -1), ArrowDown: (node) => beside(node, 1),
  };
  function beside(node, step) {
    const column = nodes.filter((each) => each.dataset.x === node.dataset.x).sort((a, b) => Number(a.dataset.y) - Number(b.dataset.y));
    return column[column.indexOf(node) + step]?.dataset.candidate;
  }
  nodes.forEach((node) => node.addEventListener("keydown", (event) => {
    const next = steps[event.key]?.(node);
    if (event.key in steps) event.preventDefault();
    if (next) choose(next, { focus: true });
  }));

  const filter = document.getElementById("proof");
  if (filter) {
    filter.hidden = false;
    filter.addEventListener("change", (event) => {
      for (const row of document.querySelectorAll("#insight-rows tr")) row.hidden = event.target.value !== "all" && row.dataset.proof !== event.target.value;
    });
  }
  const best = document.querySelector("#lineage-chart .mark.winner") || document.querySelector("#lineage-chart .mark.elite");
  choose((best ? best.closest(".node") : nodes[0]).dataset.candidate);
})();
