"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  const one = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const SVG = "http://www.w3.org/2000/svg";

  /* Light or dark: as the system has it, until somebody says otherwise. */
  const theme = one("#theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const tellTheme = () => theme.setAttribute("aria-pressed", String(isDark()));
  theme.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    tellTheme();
  });
  system.addEventListener("change", tellTheme);
  tellTheme();

  /* The table of tests: filter, sort, and not all rows at once. */
  const FIRST = 40;
  const table = one("#table");
  if (table) setUpTable(table);

  /** @param {HTMLTableElement} table */
  function setUpTable(table) {
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
    const box = one("#filter");
    const more = one("#more");
    const said = one("#said");
    const chips = all("[data-word]", one(".tools"));
    let word = "";
    let showAll = false;

    function show() {
      const wanted = box.value.toLowerCase().split(/\s+/).filter(Boolean);
      const limited = !showAll && !word && !wanted.length;
      let hits = 0;
      for (const row of body.rows) {
        const text = texts.get(row);
        const fits = (!word || row.dataset.word === word) && wanted.every((w) => text.includes(w));
        hits += Number(fits);
        row.hidden = !fits || (limited && hits > FIRST);
      }
      more.hidden = !limited || hits <= FIRST;
      more.textContent = `Show ${hits - FIRST} more`;
      said.textContent = `${hits} of ${rows.length} profiles`;
    }

    /** @param {HTMLTableCellElement} head */
    function sortBy(head) {
      const at = head.cellIndex;
      const byNumber = head.dataset.sort === "n";
      const before = head.getAttribute("aria-sort");
      const down = before ? before === "ascending" : byNumber;
      for (const other of all("th", table)) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = byNumber
        ? (row) => Number(row.cells[at].dataset.k)
        : (row) => row.cells[at].textContent.trim();
      const compare = byNumber ? (a, b) => key(a) - key(b) : (a, b) => key(a).localeCompare(key(b));
      body.append(...rows.slice().sort((a, b) => (down ? compare(b, a) : compare(a, b))));
      show();
    }

    for (const head of all("th[data-sort]", table)) {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => sortBy(head));
    }
    for (const chip of chips) {
      chip.addEventListener("click", () => {
        word = word === chip.dataset.word ? "" : chip.dataset.word;
        for (const c of chips) c.setAttribute("aria-pressed", String(c.dataset.word === word));
        show();
      });
    }
    more.addEventListener("click", () => {
      showAll = true;
      show();
      body.rows[FIRST]?.querySelector("a")?.focus();
    });
    box.addEventListener("input", show);
    addEventListener("beforeprint", () => {
      showAll = true;
      show();
    });
    document.addEventListener("keydown", (event) => {
      const typing = document.activeElement instanceof HTMLInputElement;
      if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
        event.preventDefault();
        box.focus();
      } else if (event.key === "Escape" && document.activeElement === box) {
        box.value = "";
        show();
      }
    });
    show();
  }

  /* Details: not all at once, either; one that is linked to is shown. */
  const cases = all("details.case");
  const others = cases.slice(FIRST);
  const moreDetails = one("#more-details");
  function showDetails() {
    for (const other of others) other.hidden = false;
    moreDetails.hidden = true;
  }
  if (others.length) {
    for (const other of others) other.hidden = true;
    moreDetails.hidden = false;
    moreDetails.textContent = `Show ${others.length} more`;
    moreDetails.addEventListener("click", () => {
      showDetails();
      one("summary", others[0]).focus();
    });
    addEventListener("beforeprint", showDetails);
  }

  /* A link to a detail opens it; one to a full name shows that in place. */
  function openTarget() {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    if (!target) return;
    const details = target.closest("details");
    if (details) {
      details.hidden = false;
      details.open = true;
    }
    target.scrollIntoView();
    if (target === details) one("summary", target).focus({ preventScroll: true });
  }
  addEventListener("hashchange", openTarget);
  addEventListener("click", (event) => {
    const link = event.target instanceof Element && event.target.closest("a");
    if (!link) return;
    if (link.classList.contains("full")) {
      event.preventDefault();
      showFull(link);
    } else if (link.hash && link.hash === location.hash) {
      event.preventDefault();
      openTarget();
    }
  });
  for (const link of all("a.full")) link.setAttribute("aria-expanded", "false");

  /** @param {HTMLAnchorElement} link */
  function showFull(link) {
    const next = link.nextElementSibling;
    if (next?.classList.contains("shown")) {
      next.remove();
      link.setAttribute("aria-expanded", "false");
      return;
    }
    const name = document.createElement("code");
    name.className = "shown";
    name.textContent = document.getElementById(link.hash.slice(1)).textContent;
    link.after(name);
    link.setAttribute("aria-expanded", "true");
  }

  /* Timelines: drawn anew for what is seen of them. */
  let known = null;
  const data = () => (known ??= JSON.parse(one("#data").textContent));
  const TOGETHER = 0.4;
  const NARROWEST = 0.8;
  const NARROW = 1.5;
  const MOST_ARROWS = 150;
  const MOST_LABELS = 400;
  const LETTER = 5.9;
  const PREFIX = /^(aten::|torch::autograd::|autograd::)/;

  /** @param {number} us */
  function time(us) {
    if (us < 999.95) return `${us.toFixed(1)}us`;
    return us < 999950 ? `${(us / 1e3).toFixed(2)}ms` : `${(us / 1e6).toFixed(2)}s`;
  }

  /** @param {string} words */
  function letters(words) {
    let width = 0;
    for (const c of words) width += c < "\u0080" ? LETTER : 2 * LETTER;
    return width;
  }

  /** The boxes of a row: where, start, duration, name, label, whether marked. */
  function boxesOf([middle, numbers, marked], kind) {
    const { names } = data();
    const found = [];
    const has = kind.startsWith("box stream");
    const isWritten = kind.startsWith("box thread");
    let start = 0;
    for (let i = 0; i < numbers.length; i += has ? 4 : 3) {
      start += numbers[i];
      const name = names[numbers[i + 2]];
      const label = has ? names[numbers[i + 3]] : isWritten ? name.replace(PREFIX, "") : "";
      found.push([middle, start, numbers[i + 1], name, label, 0]);
    }
    for (const i of marked) found[i][5] = 1;
    return found;
  }

  /** Arrows between two heights: from when, to when, the heights, whether marked. */
  function arrowsOf([top, bottom, numbers, marked]) {
    const found = [];
    let start = 0;
    for (let i = 0; i < numbers.length; i += 2) {
      start += numbers[i];
      found.push([start, start + numbers[i + 1], top, bottom, 0]);
    }
    for (const i of marked) found[i][4] = 1;
    return found;
  }

  /** @param {string} name of its class */
  function group(name) {
    const element = document.createElementNS(SVG, "g");
    element.setAttribute("class", name);
    return element;
  }

  /** @param {string} name of its class @param {Element} behind what it lies */
  function path(name, behind) {
    const element = document.createElementNS(SVG, "path");
    element.setAttribute("class", name);
    behind.before(element);
    return element;
  }

  /** A timeline that zooms. @param {HTMLElement} figure */
  function setUpTimeline(figure) {
    const { width, gutter, timelines } = data();
    const found = timelines[figure.dataset.place];
    if (!found) return;
    const svg = one(".timeline", figure);
    const plot = one(".plot", figure);
    const paths = all(".box", figure);
    const labels = one(".labels", figure);
    const gaps = one(".gaps", figure);
    const axis = one(".axis", figure);
    const plain = one(".arrows", figure);
    const marked = one(".arrows.marked", figure) ?? path("arrows marked", paths[0] ?? labels);
    const rings = one(".rings", figure) ?? path("rings", labels);
    const written = new Map(["plain", "on-dark", "on-light"].map((tone) => [tone, group(tone)]));
    const pointed = one(".pointed", figure);
    const height = svg.viewBox.baseVal.height;
    const room = width - 4 - gutter;
    const span = found.length;
    const US = found.parts;
    const kinds = paths.map((path) => path.getAttribute("class"));
    const lanes = all(".names text", figure).map((t) => [Number(t.getAttribute("y")), t.textContent]);
    const boxes = found.paths.map((rows, i) => rows.flatMap((row) => boxesOf(row, kinds[i])));
    const arrows = found.arrows.flatMap(arrowsOf);
    let from = 0;
    let to = span;
    let hits = [];

    const x = (t) => gutter + ((t - from) / (to - from)) * room;
    const thickness = (kind) =>
      kind.includes("stream") ? 20 : kind.includes("thread") ? 13 : kind.includes("calls") ? 11 : 8;

    function text(into, at, y, words) {
      if (into.childElementCount >= MOST_LABELS) return;
      const element = document.createElementNS(SVG, "text");
      element.setAttribute("x", at.toFixed(1));
      element.setAttribute("y", y);
      element.textContent = words;
      into.append(element);
    }

    /** What is seen of a kind of boxes: wide ones as they are, of narrow ones their pixels. */
    function place(which, spans, pixels) {
      const kind = kinds[which];
      const thick = thickness(kind);
      const isIdle = kind.includes("idle");
      const tone = /k-(gemm|fused|other)/.test(kind) ? "on-dark" : kind.includes("k-") ? "on-light" : "plain";
      for (const [middle, start, lasts, name, label, isMarked] of boxes[which]) {
        if (start + lasts < from || start > to) continue;
        const left = Math.max(x(start), gutter - 4);
        const right = Math.min(x(start + lasts), width + 4);
        const wide = Math.max(right - left > 2 ? right - left - 0.6 : right - left, NARROWEST);
        hits.push([middle, thick, left, wide, name, lasts, label]);
        if (isMarked) ringed.push(`M${left} ${middle - 10}h${wide}v20h${-wide}z`);
        if (wide < NARROW) {
          const at = `${middle} ${Math.floor(left)}`;
          if (!pixels.has(at)) pixels.set(at, new Map());
          const times = pixels.get(at);
          times.set(which, (times.get(which) ?? 0) + lasts);
          continue;
        }
        row(spans, which, middle).push([left, wide]);
        if (isIdle) {
          if (wide > 46) text(gaps, left + 2, middle + 15, time(lasts / US));
        } else if (label && wide > letters(label) + 6) {
          text(written.get(tone), left + 3, middle + 3.5, label);
        }
      }
    }

    function row(spans, which, middle) {
      const rows = spans[which];
      if (!rows.has(middle)) rows.set(middle, []);
      return rows.get(middle);
    }

    /** Of boxes that share a pixel, the kind that takes most of its time has it. */
    function settle(spans, pixels) {
      for (const [at, times] of pixels) {
        const [middle, pixel] = at.split(" ").map(Number);
        const [which] = [...times].reduce((a, b) => (b[1] > a[1] ? b : a));
        row(spans, which, middle).push([pixel, 1]);
      }
    }

    function drawn(rows) {
      let path = "";
      for (const [middle, spans] of rows) {
        spans.sort((a, b) => a[0] - b[0]);
        let left = -Infinity;
        let right = -Infinity;
        const flush = () => {
          if (right > left) path += `M${left.toFixed(1)} ${middle}h${(right - left).toFixed(1)}`;
        };
        for (const [start, wide] of spans) {
          if (start <= right + TOGETHER && wide < 2) {
            right = Math.max(right, start + wide);
          } else {
            flush();
            left = start;
            right = start + wide;
          }
        }
        flush();
      }
      return path;
    }

    function drawArrows() {
      const seen = [];
      for (const [start, end, top, bottom, isMarked] of arrows) {
        if (Math.max(start, end) < from || Math.min(start, end) > to) continue;
        seen.push([x(start), x(end), top, bottom, isMarked]);
      }
      const tooMany = seen.length > MOST_ARROWS;
      const curves = ["", ""];
      for (const [a, b, top, bottom, isMarked] of seen) {
        if (tooMany && !isMarked) continue;
        const bend = Math.min(17, (bottom - top) / 2);
        curves[isMarked] += `M${a} ${top}C${a} ${top + bend} ${b} ${bottom - bend} ${b} ${bottom}`;
      }
      plain.setAttribute("d", curves[0]);
      marked.setAttribute("d", curves[1]);
    }

    function drawAxis() {
      axis.replaceChildren();
      const rough = (to - from) / 9;
      const power = 10 ** Math.floor(Math.log10(rough));
      const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough);
      const [scale, unit] = span >= 2e4 * US ? [1e3 * US, "ms"] : [US, "us"];
      const line = document.createElementNS(SVG, "path");
      line.setAttribute("class", "grid");
      axis.append(line);
      let drawn = "";
      for (let i = Math.ceil(from / step); i * step <= to; i++) {
        const at = x(i * step);
        drawn += `M${at} 18V${height - 4}`;
        if (at < width - 44) {
          const words = `${Number(((i * step) / scale).toPrecision(6))}${i ? unit : ""}`;
          text(axis, at + 3, 12, words);
        }
      }
      line.setAttribute("d", drawn);
    }

    let ringed = [];
    let waiting = 0;
    function draw() {
      waiting = 0;
      hits = [];
      ringed = [];
      labels.replaceChildren(...written.values());
      for (const group of written.values()) group.replaceChildren();
      gaps.replaceChildren();
      const spans = paths.map(() => new Map());
      const pixels = new Map();
      for (let i = 0; i < paths.length; i++) place(i, spans, pixels);
      settle(spans, pixels);
      paths.forEach((path, i) => path.setAttribute("d", drawn(spans[i])));
      rings.setAttribute("d", ringed.slice(0, MOST_LABELS).join(""));
      drawArrows();
      drawAxis();
      figure.dataset.from = String(from / US);
      figure.dataset.to = String(to / US);
    }

    function look(start, end) {
      const wide = Math.min(span, Math.max(US / 10, end - start));
      from = Math.min(Math.max(0, start), span - wide);
      to = from + wide;
      waiting ||= requestAnimationFrame(draw);
    }
    const zoom = (by, around = (from + to) / 2) =>
      look(around - (around - from) * by, around + (to - around) * by);
    const move = (share) => look(from + (to - from) * share, to + (to - from) * share);
    const fit = () => look(0, span);
    const placeOf = (event) => {
      const box = svg.getBoundingClientRect();
      return [
        ((event.clientX - box.left) / box.width) * width,
        ((event.clientY - box.top) / box.height) * height,
      ];
    };
    const timeAt = (event) => from + ((placeOf(event)[0] - gutter) / room) * (to - from);

    const bar = document.createElement("div");
    bar.className = "zoom js";
    for (const [sign, what, act] of [
      ["−", "Zoom out", () => zoom(1.6)],
      ["+", "Zoom in", () => zoom(0.625)],
      ["Fit", "Fit: show the whole round", fit],
    ]) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = sign;
      button.setAttribute("aria-label", what);
      button.addEventListener("click", act);
      bar.append(button);
    }
    figure.prepend(bar);

    svg.addEventListener(
      "wheel",
      (event) => {
        if (!event.ctrlKey && !event.metaKey) return;
        event.preventDefault();
        zoom(event.deltaY > 0 ? 1.2 : 1 / 1.2, timeAt(event));
      },
      { passive: false },
    );
    let held = null;
    plot.addEventListener("pointerdown", (event) => {
      if (event.pointerType !== "mouse" || event.button) return;
      held = [event.clientX, from, to];
      svg.setPointerCapture(event.pointerId);
      svg.classList.add("dragging");
    });
    svg.addEventListener("pointermove", (event) => {
      if (held) {
        const [at, start, end] = held;
        const moved = ((at - event.clientX) / svg.getBoundingClientRect().width) * width;
        const by = (moved / room) * (end - start);
        look(start + by, end + by);
        return;
      }
      const [px, py] = placeOf(event);
      const hit = hits.find(
        ([middle, thick, left, wide]) =>
          Math.abs(py - middle) <= thick / 2 && px >= left - 1 && px <= left + wide + 1,
      );
      pointed.textContent = hit ? wordsOf(hit) : "";
    });
    const letGo = () => {
      held = null;
      svg.classList.remove("dragging");
    };
    svg.addEventListener("pointerup", letGo);
    svg.addEventListener("pointercancel", letGo);
    svg.addEventListener("dblclick", (event) => zoom(0.4, timeAt(event)));

    function wordsOf([middle, , , , name, lasts, label]) {
      const lane = lanes.filter(([y]) => y <= middle + 8).pop();
      const by = label && !name.endsWith(label) ? `, ${label}` : "";
      return `${name}: ${time(lasts / US)}${by}${lane ? ` · ${lane[1]}` : ""}`;
    }

    draw();
    one(".scroll", figure).addEventListener("keydown", (event) => {
      const acts = {
        "+": () => zoom(0.625),
        "=": () => zoom(0.625),
        "-": () => zoom(1.6),
        0: fit,
        ArrowLeft: () => move(-0.125),
        ArrowRight: () => move(0.125),
      };
      const act = acts[event.key];
      if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      act();
    });
  }

  const awake = new Set();
  function wake(details) {
    if (!details.open) return;
    makeReachable(details);
    const figure = one(".tl", details);
    if (!figure || awake.has(figure)) return;
    awake.add(figure);
    setUpTimeline(figure);
  }
  /** What scrolls sideways can be reached by the keyboard, and says what it is. */
  function makeReachable(within) {
    for (const box of all(".scroll:not([tabindex])", within)) {
      if (!box.clientWidth || box.scrollWidth <= box.clientWidth) continue;
      box.tabIndex = 0;
      box.setAttribute("role", "region");
      const head = one("h2, h4", box.parentElement) ?? box.parentElement;
      box.setAttribute("aria-label", `${head.textContent.trim().slice(0, 80)}, scrolls sideways`);
    }
  }
  addEventListener("resize", () => makeReachable(document));
  makeReachable(document);
  for (const details of cases) {
    details.addEventListener("toggle", () => wake(details));
    wake(details);
  }
  openTarget();
})();
