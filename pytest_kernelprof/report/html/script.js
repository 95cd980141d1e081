"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  const one = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const SVG = "http://www.w3.org/2000/svg";

  /** An element with attributes and what is in it. */
  function make(tag, attributes = {}, ...inside) {
    const svg = /^(svg|g|path|text)$/.test(tag);
    const element = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...inside);
    return element;
  }

  function button(words, act, attributes = {}) {
    const element = make("button", { type: "button", ...attributes }, words);
    element.addEventListener("click", act);
    return element;
  }

  const HOVERS = matchMedia("(hover: hover)").matches; // with a mouse, and mostly with keys
  const isNarrow = matchMedia("(max-width: 900px)");

  /* Light or dark: as the system has it, until somebody says otherwise. */
  const theme = one("#theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const tellTheme = () => (theme.textContent = isDark() ? "Light" : "Dark");
  theme.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    tellTheme();
  });
  system.addEventListener("change", tellTheme);
  tellTheme();

  /* Commands can be copied; where the browser does not allow that, they are selected. */
  async function copyText(words, shown, pressed) {
    const before = [...pressed.childNodes];
    if (pressed.textContent === "Copied") return;
    try {
      await navigator.clipboard.writeText(words);
      pressed.replaceChildren("Copied");
      setTimeout(() => pressed.replaceChildren(...before), 1500);
    } catch {
      shown.classList.add("seen");
      getSelection().selectAllChildren(shown);
    }
  }
  addEventListener("click", ({ target }) => {
    const command = target instanceof Element && target.closest("button.copy")?.previousElementSibling;
    if (command) copyText(command.textContent, command, target.closest("button"));
  });
  /* So can lines of code that lead nowhere, with the path of their file. */
  for (const code of all("code.at")) {
    const words = code.dataset.at ?? code.textContent;
    const press = button("", () => copyText(words, code, press), { class: "at", title: `Copy ${words}` });
    code.replaceWith(press);
    press.append(code);
  }
  /* The tables of tests: filter, sort, and of each group only some rows at once. */
  const box = one("#filter");
  const chips = all(".tools [data-word]");
  const FIRST = 40;
  const MOST_KERNELS = 8;
  let word = "";
  const tables = all("table.tests").map(setUpTable);
  if (tables.length) setUpTools();

  function setUpTools() {
    const show = () => {
      const found = tables.map((table) => table.show());
      const [hits, rows] = [0, 1].map((i) => found.reduce((sum, each) => sum + each[i], 0));
      one("#said").textContent = `${hits} of ${rows} profiles`;
      one("#said").classList.toggle("sr", !word && !box.value.trim());
    };
    for (const chip of chips) {
      chip.addEventListener("click", () => {
        word = word === chip.dataset.word ? "" : chip.dataset.word;
        for (const each of chips) each.setAttribute("aria-pressed", String(each.dataset.word === word));
        show();
      });
    }
    box.addEventListener("input", show);
    if (HOVERS) box.placeholder += "   /"; // where there are keys
    addEventListener("beforeprint", () => {
      for (const table of tables) table.showAll();
      show();
      printDetails();
    });
    addEventListener("afterprint", () => one("#printed")?.remove());
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

  /** On paper nothing opens: of each cause one test stands in detail below the lists. */
  function printDetails() {
    one("#printed")?.remove();
    const failed = all(".tests .group + [data-word=failed]").filter((row) => one(".inside", row));
    for (const row of failed.slice(0, 6)) draw(one("details[id]", row));
    const parts = failed.map((row) => {
      const name = make("h3", {}, ...one("summary", row).cloneNode(true).childNodes);
      const inside = one(".inside > td > div", row).cloneNode(true);
      for (const press of all(".fold", inside)) press.replaceWith(...press.childNodes);
      const found = data().details[one("details", row).id];
      const rank = found?.drawn.find((each) => each.timeline);
      const place = one(".timeline-of", inside);
      /* With its name and its limits: a picture alone says nothing. */
      const head = make("div", { class: "kept" }, name, ...all(":scope > .part:has(> ul > li > .s)", inside));
      if (rank && place?.firstChild) {
        head.append(timelineOf(sceneOf(rank), rank.of, place.dataset.note, [], ON_PAPER));
      }
      place?.remove();
      /* What goes on over the page says of which test it is. */
      const named = name.textContent.trim().replace(/\s+/g, " ");
      for (const title of all("h3", inside)) title.append(make("small", {}, ` · ${named}`));
      return make("section", {}, head, ...inside.childNodes);
    });
    if (!parts.length) return;
    const heading = make("h2", {}, "One test per cause, in detail");
    one(".kept", parts[0]).prepend(heading);
    one("#tests").after(make("section", { id: "printed" }, ...parts));
  }

  /* At the foot of each printed page: the project, the verdict, when. */
  const foot = ["header.top b", "h1", "time"].map((place) => one(place)?.textContent.trim());
  const said = foot.filter(Boolean).join(" · ").replace(/\s+/g, " ").slice(0, 110);
  const paper = new CSSStyleSheet();
  paper.replaceSync(`@page { @bottom-left { content: ${JSON.stringify(said)}; } }`);
  document.adoptedStyleSheets = [paper];

  /** @param {HTMLTableElement} table */
  function setUpTable(table) {
    const headings = all("tbody.section, tbody.group, tbody.again", table);
    const rows = all("tbody[data-word]", table);
    const groups = [];
    let section = null;
    for (const body of table.tBodies) {
      if (body.className === "section") section = { body, groups: [] };
      else if (body.classList.contains("group")) {
        groups.push({ body, most: Number(body.dataset.most), rows: [], all: false });
        section.groups.push(groups.at(-1));
        groups.at(-1).section = section;
      } else if (body.className === "again") groups.at(-1).again = body;
      else groups.at(-1).rows.push(body);
    }
    const wide = table.tHead.rows[0].cells.length;
    for (const group of groups) {
      group.more = moreOf(group);
      group.all = group.rows.length <= 1.5 * group.most; // a short rest is not worth a button
    }
    const whole = { most: FIRST, rows, all: false };
    whole.more = moreOf(whole);
    table.append(whole.more);
    for (const group of groups) group.rows.at(-1).after(group.more);
    let isSorted = false;

    /** The button that shows the rest of a group. */
    function moreOf(group) {
      const act = () => {
        const [first] = group.rows.filter((row) => row.hidden);
        group.all = true;
        show();
        one("summary", first)?.focus();
      };
      const cell = make("td", { colspan: wide }, button("", act, { class: "more" }));
      return make("tbody", { class: "rest" }, make("tr", {}, cell));
    }

    /** What a row is found by: its test, why it fails, its kernels and their lines. */
    const texts = new Map();
    function textOf(group, row) {
      if (!texts.has(row)) {
        const found = [group.body, row.rows[0].cells[1], one(".why", row)];
        for (const each of all(".inside :not([data-kind=metrics]) > .scroll > table", row)) {
          const titles = all("th, td", each.tHead).map((cell) => cell.textContent);
          const names = all("td.c", each.tBodies[0]);
          found.push(...names.filter((cell) => !/called by|launched by/.test(titles[cell.cellIndex])));
        }
        texts.set(row, found.map((each) => each?.textContent ?? "").join(" ").toLowerCase());
      }
      return texts.get(row);
    }

    const owners = new Map(groups.flatMap((group) => group.rows.map((row) => [row, group])));
    const fits = (row, wanted) =>
      (!word || row.dataset.word === word) &&
      wanted.every((each) => textOf(owners.get(row), row).includes(each));

    /** Columns stay where they are while rows go. */
    const numbers = [...table.tHead.rows[0].cells].slice(2);
    function keepColumns(isKept) {
      const widths = numbers.map((head) => head.getBoundingClientRect().width);
      numbers.forEach((head, i) => {
        if (!isKept) head.style.minWidth = "";
        else if (widths[i] && !head.style.minWidth) head.style.minWidth = `${widths[i]}px`;
      });
    }
    addEventListener("resize", () => keepColumns(false));

    /** Returns how many rows there are to be seen, and how many there are. */
    function show() {
      const wanted = box.value.toLowerCase().split(/\s+/).filter(Boolean);
      const isFiltered = Boolean(word || wanted.length);
      if (isFiltered) keepColumns(true);
      let hits = 0;
      for (const group of [...groups, whole]) group.more.hidden = true;
      for (const group of isSorted ? [whole] : groups) {
        let number = 0;
        for (const row of group.rows) {
          const isHit = fits(row, wanted);
          number += Number(isHit);
          row.hidden = !isHit || (!isFiltered && !group.all && number > group.most);
        }
        group.hits = number;
        hits += number;
        const left = isFiltered || group.all ? 0 : number - group.most;
        group.more.hidden = left <= 0;
        const what = group.most ? `${left} more` : one("b:not(.s)", group.body).textContent;
        one("button", group.more).textContent = `Show ${what}`;
        if (group.body) group.body.hidden = !number;
        if (group.again) group.again.hidden = isFiltered;
      }
      for (const { section } of groups) {
        section.body.hidden = isSorted || !section.groups.some((group) => group.hits);
      }
      if (isSorted) for (const heading of headings) heading.hidden = true;
      return [hits, rows.length];
    }

    const orders = (head) =>
      head.dataset.sort === "n" ? ["descending", "ascending", null] : ["ascending", "descending", null];

    /** Down or up by a column, or with neither as it was. */
    function sortBy(head, now) {
      const at = head.cellIndex;
      const byNumber = head.dataset.sort === "n";
      for (const other of all("th", table)) other.removeAttribute("aria-sort");
      if (now) head.setAttribute("aria-sort", now);
      isSorted = Boolean(now);
      const words = (row) => row.rows[0].cells[at].textContent.trim();
      const number = (row) => numberIn(words(row));
      const compare = byNumber
        ? (a, b) => number(a) - number(b)
        : (a, b) => words(a).localeCompare(words(b));
      const sorted = rows.slice().sort((a, b) => (now === "descending" ? compare(b, a) : compare(a, b)));
      const bodies = groups.flatMap((group) => [group.body, ...group.rows, group.more, group.again ?? group.more]);
      for (const { section } of groups) {
        const at = bodies.indexOf(section.groups[0].body);
        if (!bodies.includes(section.body)) bodies.splice(at, 0, section.body);
      }
      whole.rows = sorted;
      table.append(...new Set([...(now ? sorted : bodies), ...bodies, whole.more]));
      show();
    }

    for (const head of all("th[data-sort]", table)) {
      const inside = [...head.childNodes];
      const next = (all) => all[(all.indexOf(head.getAttribute("aria-sort")) + 1) % 3];
      const sorts = button("", () => sortBy(head, next(orders(head))));
      sorts.append(...inside);
      head.append(sorts);
    }
    const heads = all("th[data-sort]", table);
    const choices = heads.map((head, i) => make("option", { value: i }, `sort: by ${head.textContent}`));
    const select = make("select", { class: "sorts", "aria-label": "Sort the tests" });
    select.append(make("option", { value: -1 }, "sort: worst first"), ...choices.slice(1));
    select.addEventListener("change", () => {
      const head = heads[select.value];
      if (head) sortBy(head, orders(head)[0]);
      else sortBy(heads[0], null);
    });
    if (document.querySelectorAll("table.tests").length === 1) box.after(select);
    else table.before(select);
    const showAll = () => {
      for (const group of [...groups, whole]) group.all = true;
    };
    return { show, showAll };
  }

  /** The current value of a cell such as ``14 → 16 > 15`` or ``+3.9 %``; of an empty one the least. */
  function numberIn(words) {
    const found = words.split("→").pop().match(/[+-]?[\d,.]+/);
    return found ? Number(found[0].replaceAll(",", "")) : -Infinity;
  }

  /* A link to a detail opens it; one to a full name shows that in place. */
  function openTarget() {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    if (!target) return;
    if (target instanceof HTMLDetailsElement) {
      target.closest("tbody").hidden = false;
      target.open = true;
      one("summary", target).focus({ preventScroll: true });
    }
    target.scrollIntoView();
  }
  addEventListener("hashchange", openTarget);
  addEventListener("click", (event) => {
    const link = event.target instanceof Element && event.target.closest("a.full");
    if (!link) return;
    event.preventDefault();
    showFull(link);
  });
  for (const link of all("a.full")) link.setAttribute("aria-expanded", "false");

  /** @param {HTMLAnchorElement} link */
  function showFull(link) {
    const next = link.nextElementSibling;
    const isShown = next?.classList.contains("shown");
    if (isShown) next.remove();
    else {
      const name = document.getElementById(link.hash.slice(1)).textContent;
      link.after(make("code", { class: "shown" }, name));
    }
    link.setAttribute("aria-expanded", String(!isShown));
  }

  /* What is drawn when a detail is opened for the first time. */
  let known = null;
  const data = () => (known ??= JSON.parse(one("#data").textContent));
  const drawn = new Set();

  function wake(details) {
    const row = details.closest("tbody");
    if (details.open) {
      draw(details);
      if (isNarrow.matches) tidy(row, one(".inside > td > div", row));
      makeReachable(one(".inside", row));
    } else if (row.getBoundingClientRect().top < 0) row.scrollIntoView();
  }

  /** On a phone limits whose numbers a row has come later, and what repeats its numbers or the legend
   *  goes. */
  function tidy(row, inside) {
    const tree = one(".tree-of", inside);
    const limits = one(":scope > :is(.part:first-child, .rerun + .part):has(> ul > li > .s)", inside);
    if (tree && limits && one("td.n .x-bad", row)) tree.before(limits);
    fold(inside);
    const said = new Set(all(".legend li", inside).map((each) => each.textContent));
    for (const fact of all(".part > .scroll + .fact", inside)) {
      const words = fact.textContent.split(", ");
      fact.classList.toggle("again", words.every((each) => said.has(each)));
      words.forEach((each) => said.add(each));
    }
    for (const fact of all(".part > ul > li", inside)) {
      const [, was, what, is] = fact.textContent.match(/^([\d,]+) (\w+) → ([\d,]+)\.$/) ?? [];
      const cell = what && one(`td[data-of="${what}"]`, row)?.textContent;
      fact.classList.toggle("again", Boolean(cell?.includes(was) && cell.includes(is)));
    }
  }

  /** On a phone what comes after the kernels opens by its heading, but for plots that have a limit. */
  function fold(inside) {
    if (!isNarrow.matches) return;
    const after = "[data-kind=kernels] ~";
    for (const part of all(`${after} .part:not(.open), ${after} div > .part:not(.open)`, inside)) {
      const head = one("h3", part);
      if (one(".fold", head)) continue;
      const act = () => {
        press.setAttribute("aria-expanded", String(!part.classList.toggle("shut")));
        makeReachable(part);
      };
      const press = button("", act, { class: "fold", "aria-expanded": "false" });
      press.append(...head.childNodes);
      head.append(press);
      part.classList.add("shut");
    }
  }

  function draw(details) {
    const inside = one(".inside", details.closest("tbody"));
    const found = data().details[details.id];
    if (found && !drawn.has(details)) {
      drawn.add(details);
      const [timeline, tree, plots] = ["timeline", "tree", "plots"].map((of) => one(`.${of}-of`, inside));
      const ranks = found.drawn.filter((each) => each.timeline);
      const show = (rank) => {
        const scene = sceneOf(rank);
        const choices = ranks.length > 1 ? ranks.map((each) => choiceOf(each, each === rank)) : [];
        timeline.replaceChildren(timelineOf(scene, rank.of, timeline.dataset.note, choices));
        tree.replaceChildren(treeOf(scene, rank.of) ?? "");
        fold(inside);
      };
      const choiceOf = (each, isShown) => {
        const act = () => {
          show(each);
          one("[aria-pressed=true]", timeline).focus();
        };
        return button(each.of.replace(" of ", ""), act, { "aria-pressed": isShown });
      };
      if (ranks.length) show(ranks[0]);
      plots.append(...found.plots.filter(tells).map((plot) => plotOf(plot, plots.dataset.rank)));
      if (isNarrow.matches) {
        plots.prepend(...all(".open", plots));
        tree.before(plots);
      }
      all("table.kernels", inside).forEach(addBars);
      fold(inside);
    }
  }

  /** Whether a plot shows more than the numbers beside it: pairs, a limit, or more than three rounds. */
  const tells = ({ title, rows, limit }) =>
    title === "pairs" || limit !== null || rows.some((row) => row.values.length > 3);

  /** On a phone the cells of a row that is too wide stand below its name, each with its title. What
   *  scrolls sideways says so, and can be reached by the keyboard. */
  function makeReachable(within) {
    for (const each of all(".scroll", within)) {
      if (!each.clientWidth) continue;
      const table = one("table", each);
      const isTooWide = () => each.scrollWidth > each.clientWidth + 1;
      if (table?.classList.contains("peers")) turn(table, isNarrow.matches);
      else if (table && !isNarrow.matches) table.classList.remove("stack");
      else if (table && (isTooWide() || all("th.c", table).length > 1)) stack(table);
      each.toggleAttribute("data-scrolls", isTooWide());
      if (!isTooWide() || each.tabIndex === 0) continue;
      each.tabIndex = 0;
      each.setAttribute("role", "group");
      const head = one("h2, h3", each.parentElement) ?? each.parentElement;
      each.setAttribute("aria-label", `${head.textContent.trim().slice(0, 80)}, scrolls sideways`);
    }
  }

  /** On a phone ranks stand beside each other, and what is known of them below.
   *  @param {HTMLTableElement} table */
  function turn(table, isNarrow) {
    if (isNarrow === table.classList.contains("turned")) return;
    table.classList.toggle("turned", isNarrow);
    const rows = [...table.rows].map((row) => [...row.cells]);
    const [head, ...others] = rows[0].map((_, at) => make("tr", {}, ...rows.map((cells) => cells[at])));
    table.tHead.replaceChildren(head);
    table.tBodies[0].replaceChildren(...others);
  }

  /** @param {HTMLTableElement} table */
  function stack(table) {
    if (!table.tHead || !one("tbody td.c", table)) return;
    const titles = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
    for (const row of table.tBodies[0].rows) {
      const name = one("td.c", row);
      [...row.cells].forEach((cell, i) => {
        const isName = cell === name && !/^\d/.test(cell.textContent);
        if (cell.textContent && !isName) cell.dataset.title = titles[i];
        cell.classList.toggle("first", cell === name);
      });
    }
    table.classList.add("stack");
    if (table.classList.contains("kernels") && !one(".minor", table)) shorten(table, titles);
  }

  /** Of kernels on a phone those that are marked and the costliest, with their time and their line; a
   *  button has the others. */
  function shorten(table, titles) {
    const rows = [...table.tBodies[0].rows];
    const cost = (row) => (one("ins, del", row) ? Infinity : timeOf(row));
    const kept = new Set(rows.toSorted((a, b) => cost(b) - cost(a)).slice(0, MOST_KERNELS));
    for (const row of rows) {
      row.classList.toggle("minor", !kept.has(row));
      const hasLine = Boolean(row.cells[titles.indexOf("line")]?.textContent);
      [...row.cells].forEach((cell, i) => {
        const isMinor = /^(#|grid, block|registers|shared memory|spills)$/.test(titles[i]) || (hasLine && / by$/.test(titles[i]));
        cell.classList.toggle("minor", isMinor);
      });
    }
    table.classList.add("brief");
    const left = rows.length - kept.size;
    const act = () => {
      table.classList.remove("brief");
      press.remove();
    };
    const words = left ? `All ${rows.length} rows, all columns` : "All columns";
    const press = button(words, act, { class: "more whole" });
    const scroll = table.parentElement;
    (scroll.nextElementSibling?.matches(".fact") ? scroll.nextElementSibling : scroll).after(press);
  }

  function part(title, note, ...inside) {
    const head = make("h3", {}, title, " ", make("small", {}, note));
    return make("section", { class: "part" }, head, ...inside);
  }

  /** @param {number} us */
  function time(us) {
    if (us < 999.95) return `${us.toFixed(1)}us`;
    return us < 999950 ? `${(us / 1e3).toFixed(2)}ms` : `${(us / 1e6).toFixed(2)}s`;
  }

  /* The kind of work of a kernel or an operator, by its name, which has a colour. In this order: a
   * fused kernel that ends in a sum counts as fused. */
  const FAMILIES = {
    gemm: "GEMM, convolution",
    attention: "attention",
    fused: "fused",
    reduce: "reduction",
    copy: "copy, fill",
    elementwise: "elementwise",
    comm: "communication",
    other: "other work",
  };
  const POINTWISE =
    "abs|add|addcdiv|addcmul|bernoulli|clamp|clamp_min|cos|div|eq|erf|exp|ge|gelu|gt|le|leaky_relu|" +
    "lerp|log|lt|masked_fill|mul|native_dropout|ne|neg|pow|reciprocal|relu|rsqrt|rsub|sigmoid|silu|" +
    "sin|sqrt|sub|tanh|threshold|where";
  const RULES = [
    ["comm", /^nccl|^c10d::/],
    ["attention", /flash|fmha|sdpa|attention|attn/],
    ["fused", /^triton_|_fused_/],
    ["reduce", /splitk ?reduce/],
    ["gemm", /^(nvjet|cutlass|tensile|cijk)|gemm|gemv|conv\d?d|convolution|xmma/],
    ["gemm", /^aten::(mm|addmm|bmm|baddbmm|linear|addmv|mv|dot|_scaled_mm)(\.|$)/],
    ["copy", /\[(copy|fill|cat)|memcpy|memset|catarray|gather|index/],
    ["copy", /^aten::(copy_|clone|cat|stack|fill_|zero_|_to_copy|embedding)(\.|$)/],
    ["reduce", /reduce|norm(?!al)|softmax|\bcub\b|scan|sort|topk|welford/],
    ["reduce", /^aten::(sum|mean|amax|amin|max|min|argmax|var|std|cumsum)(\.|$)/],
    ["elementwise", /elementwise/],
    ["elementwise", new RegExp(`^aten::(${POINTWISE})(_|_backward)?(\\.|$)`)],
  ];
  const familyOf = (name) => RULES.find(([, rule]) => rule.test(name.toLowerCase()))?.[0] ?? "other";

  /** The time of a row of a table of kernels. */
  const timeOf = (row) => numberIn(one("td.c", row).previousElementSibling.textContent);

  /** A bar beside each time of a table of kernels. */
  function addBars(table) {
    const rows = [...table.tBodies[0].rows];
    const names = rows.map((row) => one("td.c", row));
    const times = rows.map(timeOf);
    const most = Math.max(...times);
    names.forEach((cell, i) => {
      const name = cell.textContent.replace(/^.(new|gone|slower|look here): /, "").trim();
      const long = times[i] > 0 ? Math.max((times[i] / most) * 56, 0.8) : 0;
      const path = make("path", { class: `k-${familyOf(name)}`, d: `M0 3h${long}` });
      cell.previousElementSibling.prepend(make("svg", { class: "b" }, path));
    });
  }

  /* A round as a scene: lanes of boxes from the top, arrows from calls to kernels, idle time. */
  const MOST_LEVELS = 4;
  const MOST_LANES = 12;
  const QUEUED_US = 10;
  const WRAPPER = "autograd::engine::evaluate_function";
  const PREFIX = /^(aten::|torch::autograd::|autograd::)/;
  const STREAM = /^device (\d+) stream (\d+)$/;
  const OF_DEVICE = "kms";

  /** The events of a round, by start. Of each: what it lies in, how deep, and which call caused it.
   *  Of each operator: the kernels, copies and sets that are launched inside of it. */
  function eventsOf({ timeline }) {
    let start = 0;
    const events = timeline.name.map((name, i) => {
      start += timeline.start[i];
      const words = data().names[name];
      return {
        at: i,
        name,
        words,
        start,
        kind: timeline.kind[i],
        lane: timeline.lane[i],
        end: start + timeline.lasts[i],
        call: timeline.call[i],
        parent: null,
        level: 0,
        by: null,
        kernels: 0,
        moves: 0,
        gpu: 0,
        broken: 0,
        sign: "",
      };
    });
    events.sort((a, b) => a.start - b.start || b.end - a.end || a.at - b.at);
    const open = new Map();
    const calls = new Map();
    for (const event of events) {
      if (OF_DEVICE.includes(event.kind)) continue;
      if (!open.has(event.lane)) open.set(event.lane, []);
      const around = open.get(event.lane);
      while (around.length && around.at(-1).end <= event.start) around.pop();
      event.parent = around.at(-1) ?? null;
      event.level = around.length;
      if (event.kind === "c") {
        if (event.call && !calls.has(event.call)) calls.set(event.call, event);
      } else if (!event.words.startsWith(WRAPPER)) around.push(event);
    }
    for (const event of events) {
      if (!OF_DEVICE.includes(event.kind)) continue;
      event.by = calls.get(event.call) ?? null;
      for (let above = event.by; above; above = above.parent) {
        above[event.kind === "k" ? "kernels" : "moves"] += 1;
        if (event.kind === "k") above.gpu += event.end - event.start;
      }
    }
    return events;
  }

  function sceneOf(found) {
    const { timeline } = found;
    const US = timeline.parts;
    const isWrapper = (event) => event.kind !== "c" && event.words.startsWith(WRAPPER);
    const [wrappers, events] = [[], []];
    for (const event of eventsOf(found)) (isWrapper(event) ? wrappers : events).push(event);
    const notes = [];
    const busy = new Map();
    for (const event of events) busy.set(event.lane, (busy.get(event.lane) ?? 0) + event.end - event.start);
    const name = (lane) => timeline.lanes[lane];
    const chosen = (lanes, what) => {
      const left = lanes.length - MOST_LANES;
      if (left > 0) notes.push(`${left} more ${what} are not drawn: the others were busier`);
      const kept = lanes.slice().sort((a, b) => busy.get(b) - busy.get(a)).slice(0, MOST_LANES);
      return lanes.filter((lane) => kept.includes(lane));
    };
    const isStream = (lane) => STREAM.test(name(lane));
    const numbers = (lane) => name(lane).match(STREAM).slice(1).map(Number);
    const threads = chosen([...busy.keys()].filter((lane) => !isStream(lane)), "threads");
    const streams = chosen(
      [...busy.keys()]
        .filter(isStream)
        .sort((a, b) => numbers(a)[0] - numbers(b)[0] || numbers(a)[1] - numbers(b)[1]),
      "streams",
    );
    const severalDevices = new Set(streams.map((lane) => numbers(lane)[0])).size > 1;
    markKernels(events, found);
    markCalls(events, found);
    const counted = countedOf(events, found);
    const lanes = [];
    for (const lane of threads) {
      const ours = events.filter((event) => event.lane === lane);
      const operators = ours.filter((event) => event.kind !== "c" && event.level < MOST_LEVELS);
      const calls = ours.filter((event) => event.kind === "c");
      /* Autograd's where nodes of a backward pass ran, unless all began there. */
      const isAutograd = lane !== threads[0] && wrappers.some((event) => event.lane === lane);
      const title = isAutograd ? name(lane).replace("thread", "autograd") : name(lane);
      if (operators.length) {
        const boxes = operators.map((event) => ({
          ...boxOf(event, kindOf(event, counted)),
          label: `${event.sign} ${event.words.replace(PREFIX, "")}`.trim(),
          level: event.level,
        }));
        lanes.push({ kind: "thread", name: title, boxes, lane });
      }
      if (calls.length) {
        const of = threads.length > 1 ? `its calls, ${name(lane).split(" ").pop()}` : "calls";
        const boxes = calls.map((event) => boxOf(event, kindOf(event)));
        lanes.push({ kind: "calls", name: of, boxes, lane });
      }
    }
    for (const lane of streams) {
      const [device, stream] = numbers(lane);
      const title = severalDevices ? `GPU ${device}, stream ${stream}` : `stream ${stream}`;
      const boxes = events.filter((event) => event.lane === lane).map(deviceBoxOf);
      lanes.push({ kind: "stream", name: title, boxes, lane });
    }
    const gaps = gapsOf(events.filter((event) => isStream(event.lane)), found, US);
    if (gaps.length) lanes.push({ kind: "idle", name: "GPU idle", boxes: gaps, lane: -1 });
    else if (found.idle && streams.length) notes.push(`Idle time is not known: ${found.idle}`);
    const tooDeep = events.some((event) => "oa".includes(event.kind) && event.level >= MOST_LEVELS);
    if (tooDeep) notes.push(`Operators inside of ${MOST_LEVELS} others are not drawn`);
    if (timeline.left) notes.push(`${timeline.left.toLocaleString("en")} shorter events are left out`);
    const kernels = events.filter((event) => event.kind === "k");
    return {
      events,
      lanes,
      notes,
      US,
      left: timeline.left,
      length: events.reduce((length, event) => Math.max(length, event.end), 1),
      arrows: events
        .filter((event) => event.by && (event.kind === "k" || event.sign))
        .map((event) => ({ from: event.by, to: event })),
      number: found.counted.length ? found.kernels : kernels.length,
      what: found.counted.length ? "operator" : "kernel",
      streams: new Set(kernels.map((event) => event.lane)).size,
    };
  }

  const boxOf = ({ start, end, words, sign = "" }, kind) =>
    ({ start, end, words, sign, kind, label: "", level: 0 });

  /** What the device did: a kernel is labelled by the operator that launched it. */
  function deviceBoxOf(event) {
    if (event.kind !== "k" && !event.sign) return boxOf(event, "memory");
    const kind = event.kind === "k" ? `k-${familyOf(event.words)}` : "memory";
    const operator = event.by?.parent?.words.replace(PREFIX, "").replace(/_+$/, "");
    const label = `${event.sign} ${operator || event.words}`.trim();
    return { ...boxOf(event, kind), label };
  }

  function kindOf(event, counted = new Set()) {
    if (event.kind === "c") return event.kernels ? "launch" : event.moves ? "moves" : "call";
    if (counted.has(event)) return `k-${familyOf(event.words)}`;
    if (event.kind === "a") return "note";
    return event.kernels || event.moves ? "op" : "quiet";
  }

  /** Kernels that are new, slower or break a limit, by their place in launch order; none where the
   *  timeline has not just the profile's kernels. */
  function markKernels(events, found) {
    const kernels = events.filter((event) => event.kind === "k");
    if (kernels.length !== found.kernels) return;
    const launched = (event) => event.by?.start ?? event.start;
    kernels.sort((a, b) => launched(a) - launched(b) || a.start - b.start);
    for (const [sign, places] of Object.entries(found.marks)) {
      for (const at of places) if (kernels[at]) kernels[at].sign ||= sign;
    }
  }

  /** Copies and waits that break a limit, and the operators that copy and wait; none where it cannot
   *  be told which they are. One wait an operator: its first call stands for it. */
  function markCalls(events, found) {
    const mark = (event) => {
      event.sign = ">";
      for (let above = event.parent; above; above = above.parent) above.broken += 1;
      if (event.parent) event.parent.sign = ">";
    };
    const { waits = [], copies: [number, ...guilty] = [] } = found;
    const copies = events.filter((event) => event.kind === "m");
    if (copies.length === number) {
      const launched = (event) => event.by?.start ?? event.start;
      copies.sort((a, b) => launched(a) - launched(b) || a.start - b.start);
      for (const at of guilty) {
        copies[at].sign = ">";
        if (copies[at].by) mark(copies[at].by);
      }
    }
    const kindOf = ([call, operator]) => `${call} ${operator ?? ""}`;
    for (const kind of new Set(waits.map(kindOf))) {
      const calls = new Map();
      for (const event of events) {
        const isOne = event.kind === "c" && kindOf([event.words, event.parent?.words]) === kind;
        if (isOne && !calls.has(event.parent ?? event)) calls.set(event.parent ?? event, event);
      }
      if (calls.size !== waits.filter((wait) => kindOf(wait) === kind).length) continue;
      for (const event of calls.values()) if (!event.sign) mark(event);
    }
  }

  /** On the CPU the operators that are counted: none inside of another; none where they are not as
   *  many as the profile says. */
  function countedOf(events, found) {
    const names = new Set(found.counted);
    const counted = new Set();
    for (const event of events) {
      if (event.kind !== "o" || !names.has(event.name)) continue;
      let above = event.parent;
      while (above && !counted.has(above)) above = above.parent;
      if (!above) counted.add(event);
    }
    return counted.size === found.kernels ? counted : new Set();
  }

  const CAUSES = {
    host: ["idle: the host had not launched the next", "idle: the host was late"],
    kernel: ["idle between queued kernels", "idle between queued kernels"],
    other: ["idle: launched before, begun late", "idle: launched before, begun late"],
  };

  /** The idle stretches over all streams, by the same rule as the profile's own sums. */
  function gapsOf(events, found, US) {
    if (found.idle || events.length < 2) return [];
    const gaps = [];
    let reached = events[0].end;
    for (const event of events.slice(1)) {
      if (event.start > reached) {
        const isLate = event.by && event.by.end > reached;
        const isQueued = event.by && event.start - reached <= QUEUED_US * US;
        const cause = isLate ? "host" : isQueued ? "kernel" : "other";
        gaps.push(boxOf({ start: reached, end: event.start, words: CAUSES[cause][0] }, `gap-${cause}`));
      }
      reached = Math.max(reached, event.end);
    }
    return gaps;
  }

  /* As in the table of kernels. */
  const SIGNS = { "+": "new", "?": "perhaps new", ">": "marked below", "~": "slower" };

  /** What colours mean, of what is in the picture; idle time with how much there is. */
  function legendOf({ lanes, US }) {
    const boxes = lanes.flatMap((lane) => lane.boxes);
    const kinds = new Set(boxes.map((box) => box.kind));
    const told = Object.entries(FAMILIES)
      .map(([family, words]) => [`k-${family}`, words])
      .filter(([kind]) => kinds.has(kind));
    if (kinds.has("memory")) told.push(["memory", "copy, memset of memory"]);
    for (const [cause, [, words]] of Object.entries(CAUSES)) {
      const gaps = boxes.filter((box) => box.kind === `gap-${cause}`);
      const sum = gaps.reduce((us, box) => us + box.end - box.start, 0);
      if (gaps.length) told.push([`gap-${cause}`, `${words}, ${time(sum / US)}`]);
    }
    for (const [sign, words] of Object.entries(SIGNS)) {
      if (boxes.some((box) => box.sign === sign)) told.push(["ring", `${sign} ${words}`]);
    }
    const items = told.map(([kind, words]) => make("li", {}, make("i", { class: kind }), words));
    return make("ul", { class: "legend" }, ...items);
  }

  /* The picture of a scene: an SVG that is drawn anew for what is seen of it. */
  const WIDEST = 1144;
  const WIDEST_GUTTER = 132;
  const ON_PAPER = 760;
  const TOP = 26;
  const ROOM_FOR_ARROWS = 28;
  const MOST_ARROWS = 150;
  const MOST_LABELS = 400;
  const NARROWEST = 0.8;
  const NARROW = 1.5;
  const TOGETHER = 0.4;
  const LETTER = 6.3;
  /* Of each kind of lane: the height of a box, of a row, and what lies below the last row. */
  const HEIGHTS = { thread: [15, 17, 3], calls: [11, 11, 9], stream: [20, 20, 6], idle: [8, 8, 18] };

  /** As wide as there is room, so that a phone has the whole round, and letters of full size. */
  const widthHere = () => Math.max(300, Math.min(WIDEST, root.clientWidth - (isNarrow.matches ? 32 : 90)));

  const letters = (words) => [...words].reduce((wide, c) => wide + (c < "\u0080" ? LETTER : 2 * LETTER), 0);

  /** Boxes by the class that they are drawn by, each with the middle of its row. */
  function placed(lanes) {
    const kinds = new Map();
    let y = TOP;
    lanes.forEach((lane, i) => {
      const [thick, row, below] = HEIGHTS[lane.kind];
      if (i && lane.kind === "stream" && lanes[i - 1].kind !== "stream") y += ROOM_FOR_ARROWS;
      lane.top = y;
      lane.middle = y + thick / 2;
      for (const box of lane.boxes) {
        const kind = `box ${lane.kind} ${box.kind}`;
        if (!kinds.has(kind)) kinds.set(kind, []);
        kinds.get(kind).push({ ...box, thick, middle: y + box.level * row + thick / 2, in: lane.name });
      }
      y += (1 + lane.boxes.reduce((most, box) => Math.max(most, box.level), 0)) * row + below;
    });
    return [kinds, Math.ceil(y) + 4];
  }

  /** A timeline that zooms, as a part of a detail. */
  function timelineOf(scene, of, lacking, choices, WIDTH = widthHere()) {
    const { lanes, US } = scene;
    const longest = Math.max(...lanes.map((lane) => letters(lane.name.slice(0, 22))));
    const GUTTER = WIDTH <= ON_PAPER ? Math.min(WIDEST_GUTTER, longest * 1.05 + 8) : WIDEST_GUTTER;
    const ROOM = WIDTH - 4 - GUTTER;
    const [kinds, height] = placed(lanes);
    const number = `${scene.number.toLocaleString("en")} ${scene.what}${scene.number === 1 ? "" : "s"}`;
    const on = scene.streams ? ` on ${scene.streams} stream${scene.streams === 1 ? "" : "s"}` : "";
    const took = time(scene.length / US);
    const said = `Timeline of one profiled round: ${number}${on} in ${took}. The table has the same facts.`;
    const names = lanes.map((lane) => make("text", { x: 0, y: lane.middle + 4 }, lane.name.slice(0, 22)));
    const paths = [...kinds.keys()].map((kind) => make("path", { class: kind }));
    const [axis, labels, gaps] = ["axis", "labels", "gaps"].map((name) => make("g", { class: name }));
    const [plain, marked, halos, rings] = ["arrows", "arrows marked", "halos", "rings"].map((name) =>
      make("path", { class: name }),
    );
    const signs = make("g", { class: "signs" });
    const [left, width] = [GUTTER - 3, WIDTH - GUTTER + 3];
    const box = { x: left, y: 0, width, height, viewBox: `${left} 0 ${width} ${height}` };
    const drawnAt = [plain, marked, ...paths, halos, rings, labels, gaps, signs];
    const plot = make("svg", { class: "plot", ...box }, ...drawnAt);
    const svg = make(
      "svg",
      { class: "timeline", viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": said },
      axis,
      make("g", { class: "names" }, ...names),
      plot,
    );
    const help = "Timeline: plus, minus, 0 and arrows zoom and move";
    const scroll = make("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": help }, svg);
    const hint = HOVERS
      ? "Point at a box to read it. Drag moves, Ctrl and the wheel zoom."
      : "Tap a box for details. Zoom with +, then drag.";
    const pointed = make("p", { class: "pointed", "aria-hidden": "true" }, hint);
    const tones = ["plain", "on-dark", "on-light"];
    const written = new Map(tones.map((tone) => [tone, make("g", { class: tone })]));
    const notes = scene.notes.map((words) => make("p", { class: "fact" }, `${words}.`));
    const crowded = make("p", { class: "fact" }, "Too many kernels for arrows: zoom in to see them.");
    const figure = make("div", { class: "tl" });
    const ends = new Map(lanes.map((lane) => [`${lane.lane} ${lane.kind}`, lane]));
    const span = scene.length;
    let from = 0;
    let to = span;
    let hits = [];
    let ringed = [];
    let signed = new Set();
    let named = [];
    let waiting = 0;
    const x = (t) => GUTTER + ((t - from) / (to - from)) * ROOM;

    function write(into, at, y, words) {
      if (into.childElementCount < MOST_LABELS) into.append(make("text", { x: at.toFixed(1), y }, words));
    }

    /** On a phone what is marked and too narrow for its name has it above, where there is room. */
    function nameAbove({ label }, middle, wide, above) {
      const half = label ? (letters(label) + 8) / 2 : 0;
      if (!isNarrow.matches || scene.streams > 1 || !half || wide > 2 * half - 2) return false;
      const at = Math.min(Math.max(middle, GUTTER + half), WIDTH - half);
      if (named.some((other) => Math.abs(other.at - at) < other.half + half)) return false;
      named.push({ at, half });
      write(signs, at, above, label);
      return true;
    }

    /** Wide boxes as they are; of narrow ones the kind that takes most of a pixel has it. */
    function place(kind, boxes, spans, pixels) {
      const tone = /k-(comm|gemm|fused|other)/.test(kind) ? "on-dark" : kind.includes("k-") ? "on-light" : "plain";
      for (const box of boxes) {
        if (box.end < from || box.start > to) continue;
        const left = Math.max(x(box.start), GUTTER - 4);
        const right = Math.min(x(box.end), WIDTH + 4);
        const wide = Math.max(right - left > 2 ? right - left - 0.6 : right - left, NARROWEST);
        hits.push({ box, left, wide });
        let isNamed = false;
        if (box.sign) {
          const [tall, broad] = [box.thick + 2, wide + 2];
          ringed.push([`M${left - 1} ${box.middle - tall / 2}h${broad}v${tall}h${-broad}z`, wide > 6]);
          const above = box.middle - box.thick / 2 - 4;
          const isFree = kind.includes("stream") || (kind.includes("thread") && !box.level);
          const isInside = box.label && wide > letters(box.sign) + 4;
          isNamed = kind.includes("stream") && nameAbove(box, left + wide / 2, wide, above);
          const near = `${above} ${Math.round((left + wide / 2) / 8)}`;
          if (!isNamed && !isInside && isFree && !signed.has(near)) write(signs, left + wide / 2, above, box.sign);
          signed.add(near);
        }
        if (wide < NARROW) {
          const at = `${box.middle} ${Math.floor(left)}`;
          if (!pixels.has(at)) pixels.set(at, new Map());
          const times = pixels.get(at);
          times.set(kind, (times.get(kind) ?? 0) + box.end - box.start);
          continue;
        }
        row(spans, kind, box.middle).push([left, wide]);
        if (kind.includes("idle")) {
          if (wide > 46) write(gaps, left + 2, box.middle + 15, time((box.end - box.start) / US));
        } else if (box.label && wide > letters(box.label) + 6) {
          write(written.get(tone), left + 3, box.middle + 4, box.label);
        } else if (!isNamed && box.sign && box.label && wide > letters(box.sign) + 4) {
          write(written.get(tone), left + 3, box.middle + 4, box.sign);
        }
      }
    }

    function row(spans, kind, middle) {
      const rows = spans.get(kind);
      if (!rows.has(middle)) rows.set(middle, []);
      return rows.get(middle);
    }

    function draw() {
      waiting = 0;
      [hits, ringed, signed, named] = [[], [], new Set(), []];
      labels.replaceChildren(...written.values());
      for (const group of written.values()) group.replaceChildren();
      gaps.replaceChildren();
      signs.replaceChildren();
      const spans = new Map([...kinds.keys()].map((kind) => [kind, new Map()]));
      const pixels = new Map();
      for (const [kind, boxes] of kinds) place(kind, boxes, spans, pixels);
      for (const [at, times] of pixels) {
        const [middle, pixel] = at.split(" ").map(Number);
        const [kind] = [...times].reduce((a, b) => (b[1] > a[1] ? b : a));
        row(spans, kind, middle).push([pixel, 1]);
      }
      paths.forEach((path, i) => path.setAttribute("d", lines([...spans.values()][i])));
      ringed.length = Math.min(ringed.length, MOST_LABELS);
      rings.setAttribute("d", ringed.map(([path]) => path).join(""));
      const wide = ringed.filter(([, hasRoom]) => hasRoom);
      halos.setAttribute("d", wide.map(([path]) => path).join(""));
      drawArrows();
      drawAxis();
      const isWhole = from === 0 && to === span;
      whole.setAttribute("aria-pressed", String(isWhole));
      out.setAttribute("aria-disabled", String(isWhole));
      figure.dataset.from = String(from / US);
      figure.dataset.to = String(to / US);
    }

    function drawArrows() {
      const seen = [];
      for (const arrow of scene.arrows) {
        const top = ends.get(`${arrow.from.lane} calls`);
        const bottom = ends.get(`${arrow.to.lane} stream`);
        const [a, b] = [arrow.from.start, arrow.to.start];
        if (!top || !bottom || Math.max(a, b) < from || Math.min(a, b) > to) continue;
        seen.push([x(a), x(b), top.top + HEIGHTS.calls[0], bottom.top, Number(Boolean(arrow.to.sign))]);
      }
      crowded.hidden = seen.length <= MOST_ARROWS;
      const curves = ["", ""];
      for (const [a, b, top, bottom, isMarked] of seen) {
        if (seen.length > MOST_ARROWS && !isMarked) continue;
        const bend = Math.min(17, (bottom - top) / 2);
        curves[isMarked] += `M${a} ${top}C${a} ${top + bend} ${b} ${bottom - bend} ${b} ${bottom}`;
      }
      plain.setAttribute("d", curves[0]);
      marked.setAttribute("d", curves[1]);
    }

    function drawAxis() {
      const line = make("path", { class: "grid" });
      axis.replaceChildren(line);
      const step = stepOf((to - from) / (WIDTH < 600 ? 4 : 9));
      const [scale, unit] = span >= 2e4 * US ? [1e3 * US, "ms"] : [US, "us"];
      let grid = "";
      for (let i = Math.ceil(from / step); i * step <= to; i++) {
        const at = x(i * step);
        grid += `M${at} 18V${height - 4}`;
        const words = `${Number(((i * step) / scale).toPrecision(6))}${i ? unit : ""}`;
        if (at < WIDTH - 44) write(axis, at + 3, 12, words);
      }
      line.setAttribute("d", grid);
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
      const share = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
      return [share[0] * WIDTH, share[1] * height];
    };
    const timeAt = (event) => from + ((placeOf(event)[0] - GUTTER) / ROOM) * (to - from);

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
    svg.addEventListener("pointerdown", (event) => {
      point(event);
      if (!event.isPrimary || event.button) return;
      held = [event.clientX, from, to];
      svg.setPointerCapture(event.pointerId);
      svg.classList.add("dragging");
    });
    svg.addEventListener("pointermove", (event) => {
      if (held && event.clientX !== held[0]) {
        const [at, start, end] = held;
        const moved = ((at - event.clientX) / svg.getBoundingClientRect().width) * WIDTH;
        const by = (moved / ROOM) * (end - start);
        look(start + by, end + by);
      } else if (event.pointerType === "mouse") point(event);
    });
    /** Say what is there; a finger is thicker than a box. */
    function point(event) {
      const [px, py] = placeOf(event);
      const near = event.pointerType === "mouse" ? 1 : 6;
      const far = ({ box, left, wide }) =>
        Math.max(Math.abs(py - box.middle) - box.thick / 2, left - px, px - left - wide, 0);
      const hit = hits.filter((each) => far(each) <= near).sort((a, b) => far(a) - far(b))[0];
      pointed.textContent = hit ? wordsOf(hit.box) : hint;
    }
    const letGo = () => {
      held = null;
      svg.classList.remove("dragging");
    };
    svg.addEventListener("pointerup", letGo);
    svg.addEventListener("pointercancel", letGo);
    svg.addEventListener("dblclick", (event) => zoom(0.4, timeAt(event)));
    const wordsOf = (box) => {
      const label = box.sign ? box.label.slice(2) : box.label;
      const by = label && !box.words.endsWith(label) ? `, ${label}` : "";
      const mark = box.sign ? `, ${SIGNS[box.sign]}` : "";
      return `${box.words}: ${time((box.end - box.start) / US)}${by}${mark} · ${box.in}`;
    };
    const acts = {
      "+": () => zoom(0.625),
      "=": () => zoom(0.625),
      "-": () => zoom(1.6),
      0: fit,
      ArrowLeft: () => move(-0.125),
      ArrowRight: () => move(0.125),
    };
    scroll.addEventListener("keydown", (event) => {
      const act = acts[event.key];
      if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      act();
    });
    const out = button("−", acts["-"], { "aria-label": "Zoom out" });
    const whole = button("Fit", fit, { "aria-label": "Fit the whole round" });
    const into = button("+", acts["+"], { "aria-label": "Zoom in" });
    const picks = choices.length ? [make("span", { class: "ranks" }, ...choices)] : [];
    const bar = make("div", { class: "zoom" }, ...picks, out, into, whole);
    figure.append(bar, scroll, pointed, legendOf(scene), crowded, ...notes);
    draw();
    const note = scene.streams
      ? "one round: GPU times accurate, host times slowed by profiling"
      : "one round, slowed by the profiler";
    return part(`Timeline${of}`, lacking ? `${lacking}; ${note}` : note, figure);
  }

  /** Spans of rows as the path of an SVG; those that cannot be told apart as one. */
  function lines(rows) {
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
          [left, right] = [start, start + wide];
        }
      }
      flush();
    }
    return path;
  }

  /** A round number that is no less. */
  function stepOf(rough) {
    const power = 10 ** Math.floor(Math.log10(rough));
    return [1, 2, 2.5, 5, 10].map((m) => m * power).find((step) => step >= rough);
  }

  /* Operators as a tree: those that launch kernels or break a limit, by name; the others as a
   * number. */
  const DEEPEST = 3;
  const MOST_LINES = 60;

  /** A table of it; null where events are left out, and where nothing is launched. */
  function treeOf({ events, US, left }, of) {
    const operators = events.filter((event) => "oa".includes(event.kind));
    const tells = (event) => event.kernels || event.broken;
    if (left || !operators.some(tells)) return null;
    const below = new Map(operators.map((event) => [event, []]));
    const top = [];
    for (const event of operators) (below.get(event.parent) ?? top).push(event);
    const rows = [];
    const sum = (events, what) => events.reduce((all, event) => all + what(event), 0);
    const cells = (...numbers) => numbers.map((words) => make("td", { class: "n" }, words));
    const host = (events) => (sum(events, (event) => event.end - event.start) / US).toFixed(1);

    /** An operator with the one that does all its launching, and so on; and the last of them. */
    function chain(event) {
      const names = [event.words];
      for (;;) {
        const [inner, ...others] = below.get(event).filter(tells);
        const isAll = inner?.kernels === event.kernels && inner.broken === event.broken;
        if (!isAll || others.length) return [names.join(" > "), event];
        event = inner;
        if (event.words !== names.at(-1) && names.length < 4) names.push(event.words);
      }
    }

    function level(events, depth) {
      const alike = new Map();
      for (const event of events.filter(tells)) {
        const [name, last] = chain(event);
        if (!alike.has(name)) alike.set(name, []);
        alike.get(name).push([event, last]);
      }
      for (const [name, found] of alike) {
        const own = found.map(([event]) => event);
        const words = own.length > 1 ? `${name} x${own.length}` : name;
        const isGuilty = found.some(([, last]) => last.sign);
        const named = make("td", { class: `c d${depth}` }, ...(isGuilty ? guilty(words) : [words]));
        const number = sum(own, (event) => event.kernels);
        const gpu = number ? (sum(own, (event) => event.gpu) / US).toFixed(1) : "";
        rows.push(make("tr", {}, named, ...cells(number || "", gpu, host(own))));
        if (depth < DEEPEST) level(found.flatMap(([, last]) => below.get(last)), depth + 1);
      }
    }

    /** As in the table of kernels. */
    function guilty(words) {
      const told = make("span", { class: "sr" }, "look here: ");
      return [make("ins", {}, make("b", { "aria-hidden": "true" }, ">"), told, " ", words)];
    }

    level(top, 0);
    const quiet = top.filter((event) => !tells(event));
    const hidden = rows.length - MOST_LINES;
    const shown = rows.slice(0, MOST_LINES);
    if (quiet.length) {
      const words = `${quiet.length} operator${quiet.length > 1 ? "s" : ""} that launch nothing`;
      shown.push(make("tr", { class: "same" }, make("td", {}, words), ...cells("", "", host(quiet))));
    }
    const titles = ["operator", "kernels", "kernel us", "host us"];
    const head = titles.map((title, i) => make("th", i ? { class: "n" } : {}, title));
    const titled = make("thead", {}, make("tr", {}, ...head));
    const table = make("table", { class: "tree" }, titled, make("tbody", {}, ...shown));
    const more = hidden > 0 ? [make("p", { class: "fact" }, `${hidden} more lines not shown`)] : [];
    const scroll = make("div", { class: "scroll" }, table);
    return part(`Operators${of}`, "host times slowed by profiling", scroll, ...more);
  }

  /* Rounds of a time as dots on a scale, with the interval and what is allowed. */
  const PLOT = { right: 560, row: 44, top: 30 };

  const TITLES = {
    cuda_time: "GPU time of each profiled round",
    latency: "Latency of each call",
    launch_overhead: "Launch overhead of each call",
    dispatch_time: "Dispatch time of each call",
    gpu_busy: "GPU busy in each round",
    pairs: "GPU time of each pair, timed in turn",
  };

  function plotOf({ title, rows, limit, words }, of) {
    const isPairs = title === "pairs";
    const seen = rows
      .flatMap((row) => [...row.values, row.middle, ...(row.interval ?? []), limit])
      .filter((value) => value !== null);
    if (isPairs) seen.push(0); /* equally fast */
    const [least, most] = [Math.min(...seen), Math.max(...seen)];
    const pad = (most - least) * 0.06 || Math.abs(least) * 0.01 || 1;
    const [low, high] = [least - pad, most + pad];
    /* On a phone letters of full size, too. */
    const WIDTH = Math.min(PLOT.right, widthHere());
    const left = WIDTH < PLOT.right ? Math.max(...rows.map((row) => letters(row.name))) * 1.05 + 8 : 112;
    const x = (value) => left + ((value - low) / (high - low)) * (WIDTH - 16 - left);
    const height = 34 + PLOT.row * rows.length;
    const named = { role: "img", "aria-label": TITLES[title] };
    const svg = make("svg", { class: "strip", viewBox: `0 0 ${WIDTH} ${height}`, ...named });
    const step = stepOf((high - low) / (WIDTH < 480 ? 3 : 5));
    for (let i = Math.ceil(low / step); i * step <= high; i++) {
      svg.append(
        make("path", { class: "grid", d: `M${x(i * step)} 8V${height - 22}` }),
        make("text", { class: "tick", x: x(i * step), y: height - 7 }, `${+(i * step).toPrecision(10)}`),
      );
    }
    rows.forEach((row, i) => {
      const y = PLOT.top + PLOT.row * i;
      const age = row.name === "this run" || rows.length === 1 ? "now" : "was";
      svg.append(make("text", { class: "lane", x: 0, y: y + 4 }, row.name));
      if (row.interval) {
        const [left, right] = row.interval.map(x);
        svg.append(make("path", { class: `band ${age}`, d: `M${left} ${y}h${Math.max(right - left, 1)}` }));
      }
      /* Scattered, so that equal rounds are seen to be several, and always the same. */
      const scattered = (k) => y + Math.round(((k * 0.618) % 1) * 22 - 11);
      const dots = row.values.map((value, k) => `M${x(value)} ${scattered(k)}h0`);
      svg.append(make("path", { class: `dots ${age}`, d: dots.join("") }));
      if (row.middle !== null) {
        svg.append(make("path", { class: `middle ${age}`, d: `M${x(row.middle)} ${y - 16}v32` }));
      }
    });
    if (limit !== null) {
      const isLeft = x(limit) > WIDTH - 100;
      const at = { x: x(limit) + (isLeft ? -5 : 5), y: 13, "text-anchor": isLeft ? "end" : "start" };
      svg.append(
        make("path", { class: "limit", d: `M${x(limit)} 6V${height - 22}` }),
        make("text", { class: "tick strong", ...at }, words),
      );
    }
    const dots = isPairs
      ? "dots are pairs, the line is their ratio"
      : "dots are rounds, the line is the median, the band its 99 % interval";
    const made = part(TITLES[title] + of, dots, svg);
    made.classList.toggle("open", isPairs || limit !== null);
    return made;
  }

  isNarrow.addEventListener("change", () => makeReachable(document));
  addEventListener("resize", () => makeReachable(document));
  makeReachable(document);
  for (const details of all("table.tests details")) {
    details.addEventListener("toggle", () => wake(details));
    wake(details);
  }
  addEventListener("load", openTarget);
})();
