// node check.mjs URL MACHINES BROWSER DIRECTORY
// Looks at the page in a browser, and prints what it found as JSON. Pictures go into DIRECTORY.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import puppeteer from "puppeteer-core";

const [url, wanted, executablePath, directory] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const found = { machines: {}, violations: [], errors: [], widths: {}, focus: [] };

const browser = await puppeteer.launch({ executablePath, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
try {
  const page = await browser.newPage();
  page.on("pageerror", (e) => found.errors.push(String(e)));
  page.on("console", (message) => message.type() === "error" && found.errors.push(message.text()));
  await page.setViewport({ width: 1250, height: 900 });
  await page.goto(url);
  const rows = (n) => document.querySelectorAll("#machines .grid .body [role=row]").length === n;
  await page.waitForFunction(rows, { timeout: 60000 }, Number(wanted));
  const serve = (n) => document.querySelectorAll("#machines .grid .body .state.serving").length === n;
  await page.waitForFunction(serve, { timeout: 120000 }, Number(wanted));
  found.machines.rows = Number(wanted);
  found.machines.serving = await page.$$eval("#machines .grid .body .state.serving", (all) => all.length);
  found.machines.chip = await page.$eval("#states .chip:has(.state.serving)", (chip) => chip.textContent);
  // The page allows no foreign script, so the debugger brings it.
  const judge = async (name) => {
    // Colours that still change would be judged half-way.
    await page.evaluate(async () => {
      const frame = () => new Promise((done) => requestAnimationFrame(done));
      await frame();
      await Promise.allSettled(document.getAnimations().map((animation) => animation.finished));
      await frame();
    });
    await page.evaluate(axe);
    const { violations } = await page.evaluate(() => axe.run(document));
    for (const v of violations) found.violations.push(`${name}: ${v.id}: ${v.nodes.map((n) => n.target).join("; ")}`);
    found.widths[name] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    await page.screenshot({ path: `${directory}/${name}.png`, fullPage: true });
  };
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "light" }]);
  await page.waitForFunction(() => !matchMedia("(prefers-color-scheme: dark)").matches);
  found.light = await background();
  await judge("light");
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "dark" }]);
  await page.waitForFunction(() => matchMedia("(prefers-color-scheme: dark)").matches);
  found.dark = await background();
  await judge("dark");
  await page.setViewport({ width: 390, height: 844, isMobile: true });
  await judge("phone");
  await page.setViewport({ width: 1250, height: 900 });
  // The keyboard alone opens a machine and closes it.
  await page.focus(".skip");
  for (let step = 0; step < 40; step += 1) {
    const at = await page.evaluate(() => document.activeElement.getAttribute("href") || document.activeElement.id || document.activeElement.tagName);
    found.focus.push(at);
    if (at.startsWith("#machine/")) break;
    await page.keyboard.press("Tab");
  }
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.getElementById("machine").open, { timeout: 30000 });
  await page.waitForFunction(() => document.getElementById("machine").textContent.includes("VsphereAgent"), { timeout: 30000 });
  await judge("machine");
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => !document.getElementById("machine").open, { timeout: 30000 });
  // The page goes back by itself when a machine is closed.
  await page.waitForFunction(() => !location.hash.startsWith("#machine/"), { timeout: 30000 });
  await page.click("#tab-actors");
  await page.waitForSelector("#actors:not([hidden])");
  await judge("actors");
} finally {
  await browser.close();
}
console.log(JSON.stringify(found));
