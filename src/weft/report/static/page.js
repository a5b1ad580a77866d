// Theme, copying, and which section is in sight.
(() => {
  "use strict";
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const order = ["auto", "light", "dark"];
  const stored = () => { try { return localStorage.getItem("weft-theme"); } catch { return null; } };
  const show = (theme) => {
    if (theme === "auto") root.removeAttribute("data-theme"); else root.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
    try { localStorage.setItem("weft-theme", theme); } catch { /* a page in a sandbox has no storage */ }
    root.dispatchEvent(new Event("themechange"));
  };
  let theme = order.includes(stored()) ? stored() : "auto";
  button.hidden = false;
  button.addEventListener("click", () => show(theme = order[(order.indexOf(theme) + 1) % order.length]));
  show(theme);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => root.dispatchEvent(new Event("themechange")));

  for (const copy of document.querySelectorAll("button[data-copy]")) {
    copy.hidden = false;
    copy.addEventListener("click", async () => {
      const text = copy.parentElement.querySelector("code");
      try { await navigator.clipboard.writeText(text.textContent); copy.textContent = "Copied"; }
      catch { getSelection().selectAllChildren(text); copy.textContent = "Selected"; }
      setTimeout(() => { copy.textContent = "Copy"; }, 1500);
    });
  }

  const links = [...document.querySelectorAll(".sections a")];
  const targets = links.map((link) => document.querySelector(link.getAttribute("href")));
  const mark = () => {
    let now = 0;
    targets.forEach((target, i) => { if (target && target.getBoundingClientRect().top < innerHeight / 3) now = i; });
    if (scrollY + innerHeight >= document.body.scrollHeight - 2) now = links.length - 1;
    links.forEach((link, i) => { if (i === now) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current"); });
  };
  addEventListener("scroll", mark, { passive: true });
  mark();
})();
