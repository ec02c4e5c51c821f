// Opens the HTML reports of `sample_report` in chromium, from disk, and checks what only a browser
// can: that nothing is loaded, nothing is refused by the content policy, no name of the measured
// program runs as a script, and the controls work.
//
//   npm ci && npm test                   writes the samples with cargo first
//   REPORTS=directory npm test           takes samples that are already there
//   SCREENSHOTS=directory npm test       leaves a picture of every report there
//   CHROMIUM=path npm test               takes another chromium

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";

import { chromium } from "playwright-core";

const root = resolve(fileURLToPath(import.meta.url), "../../..");
// What its own elements took in the hour's page where nothing else ran.
const QUIET_REFERENCE_MS = 200;
const scratch = mkdtempSync(join(tmpdir(), "linewise-browser-"));
const names = [
  "everyday",
  "profiled",
  "traced",
  "hostile",
  "quiet",
  "too-short",
  "crowd",
  "calls",
  "calls-hostile",
  "hour",
  "diff",
  "diff-hostile",
];
let reports = process.env.REPORTS;
let browser;

function findChromium() {
  const candidates = [
    process.env.CHROMIUM,
    "/usr/bin/chromium",
    "/usr/bin/chromium-browser",
    "/usr/bin/google-chrome",
  ];
  const found = candidates.find((path) => path && existsSync(path));
  assert.ok(found, "no chromium: install the package chromium, or set CHROMIUM to its path");
  return found;
}

before(async () => {
  if (!reports) {
    reports = join(scratch, "reports");
    // Without a package, as the tests build it: choosing one would compile half of the world again.
    const command = ["run", "--quiet", "--example", "sample_report"];
    execFileSync("cargo", [...command, "--", reports], { cwd: root, stdio: "inherit" });
  }
  browser = await chromium.launch({
    executablePath: findChromium(),
    args: [
      "--no-sandbox",
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
    ],
  });
});

after(async () => {
  await browser?.close();
  rmSync(scratch, { recursive: true, force: true });
});

