// The flame graph: of the time of every function in every thread and slice of the run it sums what is chosen.
"use strict";

(() => {
  const source = document.getElementById("flame-data");
  if (!source) return;
  const data = JSON.parse(source.textContent);
  const part = (name) => document.getElementById(`flame-${name}`);
  const [controls, stateWords, readout] = [part("controls"), part("state"), part("readout")];
  const [threadBox, searchBox, fromBox, toBox] = ["thread", "search", "from", "to"].map(part);
  const box = document.getElementById("flame");
  const span = document.getElementById("timespan");
  const chosen = document.getElementById("timespan-chosen");

  const SVG = "http://www.w3.org/2000/svg";
  const ROW = 18;
  const LETTER = 6.7;
  // Narrower ones could neither be seen nor hit.
  const NARROWEST = 1.5;

  const count = data.parent.length;
  const lower = data.names.map((name) => name.toLowerCase());
  const sums = new Float64Array(count);
  const children = Array.from({ length: count }, () => []);
  for (let node = 1; node < count; node++) children[data.parent[node]].push(node);

  const size = data.cells.length / 2;
  const cellNode = new Uint32Array(size);
  const cellThread = new Uint32Array(size);
  const cellSlice = new Uint32Array(size);
  const cellTime = new Float64Array(size);
  for (let i = 0, key = 0; i < size; i++) {
    key += data.cells[2 * i];
    cellSlice[i] = key % data.slices;
    const rest = Math.floor(key / data.slices);
    cellThread[i] = rest % data.group.length;
    cellNode[i] = Math.floor(rest / data.group.length);
    cellTime[i] = data.cells[2 * i + 1] * data.unit_ns;
  }

  const state = { zoom: 0, focus: 0, from: 0, to: data.slices };
  let all = 1;

  const percent = (share) => {
    const value = share * 100;
    if (value > 0 && value < 0.01) return "<0.01 %";
    const digits = value >= 10 || value === 0 ? 0 : value >= 1 ? 1 : 2;
    return `${value.toFixed(digits)} %`;
  };
  const time = (ns) => {
    for (const [unit, of] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) {
      if (ns >= of) return `${Number((ns / of).toPrecision(3))} ${unit}`;
    }
    return `${Math.round(ns)} ns`;
  };
  const name = (node) => data.names[data.name[node]];

  const isChosen = () => {
    const { value } = threadBox;
    const number = Number(value.slice(1));
    if (value.startsWith("t")) return (thread) => thread === number;
    if (value.startsWith("n")) return (thread) => data.group[thread] === data.group[number];
    return () => true;
  };
  const sum = () => {
    const wanted = isChosen();
    const threads = Uint8Array.from(data.group, (_, thread) => (wanted(thread) ? 1 : 0));
    sums.fill(0);
    for (let i = 0; i < size; i++) {
      const slice = cellSlice[i];
      if (threads[cellThread[i]] && slice >= state.from && slice < state.to) {
        sums[cellNode[i]] += cellTime[i];
      }
    }
    for (let node = count - 1; node > 0; node--) sums[data.parent[node]] += sums[node];
    all = sums[0] || 1;
  };
  sum();
  // The order stays whatever is chosen later, so that functions are found where they were.
  const order = Float64Array.from(sums);
  for (const list of children) list.sort((a, b) => order[b] - order[a]);

  const words = (node) => {
    const share = `${percent(sums[node] / all)} of ${state.filter || "all thread time"}, ${time(sums[node])}`;
    const place = data.names[data.place[node]];
    return [name(node), share, place].filter(Boolean).join("\n");
  };

  // What is drawn, by node, and how it lies.
  let drawn = new Map();
  const layout = () => {
    const width = Math.max(box.clientWidth, 100);
    const places = [];
    const above = [];
    for (let node = state.zoom; node !== 0; ) above.unshift((node = data.parent[node]));
    for (const [row, node] of above.entries()) places.push({ node, row, x: 0, width, above: true });
    const scale = width / (sums[state.zoom] || 1);
    const stack = [{ node: state.zoom, row: above.length, x: 0, width }];
    while (stack.length) {
      const place = stack.pop();
      places.push(place);
      let x = place.x;
      for (const node of children[place.node]) {
        const width = sums[node] * scale;
        if (width >= NARROWEST) stack.push({ node, row: place.row + 1, x, width });
        x += width;
      }
    }
    return { width, places };
  };
  const element = (tag, attributes) => {
    const made = document.createElementNS(SVG, tag);
    for (const key in attributes) made.setAttribute(key, attributes[key]);
    return made;
  };
  const frame = ({ node, row, x, width, above }) => {
    const group = element("g", {
      class: `frame ${data.owner[node]}${above ? " above" : ""}`,
      role: "button",
      tabindex: node === state.focus ? 0 : -1,
      "data-node": node,
      "aria-label": name(node),
    });
    const height = ROW - 1;
    group.append(element("rect", { x: x.toFixed(1), y: row * ROW, width: Math.max(width - 0.5, 0.5).toFixed(1), height }));
    const room = Math.floor((width - 6) / LETTER);
    if (room > 2) {
      const label = element("text", { x: (x + 3).toFixed(1), y: row * ROW + 13 });
      const full = name(node);
      label.textContent = full.length <= room ? full : `${full.slice(0, room - 1)}…`;
      group.append(label);
    }
    return group;
  };

  const draw = () => {
    const { width, places } = layout();
    if (!places.some(({ node }) => node === state.focus)) state.focus = state.zoom;
    const rows = places.reduce((most, place) => Math.max(most, place.row), 0) + 1;
    const picture = element("svg", { class: "flame", width, height: rows * ROW, role: "group", "aria-label": "Thread time by call chain" });
    drawn = new Map();
    for (const place of places) {
      const group = frame(place);
      drawn.set(place.node, { group, ...place });
      picture.append(group);
    }
    const hadFocus = box.contains(document.activeElement);
    box.replaceChildren(picture);
    if (hadFocus) drawn.get(state.focus)?.group.focus({ preventScroll: true });
    mark();
  };

  // What matches is marked; what lies below a match counts with it.
  const mark = () => {
    const wanted = searchBox.value.trim().toLowerCase();
    const hits = lower.map((it) => wanted !== "" && it.includes(wanted));
    const matches = (node) => hits[data.name[node]] && data.owner[node] !== "o-threads";
    const below = new Uint8Array(count);
    let found = 0;
    const functions = new Set();
    for (let node = 1; node < count; node++) {
      const isHit = matches(node) && sums[node] > 0;
      if (isHit) functions.add(data.name[node]);
      if (isHit && !below[data.parent[node]]) found += sums[node];
      below[node] = isHit || below[data.parent[node]] ? 1 : 0;
    }
    box.classList.toggle("searched", wanted !== "");
    for (const [node, { group }] of drawn) group.classList.toggle("hit", matches(node));
    const said = [];
    if (wanted !== "") {
      const of = functions.size === 1 ? "1 name" : `${functions.size} names`;
      said.push(`“${searchBox.value.trim()}”: ${percent(found / all)} of ${state.filter || "all thread time"}, ${of}`);
    }
    if (state.zoom !== 0) said.push(`Zoomed to ${name(state.zoom)}, ${percent(sums[state.zoom] / all)}; Esc shows all`);
    if (state.filter) said.push(`Only ${state.filter}, ${time(sums[0])}`);
    stateWords.textContent = said.length ? `${said.join(". ")}.` : "";
    stateWords.hidden = said.length === 0;
  };

  const edges = () => [state.from, state.to].map((slice) => (slice / data.slices) * data.length_ns);
  const choose = () => {
    const parts = [];
    if (threadBox.value) parts.push(threadBox.selectedOptions[0].textContent.trim());
    if (state.from > 0 || state.to < data.slices) parts.push(edges().map(time).join(" to "));
    state.filter = parts.length ? `the time of ${parts.join(", ")}` : "";
    sum();
    if (sums[state.zoom] === 0) state.zoom = 0;
    draw();
    showRange();
  };
  const zoom = (node) => {
    state.zoom = node;
    state.focus = node;
    draw();
  };
  const setRange = (from, to) => {
    [state.from, state.to] = [from, to];
    if (fromBox) [fromBox.value, toBox.value] = [from, to];
    choose();
  };
  const reset = () => {
    threadBox.value = "";
    searchBox.value = "";
    state.zoom = 0;
    state.focus = 0;
    setRange(0, data.slices);
  };

  const nodeAt = (event) => {
    const group = event.target.closest?.(".frame");
    return group ? Number(group.dataset.node) : undefined;
  };
  const tell = (event) => {
    const node = nodeAt(event);
    if (node === undefined || !drawn.has(node)) return;
    const { group } = drawn.get(node);
    readout.textContent = words(node).replaceAll("\n", " · ");
    if (group.querySelector("title")) return;
    const title = element("title", {});
    title.textContent = words(node);
    group.append(title);
  };
  // What comes to lie under a resting pointer is not what is looked at.
  box.addEventListener("pointermove", tell);
  box.addEventListener("focusin", tell);
  box.addEventListener("click", (event) => {
    const node = nodeAt(event);
    if (node !== undefined) zoom(node);
  });

  // Arrows go along the calls.
  const beside = (node, step) => {
    const shown = children[data.parent[node]].filter((it) => drawn.has(it));
    return node === 0 ? undefined : shown[shown.indexOf(node) + step];
  };
  const steps = {
    ArrowUp: (node) => data.parent[node],
    ArrowDown: (node) => children[node].find((it) => drawn.has(it)),
    ArrowLeft: (node) => beside(node, -1),
    ArrowRight: (node) => beside(node, 1),
  };
  box.addEventListener("keydown", (event) => {
    const node = nodeAt(event);
    if (node === undefined) return;
    if (event.key === "Enter" || event.key === " ") zoom(node);
    else if (steps[event.key]) {
      const next = drawn.get(steps[event.key](node));
      if (next) {
        drawn.get(node).group.setAttribute("tabindex", -1);
        state.focus = next.node;
        next.group.setAttribute("tabindex", 0);
        next.group.focus();
      }
    } else return;
    event.preventDefault();
  });
  document.getElementById("calls").addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      event.preventDefault();
      reset();
    }
  });

  threadBox.addEventListener("change", choose);
  searchBox.addEventListener("input", mark);
  part("reset").addEventListener("click", reset);
  for (const [own, other] of [[fromBox, toBox], [toBox, fromBox]]) {
    own?.addEventListener("input", () => {
      if (Number(fromBox.value) >= Number(toBox.value)) {
        other.value = Number(own.value) + (own === fromBox ? 1 : -1);
      }
      setRange(Number(fromBox.value), Number(toBox.value));
    });
  }

  // A range of time is dragged, or begins with one click and ends with the next.
  const plots = () => [...span.querySelectorAll(".plot")].filter((it) => it.checkVisibility());
  const showRange = () => {
    if (!span || !chosen) return;
    const isAll = state.from === 0 && state.to === data.slices;
    chosen.hidden = isAll;
    const first = plots()[0];
    if (isAll || !first) return;
    const [plot, outer] = [first.getBoundingClientRect(), span.getBoundingClientRect()];
    const x = (slice) => (slice / data.slices) * plot.width;
    chosen.style.left = `${plot.left - outer.left + x(state.from)}px`;
    chosen.style.width = `${Math.max(x(state.to) - x(state.from), 2)}px`;
  };
  if (span && data.slices > 1) {
    span.classList.add("selectable");
    let start;
    let pending;
    const sliceAt = (event) => {
      const { left, width } = plots()[0].getBoundingClientRect();
      const share = (event.clientX - left) / width;
      return Math.min(Math.max(Math.floor(share * data.slices), 0), data.slices - 1);
    };
    const show = (a, b) => {
      [state.from, state.to] = [Math.min(a, b), Math.max(a, b) + 1];
      showRange();
    };
    span.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || !event.target.closest(".plot")) return;
      start = sliceAt(event);
      span.setPointerCapture(event.pointerId);
      event.preventDefault();
    });
    span.addEventListener("pointermove", (event) => {
      if (start !== undefined) show(start, sliceAt(event));
    });
    span.addEventListener("pointercancel", () => { start = undefined; });
    span.addEventListener("pointerup", (event) => {
      if (start === undefined) return;
      const end = sliceAt(event);
      const isClick = end === start;
      const begin = isClick && pending !== undefined ? pending : start;
      pending = isClick && pending === undefined ? start : undefined;
      start = undefined;
      show(begin, end);
      setRange(state.from, state.to);
    });
  }

  let resized;
  new ResizeObserver(() => {
    cancelAnimationFrame(resized);
    resized = requestAnimationFrame(() => {
      if (Math.abs((box.firstElementChild?.clientWidth ?? 0) - box.clientWidth) > 1) draw();
      showRange();
    });
  }).observe(box);
  controls.hidden = false;
  readout.hidden = false;
  part("help").append(" Click on one, or press Enter, to zoom; Esc shows all again.");
  if (span && data.slices > 1) part("help").append(" Drag over the time above to choose a part of the run.");
  draw();
})();
