// The error map: painted on a canvas, read by pointer and by keyboard.
(() => {
  "use strict";
  const data = document.getElementById("map-data");
  const canvas = document.getElementById("map-canvas");
  if (!data || !canvas) return;
  const maps = JSON.parse(data.textContent);
  const context = canvas.getContext("2d");
  const select = document.getElementById("map-slice");
  const out = (name) => document.getElementById(`map-${name}`);
  const UNSEEN = 254, BROKEN = 255, TOP = 250, KNEE = 90;
  const bytes = (text) => Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  const probe = document.createElement("i");
  probe.hidden = true;
  document.body.append(probe);
  const colour = (name) => { probe.style.color = `var(--${name})`; return getComputedStyle(probe).color; };
  const channels = (text) => text.match(/[\d.]+/g).slice(0, 3).map(Number);

  let map = maps[0], slice = map.first, row = 0, column = 0, levels, exact = null, cell = { w: 1, h: 1 };
  const MARGIN = { left: 40, top: 6, right: 58, bottom: 34 };

  for (const each of maps) each.slices = each.slices.map((one) => ({ ...one, levels: bytes(one.levels) }));

  const error = (level) => {
    if (level === 0) return 0;
    if (!map.relative) return 10 ** (map.low + ((level - 1) / (TOP - 1)) * (map.high - map.low));
    if (level <= KNEE) return 10 ** (map.low * (1 - (level - 1) / (KNEE - 1)));
    return 10 ** (((level - KNEE - 1) / (TOP - KNEE - 1)) * map.high);
  };
  const number = (value) => (Number.isFinite(value) ? Number(value.toPrecision(4)).toString() : String(value));

  const short = (value) => (value < 1e-3 ? value.toExponential(0) : Number(value.toPrecision(2)).toString());

  function worst() {
    let best = -1;
    levels.forEach((level, i) => { const rank = level === UNSEEN ? -1 : level; if (rank > best) { best = rank; row = Math.floor(i / map.columns); column = i % map.columns; } });
  }
  function choose(which, index) {
    map = which; slice = index; levels = map.slices[slice].levels;
    const floats = (text) => (text ? new Float32Array(bytes(text).buffer) : null);
    exact = map.actual && slice === map.first ? { actual: floats(map.actual), expected: floats(map.expected), limits: floats(map.limits) } : null;
    select.replaceChildren(...map.slices.map((one, i) => new Option(`${one.label} · worst ${one.worst}`, i, false, i === slice)));
    out("about").textContent = map.about;
    const times = map.relative ? "×" : "";
    out("low").textContent = times + short(10 ** map.low); out("high").textContent = times + short(10 ** map.high);
    out("middle").textContent = map.relative ? "limit" : "|error|";
    out("knee").toggleAttribute("hidden", !map.relative);
    out("key-warp").hidden = !map.warps.length; out("key-tile").hidden = !map.tiles.length;
    worst(); paint(); read();
  }
  function ramp() {
    const stops = [0, 1, 2, 3, 4, 5].map((i) => channels(colour(`ramp-${i}`)));
    const table = new Uint8ClampedArray(256 * 3);
    for (let level = 0; level <= TOP; level += 1) {
      const at = (level / TOP) * 5, i = Math.min(4, Math.floor(at)), part = at - i;
      for (let c = 0; c < 3; c += 1) table[level * 3 + c] = stops[i][c] + (stops[i + 1][c] - stops[i][c]) * part;
    }
    table.set(channels(colour("unseen")), UNSEEN * 3);
    table.set(channels(colour("nan")), BROKEN * 3);
    return table;
  }
  function paint() {
    const room = canvas.parentElement.clientWidth - 2 * parseFloat(getComputedStyle(canvas.parentElement).paddingLeft);
    const wide = Math.max(1, room - MARGIN.left - MARGIN.right);
    cell.w = Math.min(40, wide / map.columns);
    if (cell.w > 3) cell.w = Math.floor(cell.w);
    cell.h = Math.max(1, Math.min(Math.max(cell.w, 4), 24, Math.floor(520 / map.rows)));
    const width = MARGIN.left + MARGIN.right + cell.w * map.columns, height = MARGIN.top + MARGIN.bottom + cell.h * map.rows;
    const ratio = devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`; canvas.style.height = `${height}px`;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);

    const table = ramp(), image = new ImageData(map.columns, map.rows);
    levels.forEach((level, i) => { image.data.set(table.subarray(level * 3, level * 3 + 3), i * 4); image.data[i * 4 + 3] = 255; });
    const small = document.createElement("canvas");
    small.width = map.columns; small.height = map.rows;
    small.getContext("2d").putImageData(image, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(small, MARGIN.left, MARGIN.top, cell.w * map.columns, cell.h * map.rows);

    lines(); axes(); cursor();
  }
  const x = (element) => MARGIN.left + (element / map.acrossPerCell) * cell.w;
  const y = (element) => MARGIN.top + (element / map.downPerCell) * cell.h;
  function stroke(points, style, width, dash) {
    context.save(); context.strokeStyle = style; context.lineWidth = width; context.setLineDash(dash || []);
    context.beginPath(); points.forEach(([px, py], i) => (i ? context.lineTo(px, py) : context.moveTo(px, py))); context.stroke(); context.restore();
  }
  function lines() {
    const right = MARGIN.left + cell.w * map.columns, bottom = MARGIN.top + cell.h * map.rows;
    const ink = colour("ink"), accent = colour("accent"), page = colour("surface");
    context.font = `10px ${getComputedStyle(document.body).fontFamily}`; context.textBaseline = "middle"; context.textAlign = "left";
    const last = map.rows * map.downPerCell;
    const edges = [0, ...map.tiles, last];
    if (map.tiles.length) {
      edges.slice(1).forEach((edge, i) => {
        const high = y(Math.min(edge, last)) - y(edges[i]);
        if (i + 1 < edges.length - 1) { stroke([[MARGIN.left, y(edge)], [right, y(edge)]], page, 2.5); stroke([[MARGIN.left - 4, y(edge)], [right + 4, y(edge)]], ink, 1); }
        context.fillStyle = colour("quiet");
        if (high >= 11) context.fillText(`tile ${i}`, right + (map.warps.length ? 27 : 7), y(edges[i]) + high / 2);
      });
    }
    if (slice === map.first) {
      let from = 0;
      map.warps.forEach((warp, i) => {
        if (i + 1 < map.warps.length && map.warps[i + 1] === warp) return;
        if (warp !== null) {
          const middle = (y(from) + y(i + 1)) / 2;
          context.fillStyle = accent;
          if (y(i + 1) - y(from) >= 8) context.fillText(`w${warp}`, right + 5, middle);
          if (i + 1 < map.warps.length && map.warps[i + 1] !== null && !map.tiles.includes(i + 1)) { stroke([[MARGIN.left, y(i + 1)], [right, y(i + 1)]], page, 2); stroke([[MARGIN.left, y(i + 1)], [right + 3, y(i + 1)]], accent, 1.2, [4, 3]); }
        }
        from = i + 1;
      });
      for (const edge of map.warpColumns) { stroke([[x(edge), MARGIN.top], [x(edge), bottom]], page, 2); stroke([[x(edge), MARGIN.top], [x(edge), bottom]], accent, 1.2, [4, 3]); }
    }
    stroke([[MARGIN.left - .5, MARGIN.top], [MARGIN.left - .5, bottom + .5], [right, bottom + .5]], colour("line-strong"), 1);
  }
  function ticks(count, per, pixels, gap) {
    let step = 1;
    for (const one of [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]) { step = one; if ((one / per) * pixels >= gap) break; }
    return Array.from({ length: Math.ceil((count * per) / step) }, (_, i) => i * step);
  }
  function axes() {
    const bottom = MARGIN.top + cell.h * map.rows;
    context.fillStyle = colour("quiet"); context.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    context.textAlign = "right"; context.textBaseline = "middle";
    for (const tick of ticks(map.rows, map.downPerCell, cell.h, 22)) context.fillText(String(tick + map.firstRow), MARGIN.left - 7, y(tick) + Math.min(cell.h, 12) / 2);
    context.textAlign = "center"; context.textBaseline = "top";
    for (const tick of ticks(map.columns, map.acrossPerCell, cell.w, 30)) context.fillText(String(tick + map.firstColumn), x(tick) + cell.w / 2, bottom + 5);
    context.fillText(map.columnName, MARGIN.left + (cell.w * map.columns) / 2, bottom + 20);
    context.save(); context.translate(7, MARGIN.top + (cell.h * map.rows) / 2); context.rotate(-Math.PI / 2); context.textBaseline = "middle"; context.fillText(map.rowName, 0, 0); context.restore();
  }
  function cursor() {
    const left = MARGIN.left + column * cell.w, top = MARGIN.top + row * cell.h, w = Math.max(cell.w, 5), h = Math.max(cell.h, 5);
    context.lineWidth = 4; context.strokeStyle = colour("surface"); context.strokeRect(left - 1, top - 1, w + 2, h + 2);
    context.lineWidth = 2; context.strokeStyle = colour("accent"); context.strokeRect(left - 1, top - 1, w + 2, h + 2);
  }
  const span = (first, per, cellAt) => { const from = first + cellAt * per; return per === 1 ? String(from) : `${from}–${from + per - 1}`; };
  function read() {
    const at = row * map.columns + column, level = levels[at], big = out("error");
    const seen = level !== UNSEEN, whole = level < UNSEEN;
    let value = seen ? "NaN or ∞" : "not observed", against = "";
    const beyond = level === BROKEN || (map.relative && seen && level > KNEE);
    if (whole && exact) {
      const size = Math.abs(exact.actual[at] - exact.expected[at]);
      value = number(size);
      if (exact.limits) against = ` of ${number(exact.limits[at])}: ${number(size / exact.limits[at])} times that`;
    } else if (whole) {
      const about = `${level > 1 ? "≈ " : "≤ "}${Number(error(Math.max(level, 1)).toPrecision(2))}`;
      value = map.relative ? `${about} × limit` : about;
    }
    big.textContent = value;
    big.classList.toggle("beyond", beyond);
    if (map.relative && seen) against = `${beyond ? "✕ beyond" : "✓ within"} its limit${against}`;
    out("against").textContent = against;
    out("row").textContent = span(map.firstRow, map.downPerCell, row);
    out("column").textContent = span(map.firstColumn, map.acrossPerCell, column);
    out("row-name").textContent = map.rowName; out("column-name").textContent = map.columnName;
    out("expected").textContent = exact ? number(exact.expected[at]) : "–";
    out("actual").textContent = exact ? number(exact.actual[at]) : "–";
    const element = row * map.downPerCell, tile = map.tiles.filter((edge) => edge <= element).length;
    out("tile").textContent = map.tiles.length ? String(tile) : "–";
    const warp = slice === map.first ? map.warps[element] : null;
    out("warp").textContent = warp === null || warp === undefined ? "–" : String(warp);
  }
  function move(down, across) {
    row = Math.max(0, Math.min(map.rows - 1, down)); column = Math.max(0, Math.min(map.columns - 1, across));
    paint(); read();
  }
  const jump = () => Math.max(1, Math.round((map.tiles[0] || 16 * map.downPerCell) / map.downPerCell));
  const keys = {
    ArrowUp: () => move(row - 1, column), ArrowDown: () => move(row + 1, column), ArrowLeft: () => move(row, column - 1), ArrowRight: () => move(row, column + 1),
    PageUp: () => move(row - jump(), column), PageDown: () => move(row + jump(), column), Home: () => move(row, 0), End: () => move(row, map.columns - 1),
    w: () => { worst(); paint(); read(); },
  };
  canvas.addEventListener("keydown", (event) => {
    const act = event.ctrlKey || event.metaKey || event.altKey ? undefined : keys[event.key];
    if (act) { event.preventDefault(); act(); }
  });
  const point = (event) => {
    const box = canvas.getBoundingClientRect();
    const across = Math.floor((event.clientX - box.left - MARGIN.left) / cell.w), down = Math.floor((event.clientY - box.top - MARGIN.top) / cell.h);
    if (across >= 0 && across < map.columns && down >= 0 && down < map.rows) move(down, across);
  };
  canvas.addEventListener("pointermove", (event) => { if (event.pointerType === "mouse") point(event); });
  canvas.addEventListener("pointerdown", point);
  select.addEventListener("change", () => choose(map, Number(select.value)));
  for (const radio of document.querySelectorAll("input[name='map']")) radio.addEventListener("change", () => choose(maps[Number(radio.value)], maps[Number(radio.value)].first));
  document.documentElement.addEventListener("themechange", paint);
  new ResizeObserver(paint).observe(canvas.parentElement);
  document.getElementById("map").hidden = false;
  choose(maps[0], maps[0].first);
})();
