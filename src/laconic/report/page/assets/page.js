"use strict";
// Reading points off charts, hiding series, and, on a live page, news without a reload. It loads nothing else.
(function () {
  const points = (plot) =>
    [...plot.querySelectorAll(".series:not(.off) .point")].map((el) => ({ el, at: Number(el.dataset.at) }));

  function show(plot, at) {
    const near = new Map();
    let best = null;
    for (const p of points(plot)) if (best === null || Math.abs(p.at - at) < Math.abs(best - at)) best = p.at;
    plot.querySelectorAll(".here").forEach((el) => el.classList.remove("here"));
    const cross = plot.querySelector(".cross");
    const readout = plot.parentElement.querySelector(".readout");
    if (best === null) {
      cross.setAttribute("visibility", "hidden");
      readout.textContent = "";
      return;
    }
    for (const p of points(plot)) if (p.at === best) near.set(p.el.parentElement.dataset.name, p.el);
    near.forEach((el) => el.classList.add("here"));
    cross.setAttribute("x1", best);
    cross.setAttribute("x2", best);
    cross.setAttribute("visibility", "visible");
    plot.dataset.at = best;
    const first = near.values().next().value;
    const label = plot.querySelector(".x-label").textContent;
    const values = [...near].map(([name, el]) => name + " " + el.dataset.y);
    readout.textContent = label + " " + first.dataset.x + ": " + values.join(", ");
  }

  function step(plot, key) {
    const places = [...new Set(points(plot).map((p) => p.at))].sort((a, b) => a - b);
    if (!places.length) return;
    const now = places.indexOf(Number(plot.dataset.at));
    const moves = { ArrowRight: now + 1, ArrowLeft: now < 0 ? places.length - 1 : now - 1, Home: 0, End: places.length - 1 };
    show(plot, places[Math.min(places.length - 1, Math.max(0, moves[key]))]);
  }

  document.addEventListener("keydown", (event) => {
    const plot = event.target.closest && event.target.closest(".plot");
    if (plot && ["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) {
      event.preventDefault();
      step(plot, event.key);
    }
  });

  document.addEventListener("pointermove", (event) => {
    const plot = event.target.closest && event.target.closest(".plot");
    if (!plot) return;
    const svg = plot.querySelector("svg"), box = svg.getBoundingClientRect();
    show(plot, ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width);
  });

  document.addEventListener("click", (event) => {
    const button = event.target.closest && event.target.closest(".legend button");
    if (!button) return;
    const entry = button.parentElement, figure = button.closest("figure");
    const series = figure.querySelectorAll(".plot .series")[[...entry.parentElement.children].indexOf(entry)];
    const on = button.getAttribute("aria-pressed") === "false";
    button.setAttribute("aria-pressed", String(on));
    series.classList.toggle("off", !on);
  });

  // On paper nothing can be unfolded: the settings are printed open.
  const settings = () => document.querySelector('details[data-key="settings"]');
  let opened = false;
  addEventListener("beforeprint", () => { opened = settings() && !settings().open; if (opened) settings().open = true; });
  addEventListener("afterprint", () => { if (opened) settings().open = false; });

  const address = document.body.dataset.live;
  if (address === undefined) return;
  const line = document.querySelector(".live"), known = new Map();
  let version = "", heard = Date.now();

  // A section is replaced when it changed. What the reader had opened, hidden or focused stays so.
  function replace(key, html) {
    const old = document.querySelector('[data-part="' + key + '"]');
    if (!old || known.get(key) === html) return;
    known.set(key, html);
    const active = document.activeElement;
    const inside = active && old.contains(active) ? [...old.querySelectorAll("*")].indexOf(active) : -1;
    const open = [...old.querySelectorAll("details[open]")].map((el) => el.dataset.key);
    const off = [...old.querySelectorAll('.legend button[aria-pressed="false"]')].map(named);
    old.outerHTML = html;
    const fresh = document.querySelector('[data-part="' + key + '"]');
    fresh.querySelectorAll("details").forEach((el) => { if (open.includes(el.dataset.key)) el.open = true; });
    fresh.querySelectorAll(".legend button").forEach((el) => { if (off.includes(named(el))) el.click(); });
    if (inside >= 0) { const again = fresh.querySelectorAll("*")[inside]; if (again) again.focus(); }
  }
  const named = (button) => button.closest("figure").dataset.chart + " " + button.textContent;

  async function ask() {
    try {
      const answer = await fetch(address + "?seen=" + version, { cache: "no-store" });
      if (!answer.ok) throw new Error(String(answer.status));
      const news = await answer.json();
      heard = Date.now();
      if (news.version !== version) {
        version = news.version;
        if (Object.keys(news.parts).some((key) => !document.querySelector('[data-part="' + key + '"]'))) {
          location.reload(); // one run has become several: another page
          return;
        }
        for (const [key, html] of Object.entries(news.parts)) replace(key, html);
      }
      line.classList.remove("lost");
      line.textContent = "Live: " + news.state;
    } catch (error) {
      line.classList.add("lost");
      line.textContent = "laconic watch has ended or cannot be reached; the page is as of " + new Date(heard).toLocaleTimeString();
    }
    setTimeout(ask, 1000);
  }
  ask();
})();