/** Opens `file` and collects everything that must not happen. */
async function open(file, options = {}) {
  const context = await browser.newContext({
    viewport: { width: 1280, height: 900 },
    ...options,
  });
  const page = await context.newPage();
  const trouble = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) trouble.push(`console: ${message.text()}`);
  });
  page.on("pageerror", (error) => trouble.push(`exception: ${error}`));
  page.on("dialog", (dialog) => {
    trouble.push(`dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  const address = pathToFileURL(file).href;
  page.on("request", (request) => {
    if (request.url() !== address) trouble.push(`request: ${request.url()}`);
  });
  if (options.javaScriptEnabled !== false) {
    await page.addInitScript(() => {
      window.violations = [];
      document.addEventListener("securitypolicyviolation", (event) => {
        window.violations.push(`${event.violatedDirective} ${event.blockedURI}`);
      });
    });
  }
  await page.goto(address);
  return {
    page,
    close: () => context.close(),
    async trouble() {
      const violations = await page.evaluate(() => window.violations ?? []);
      return [...trouble, ...violations.map((text) => `policy: ${text}`)];
    },
  };
}

const sample = (name) => join(reports, `${name}.html`);

test("every report opens from disk without errors, violations or requests", async () => {
  for (const name of names) {
    for (const colorScheme of ["light", "dark"]) {
      const { page, trouble, close } = await open(sample(name), { colorScheme });
      assert.ok(await page.locator("h1").innerText(), name);
      assert.deepEqual(await trouble(), [], name);
      if (process.env.SCREENSHOTS) {
        const path = join(process.env.SCREENSHOTS, `${name}-${colorScheme}.png`);
        await page.screenshot({ path, fullPage: true });
      }
      await close();
    }
  }
});

test("a page that misbehaves would be noticed", async () => {
  const bad = readFileSync(sample("hostile"), "utf8").replace(
    "<main>",
    "<main><script>window.injected = true</script><p style='color: red'>red</p>" +
      "<img src='http://127.0.0.1:9/x.png'>",
  );
  const file = join(scratch, "bad.html");
  writeFileSync(file, bad);
  const { page, trouble, close } = await open(file);
  const seen = (await trouble()).join("\n");
  assert.match(seen, /policy: script-src/);
  assert.match(seen, /policy: style-src/);
  assert.match(seen, /policy: img-src/);
  assert.equal(await page.evaluate(() => window.injected), undefined, "the policy blocks it, too");
  await close();
});

test("the first finding and the matrix are there", async () => {
  const { page, close } = await open(sample("everyday"));
  const first = page.locator("#findings article").first();
  assert.match(await first.innerText(), /False sharing[\s\S]*counters[\s\S]*38 %/);
  assert.match(await first.innerText(), /count_words[\s\S]*counters\.c:31/);
  const row = first.locator("table.line tr").nth(2);
  assert.equal(await row.locator("td").count(), 64);
  assert.equal(await row.innerText().then((text) => text.match(/U/g).length), 8);
  const cells = page.locator("#matrix-threads svg.matrix:not(.scale) .cell");
  assert.equal(await cells.count(), 8);
  assert.ok(await cells.first().isVisible());
  await close();
});

test("the first screen has the place and the whole change, also on a phone", async () => {
  for (const [width, height] of [[1280, 800], [390, 844]]) {
    const { page, close } = await open(sample("everyday"), { viewport: { width, height } });
    const first = page.locator("#findings article").first();
    for (const part of [".where", ".change .source"]) {
      const { y, height: high } = await first.locator(part).last().boundingBox();
      assert.ok(y + high <= height, `${part} ends at ${y + high} of ${height}`);
    }
    await close();
  }
});

test("the tabs switch between threads and CPUs and between the kinds", async () => {
  const { page, trouble, close } = await open(sample("everyday"));
  const threads = page.locator("#matrix-threads");
  const cpus = page.locator("#matrix-cpus");
  const values = (kind) => threads.locator(`.value.${kind}:visible`).count();
  assert.deepEqual([await threads.isVisible(), await cpus.isVisible()], [true, false]);
  assert.deepEqual([await values("all"), await values("true")], [8, 0]);

  await page.getByRole("button", { name: "True", exact: true }).click();
  assert.deepEqual([await values("all"), await values("true")], [0, 8]);
  const kinds = page.locator("[data-kind]");
  const pressed = await kinds.evaluateAll((all) => all.map((b) => b.getAttribute("aria-pressed")));
  assert.deepEqual(pressed, ["false", "true", "false"]);

  await page.getByRole("button", { name: "CPUs", exact: true }).click();
  assert.deepEqual([await threads.isVisible(), await cpus.isVisible()], [false, true]);
  assert.ok((await cpus.locator(".value.true:visible").count()) > 0, "the kind stays");

  await cpus.locator("svg.matrix:not(.scale) .cell").first().hover();
  assert.match(await cpus.locator(".readout").innerText(), /CPU \d and CPU \d: .* a second/);
  assert.deepEqual(await trouble(), []);
  await close();
});

test("the pictures of an exact run are there and answer the pointer", async () => {
  const { page, trouble, close } = await open(sample("traced"));
  const caches = page.locator("#caches");
  assert.match(await caches.innerText(), /L1d 48 KiB[\s\S]*false sharing/);
  assert.equal(await caches.locator("svg.chart rect.hit").count(), 3, "a bar for each level");
  const reuse = page.locator("#reuse svg.chart");
  assert.equal(await reuse.count(), 3, "private, shared, and one by element");
  const bars = reuse.first().locator(".bin");
  assert.ok((await bars.count()) > 16);
  assert.match(await bars.nth(3).locator("title").textContent(), /B to .* %/);
  const { height } = await bars.first().locator("rect:not(.catch)").boundingBox();
  assert.ok(height > 20, `the commonest distance has a bar of ${height} pixels`);
  const curve = page.locator("#curve svg.chart");
  assert.equal(await curve.locator("path.private, path.shared").count(), 2);
  assert.equal(await curve.locator("circle.dot").count(), 3, "a dot for each simulated cache");
  assert.match(await page.locator("#prefetch .verdict").innerText(), /will help/);
  assert.deepEqual(await trouble(), []);
  await close();
});

test("a run that was sampled has no pictures of an exact one", async () => {
  const { page, close } = await open(sample("everyday"));
  assert.equal(await page.locator("#caches, #reuse, #curve, #prefetch").count(), 0);
  await close();
});

test("the table of types breaks no word and leaves out what nothing is said of", async () => {
  for (const width of [1280, 800]) {
    const { page, close } = await open(sample("profiled"), { viewport: { width, height: 900 } });
    const table = page.locator("#types table.types");
    const heads = await table.locator("th").allInnerTexts();
    assert.ok(heads.includes("Declared") && heads.includes("Allocated by"), heads.join());
    assert.ok(!heads.includes("Misses"), "no access of a sampled run is known to miss");
    const declared = table.locator("td.file").first();
    assert.equal(await declared.innerText(), "both.c:12");
    const lines = await declared.evaluate((cell) => {
      const range = document.createRange();
      range.selectNodeContents(cell);
      return new Set([...range.getClientRects()].map((rect) => rect.top)).size;
    });
    assert.equal(lines, 1, `${width} pixels wide`);
    await close();
  }
});

test("the layout that the use of a type suggests opens with its members", async () => {
  const { page, trouble, close } = await open(sample("profiled"));
  const details = page.locator("#types details").first();
  const tables = details.locator("table");
  const visible = () => tables.evaluateAll((all) => all.filter((table) => table.checkVisibility()).length);
  assert.equal(await tables.count(), 2, "the members, and what numbers were reached through");
  assert.equal(await visible(), 0);
  await details.locator("summary").click();
  assert.equal(await visible(), 2);
  assert.match(
    await details.innerText(),
    /flag[\s\S]*padding[\s\S]*Reached through[\s\S]*server\.both[\s\S]*suggests[\s\S]*_Alignas\(64\)/,
  );
  assert.deepEqual(await trouble(), []);
  await close();
});

test("the paths of objects are drawn from allocation to end, other threads in bold", async () => {
  const { page, trouble, close } = await open(sample("profiled"));
  const flow = page.locator("#flow svg.flow");
  assert.equal(await flow.count(), 1);
  assert.equal(await flow.locator("rect").count(), 5);
  assert.deepEqual(
    [await flow.locator("path.edge").count(), await flow.locator("path.edge.bold").count()],
    [4, 1],
  );
  const top = async (name) => (await flow.getByText(name, { exact: true }).first().boundingBox()).y;
  const heights = [await top("make"), await top("fill"), await top("consume")];
  assert.deepEqual(heights, [...heights].sort((a, b) => a - b), "time runs downwards");
  // No box lies over another.
  const boxes = await flow.locator("rect").evaluateAll((all) =>
    all.map((rect) => rect.getBoundingClientRect().toJSON()),
  );
  for (const [i, a] of boxes.entries()) {
    for (const b of boxes.slice(i + 1)) {
      const apart = a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
      assert.ok(apart, `${JSON.stringify(a)} and ${JSON.stringify(b)}`);
    }
  }
  assert.match(await flow.locator("g title").nth(2).textContent(), /consume .* first level 62/);
  const paths = page.locator("#flow details");
  await paths.locator("summary").click();
  assert.equal(await paths.locator("tbody tr:visible").count(), 2);
  assert.deepEqual(await trouble(), []);
  await close();
});

test("a comparison tells what is gone first and keeps the noise apart", async () => {
  const { page, trouble, close } = await open(sample("diff"));
  const changes = page.locator("#changes");
  assert.match(await changes.innerText(), /gone[\s\S]*counters/);
  assert.ok(await page.locator("#noise").isVisible());
  const cells = await changes.locator("tbody tr").first().locator("td").allInnerTexts();
  assert.equal(cells.length, 5);
  assert.match(cells[2], /%/);
  assert.deepEqual(await trouble(), []);
  await close();
});

test("hostile names remain text in a comparison, too", async () => {
  const { page, trouble, close } = await open(sample("diff-hostile"));
  assert.match(await page.locator("main").innerText(), /<\/script><script>alert\(1\)/);
  assert.equal(await page.locator("script").count(), 1);
  assert.equal(await page.locator("img").count(), 0);
  assert.deepEqual(await trouble(), []);
  await close();
});

test("the proposed source can be copied or is selected", async () => {
  const { page, trouble, close } = await open(sample("everyday"));
  const button = page.locator("button.copy").first();
  await button.click();
  await page.waitForFunction(() => document.querySelector("button.copy").textContent !== "Copy");
  if ((await button.innerText()) === "Selected") {
    const selected = await page.evaluate(() => getSelection().toString());
    assert.match(selected, /struct counter \{\n {4}long hits;/);
  }
  assert.deepEqual(await trouble(), []);
  await close();
});

test("hostile names remain text", async () => {
  const { page, trouble, close } = await open(sample("hostile"));
  const title = await page.locator("#findings article h3").first().innerText();
  assert.ok(title.startsWith("</script><script>alert(1)</script>\"'<img src=x"), title);
  assert.equal(await page.locator("script").count(), 1);
  assert.equal(await page.locator("img").count(), 0);
  assert.deepEqual(await trouble(), []);
  await close();
});

test("the content is readable without scripts", async () => {
  const { page, close } = await open(sample("everyday"), { javaScriptEnabled: false });
  for (const id of ["#matrix-threads", "#matrix-cpus", "#findings", "#time", "#threads"]) {
    assert.ok(await page.locator(id).isVisible(), id);
  }
  assert.equal(await page.locator("button:visible").count(), 0, "no button without its function");
  await close();
});

test("a phone scrolls the drawings, not the page", async () => {
  for (const name of names) {
    const { page, close } = await open(sample(name), { viewport: { width: 375, height: 800 } });
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(width <= 375, `${name} is ${width} pixels wide`);
    if (process.env.SCREENSHOTS) {
      const path = join(process.env.SCREENSHOTS, `${name}-phone.png`);
      await page.screenshot({ path, fullPage: true });
    }
    await close();
  }
});

test("a crowd of threads keeps a usable matrix", async () => {
  const { page, trouble, close } = await open(sample("crowd"));
  const matrix = page.locator("#matrix-threads svg.matrix:not(.scale)");
  const { width, height } = await matrix.boundingBox();
  assert.ok(width < 1080 && height < 900, `${width} x ${height}`);
  const labels = matrix.locator("text.label");
  assert.equal(await labels.count(), 66);
  assert.deepEqual(await trouble(), []);
  await close();
});

const frames = (page) => page.locator("#flame .frame");
const frame = (page, name) => page.locator(`#flame .frame[aria-label="${name}"]`);
const widthOf = async (locator) => (await locator.boundingBox()).width;

test("a function of the flame graph zooms by click and by keyboard, and Escape shows all", async () => {
  const { page, trouble, close } = await open(sample("calls"));
  assert.equal(await frames(page).count(), 8);
  const before = await widthOf(frame(page, "write_log").locator("rect"));
  await frame(page, "write_log").click();
  const after = await widthOf(frame(page, "write_log").locator("rect"));
  assert.ok(after > 8 * before, `${before} to ${after} pixels`);
  assert.equal(await frame(page, "reply").count(), 0);
  assert.match(await page.locator("#flame-state").innerText(), /Zoomed to write_log, 10 %/);
  await frame(page, "all threads").click();
  assert.equal(await frames(page).count(), 8, "a click on the root shows all");

  await frame(page, "all threads").focus();
  for (const key of ["ArrowDown", "ArrowDown", "ArrowDown", "Enter"]) await page.keyboard.press(key);
  assert.match(await page.locator("#flame-state").innerText(), /Zoomed to reply/);
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute("aria-label")), "reply");
  assert.match(await page.locator("#flame-readout").innerText(), /reply · 90 % of .*9 s · .*reply\.c:118/);
  await page.keyboard.press("Escape");
  assert.equal(await frames(page).count(), 8);
  assert.equal(await page.locator("#flame-state").isVisible(), false);
  assert.deepEqual(await trouble(), []);
  await close();
});

test("a search tells the share of what matches, each call once", async () => {
  const { page, trouble, close } = await open(sample("calls"));
  const state = page.locator("#flame-state");
  await page.locator("#flame-search").fill("memc");
  assert.match(await state.innerText(), /“memc”: 60 % of all thread time, 1 name/);
  assert.equal(await page.locator("#flame .hit").count(), 1);
  // `reply` calls `memcpy`.
  await page.locator("#flame-search").fill("e");
  assert.match(await state.innerText(), /“e”: 100 % of all thread time, 4 names/);
  await page.locator("#flame-search").fill("nothing");
  assert.match(await state.innerText(), /“nothing”: 0 %/);
  assert.deepEqual(await trouble(), []);
  await close();
});

test("threads and a range of time are chosen for the flame graph", async () => {
  const { page, trouble, close } = await open(sample("calls"));
  const state = page.locator("#flame-state");
  await page.locator("#flame-thread").selectOption("log 4103");
  assert.deepEqual(await frames(page).evaluateAll((all) => all.map((it) => it.getAttribute("aria-label"))), [
    "all threads",
    "log",
    "write_log",
    "the kernel",
  ]);
  assert.match(await state.innerText(), /Only the time of log 4103, 1 s/);
  await page.locator("#flame-thread").selectOption("worker (2 threads)");
  assert.match(await state.innerText(), /Only the time of worker \(2 threads\), 9 s/);
  await page.locator("#flame-reset").click();

  // The first half, dragged over a lane: only one worker and the log ran.
  const plot = await page.locator("#timespan .lane .plot").first().boundingBox();
  const y = plot.y + plot.height / 2;
  await page.mouse.move(plot.x + 1, y);
  await page.mouse.down();
  await page.mouse.move(plot.x + plot.width / 2 - 3, y, { steps: 4 });
  await page.mouse.up();
  assert.match(await state.innerText(), /Only the time of 0 ns to 3 s, 4 s/);
  assert.ok(await page.locator("#timespan-chosen").isVisible());
  // Two clicks say the same as dragging.
  await page.mouse.click(plot.x + plot.width / 2 + 2, y);
  await page.mouse.click(plot.x + plot.width - 2, y);
  assert.match(await state.innerText(), /Only the time of 3 s to 6 s, 6 s/);
  // So does the keyboard.
  await page.locator("#flame-from").focus();
  await page.keyboard.press("Home");
  assert.equal(await state.isVisible(), false);
  assert.deepEqual(await trouble(), []);
  await close();
});

test("names of functions and threads that are markup remain text in what the script makes", async () => {
  const { page, trouble, close } = await open(sample("calls-hostile"));
  const label = await frames(page).nth(1).getAttribute("aria-label");
  assert.ok(label.startsWith("</script><script>alert(1)</script>\"'<img src=x"), label);
  await frames(page).nth(1).hover();
  await frames(page).nth(1).click();
  assert.equal(await page.locator("script").count(), 1);
  assert.equal(await page.locator("img").count(), 0);
  assert.deepEqual(await trouble(), []);
  await close();
});

test("without scripts the calls and the lanes of threads are pictures", async () => {
  const { page, close } = await open(sample("calls"), { javaScriptEnabled: false });
  assert.equal(await page.locator("#flame svg g.frame").count(), 8);
  assert.equal(await page.locator("#timespan .lane").count(), 3);
  assert.equal(await page.locator("button:visible, select:visible, input:visible").count(), 0);
  await page.locator("#code summary").first().click();
  assert.match(await page.locator("#code table").first().innerText(), /40 %\s+118\s+total \+=/);
  await close();
});

test("an hour of 200 threads is a small page that opens and answers at once", async () => {
  const file = sample("hour");
  const { size } = statSync(file);
  assert.ok(size < 5_000_000, `${size} bytes`);
  // The machine may be busy or slow: the best of five, held against what elements of our own take in the same page.
  const best = { open: Infinity, zoom: Infinity, search: Infinity, thread: Infinity, range: Infinity, reference: Infinity };
  for (let i = 0; i < 5; i++) {
    const begin = performance.now();
    const { page, close } = await open(file);
    await page.locator("#flame .frame").first().waitFor();
    best.open = Math.min(best.open, performance.now() - begin);
    const times = await page.evaluate(async () => {
      const part = (name) => document.getElementById(`flame-${name}`);
      const say = (name, value, event) => () => {
        part(name).value = value;
        part(name).dispatchEvent(new Event(event, { bubbles: true }));
      };
      const reference = () => {
        const drawing = document.createElementNS("http://www.w3.org/2000/svg", "svg");
        for (let i = 0; i < 20000; i++) {
          const one = document.createElementNS("http://www.w3.org/2000/svg", "rect");
          for (const [name, value] of [["x", i % 100], ["y", i % 70], ["width", 5], ["height", 5]]) {
            one.setAttribute(name, value);
          }
          drawing.append(one);
        }
        document.body.append(drawing);
        drawing.getBoundingClientRect();
        drawing.remove();
      };
      const acts = {
        zoom: () => document.querySelectorAll("#flame .frame")[2].dispatchEvent(new MouseEvent("click", { bubbles: true })),
        search: say("search", "handle_1", "input"),
        thread: say("thread", "t7", "change"),
        range: say("to", "2", "input"),
        // Last, since what it leaves is cleared away beside what comes next.
        reference,
      };
      const times = {};
      for (const [name, act] of Object.entries(acts)) {
        const begin = performance.now();
        act();
        // Layout counts, too.
        document.getElementById("flame").getBoundingClientRect();
        times[name] = performance.now() - begin;
        await new Promise(requestAnimationFrame);
      }
      return times;
    });
    for (const [name, time] of Object.entries(times)) best[name] = Math.min(best[name], time);
    await close();
  }
  const { open: opened, reference, ...acts } = best;
  // As slow as the machine is, beside the one on which the bars were met.
  const slow = Math.max(1, reference / QUIET_REFERENCE_MS);
  console.log(`hour: ${size} bytes, milliseconds: ${JSON.stringify(best)}`);
  assert.ok(opened < 2000 * slow, `${opened} ms to open, ${slow} times as slow`);
  for (const [name, time] of Object.entries(acts)) assert.ok(time < 100 * slow, `${name}: ${time} ms, ${slow} times as slow`);
});
