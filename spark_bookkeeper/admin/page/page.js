// The page: asks for the cluster's documents every two seconds and shows them. It sends nothing but GETs.

import { drawDisk, drawFragments, drawRanges } from "/draw.js";

const EVERY_MS = 2_000;
const at = (id) => document.getElementById(id);
const chosen = { log: null, ledger: null, below: null };
const seen = { bookies: null, marked: [], nextBelow: null, cluster: null };

function el(name, attributes = {}, ...content) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null) made.setAttribute(key, value);
  }
  made.append(...content.map((each) => each ?? ""));
  return made;
}
const cell = (content, kind = null) => el("td", { class: kind }, content);
const several = (number, what) => `${count(number)} ${what}${number === 1 ? "" : "s"}`;
const count = (value) => (value === null || value === undefined ? "–" : value.toLocaleString("en-US"));

function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let left = bytes;
  while (left >= 1024 && units.length > 1) { left /= 1024; units.shift(); }
  return `${left >= 10 || units[0] === "B" ? Math.round(left) : left.toFixed(1)} ${units[0]}`;
}
function duration(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7_200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172_800 ? `${Math.round(seconds / 3_600)} h` : `${Math.round(seconds / 86_400)} d`;
}
function time(ms) {
  const found = new Date(ms);
  // Whoever writes metadata may write any number.
  return ms > 0 && !Number.isNaN(found.getTime()) ? found.toISOString() : "unknown";
}
const ago = (ms, nowMs) => (ms > 0 ? `${duration(nowMs - ms)} ago` : "never");

async function ask(path) {
  const answer = await fetch(`/api/v1/${path}`, { signal: AbortSignal.timeout(9_000) });
  const document_ = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(document_.error ?? answer.statusText), { status: answer.status });
  return document_;
}

function showCluster(found) {
  at("cluster").textContent = `${found.metadata_service}${found.ledgers_root} · instance ${found.instance_id} · version ${found.version}`;
}

function showBookies(found) {
  // Within a second it is the same answer again, from which no rate follows.
  if (found.now_ms === seen.bookies?.now_ms) return;
  const before = new Map((seen.bookies?.bookies ?? []).map((each) => [each.bookie_id, each]));
  const passedMs = found.now_ms - (seen.bookies?.now_ms ?? found.now_ms);
  const rate = (each, key) => {
    const then = before.get(each.bookie_id)?.[key];
    if (each[key] === null || then === null || then === undefined || passedMs <= 0) return "–";
    // It counts from its start: fewer than before are those since it was started again.
    return `${size(1000 * Math.max(0, each[key] - (each[key] < then ? 0 : then)) / passedMs)}/s`;
  };
  at("bookies").replaceChildren(...found.bookies.map((each) => {
    const isSilent = !each.is_away && !each.answers;
    const state = isSilent ? "does not answer" : each.readonly_by ? `readonly, by ${each.readonly_by}` : each.state;
    const kind = each.state === "away" || isSilent ? "bad" : each.state === "readonly" ? "warn" : "good";
    const disk = el("td");
    if (each.disk_total_bytes) {
      const text = `${size(each.disk_free_bytes)} of ${size(each.disk_total_bytes)} free`;
      disk.append(drawDisk(each.disk_total_bytes, each.disk_free_bytes, text), text);
    }
    return el("tr", { "data-bookie": each.bookie_id }, cell(each.bookie_id), cell(state, kind),
      cell(count(each.ledger_count), "number"), disk, cell(rate(each, "written_bytes"), "number"),
      cell(rate(each, "read_bytes"), "number"), cell(each.version));
  }));
  seen.bookies = found;
}

function showHealing(found) {
  const nowMs = found.now_ms;
  const { marked, being_mended: mended, auditor } = found;
  if (marked === 0) seen.marked = [];
  else seen.marked.push({ ms: nowMs, marked });
  seen.marked = seen.marked.slice(-300);
  const peak = Math.max(0, ...seen.marked.map((each) => each.marked));
  const parts = [found.is_enabled ? "auto-recovery is enabled" : "auto-recovery is disabled",
    auditor ? `the auditor is ${auditor}` : "no auditor is elected: nothing is marked"];
  const many = marked < found.counts_at_most ? several(marked, "ledger") : `${count(marked)} ledgers or more`;
  parts.push(marked ? `${many} lack copies, ${count(mended)} are being mended` : "no ledger is marked");
  const first = seen.marked.find((each) => each.marked === peak);
  if (marked && first && first.marked > marked && peak < found.counts_at_most) {
    const perMs = (first.marked - marked) / Math.max(nowMs - first.ms, 1);
    parts.push(`${(1000 * perMs).toFixed(1)} a second, ${duration(marked / perMs)} left`);
  }
  at("healing").textContent = parts.join(" · ");
  at("healing").className = marked || !auditor || !found.is_enabled ? "warn" : "good";
  at("progress").hidden = !marked;
  at("progress").value = peak ? (peak - marked) / peak : 1;
  at("marks-table").hidden = !marked;
  at("marks").replaceChildren(...found.marks.map((each) => el("tr", {}, el("td", { class: "number" }, chooser("ledger", each.ledger_id)),
    cell(each.bookies.join(", ")), cell(ago(each.created_ms, nowMs)), cell(each.state))));
}

function chooser(what, value) {
  return el("button", { class: "link", type: "button", onclick: () => { chosen[what] = value; refresh(); } }, String(value));
}

function showLogs(found) {
  at("logs").replaceChildren(...found.logs.map((each) => {
    const consumers = el("td", { class: each.error ? "bad" : null }, each.error ?? "");
    for (const one of each.consumers) {
      consumers.append(el("div", { class: one.is_live ? null : "quiet" }, `${one.consumer}: ${count(one.lag)}${one.is_live ? "" : ", not live"}`));
    }
    return el("tr", { "data-log": each.log }, el("td", {}, chooser("log", each.log)), cell(count(each.rows), "number"),
      cell(size(each.size_bytes), "number"), cell(ago(each.last_commit_ms, found.now_ms)), consumers);
  }));
}

function facts(pairs) {
  return el("dl", {}, ...pairs.flatMap(([key, value]) => [el("dt", {}, key), el("dd", {}, value)]));
}

function showLog(found) {
  const short = found.under_replicated.map((each) => each.ledger_id).join(", ");
  const left = found.ranges_in_all > found.ranges.length ? `, the newest ${count(found.ranges.length)} drawn` : "";
  at("log").replaceChildren(el("h3", {}, `log ${found.log}`), facts([
    ["rows", `${count(found.base_row)} to ${count(found.next_row - 1)}, ${size(found.size_bytes)} in ${several(found.ranges_in_all, "range")}${left}`],
    ["columns", found.schema.map((each) => `${each.column} ${each.type}`).join(", ") || "plain values"],
    ["open ledger", found.open_ledger ? chooser("ledger", found.open_ledger.ledger_id) : "none"],
    ["transactions", Object.entries(found.transactions).map(([app, version]) => `${app}: ${version}`).join(", ") || "none"],
    ["ledgers that may lack copies", short || "none"],
  ]), drawRanges(found));
  at("log").hidden = false;
}

function showLedgers(found) {
  seen.nextBelow = found.next_below;
  at("older").disabled = found.next_below === null;
  at("ledgers").replaceChildren(...found.ledgers.map((each) => el("tr", { "data-ledger": each.ledger_id },
    el("td", { class: "number" }, chooser("ledger", each.ledger_id)), cell(each.state.toLowerCase(), each.state === "IN_RECOVERY" ? "warn" : null),
    cell(count(each.last_entry === null ? null : each.last_entry + 1), "number"), cell(size(each.length), "number"),
    cell(each.quorums), cell(count(each.fragments), "number"), cell([...each.away, ...each.held].join(", "), "bad"))));
}

function showLedger(found) {
  at("ledger").replaceChildren(el("h3", {}, `ledger ${found.ledger_id}`), facts([
    ["state", found.state.toLowerCase()],
    ["quorums", `ensemble ${found.ensemble_size}, write ${found.write_quorum}, ack ${found.ack_quorum}, digest ${found.digest_type}`],
    ["created", time(found.created_ms)],
    ["custom metadata", Object.entries(found.custom_metadata).map(([key, value]) => `${key} = ${value}`).join(", ") || "none"],
  ]), drawFragments(found));
  at("ledger").hidden = false;
}

async function showChosen(what, path, show) {
  if (chosen[what] === null) return;
  const sayNot = (error) => {
    at(what).replaceChildren(el("p", { class: "bad" }, `${what} ${chosen[what]}: ${error.message}`));
    at(what).hidden = false;
    chosen[what] = null;
  };
  let found;
  try {
    found = await ask(path + encodeURIComponent(chosen[what]));
  } catch (error) {
    if (error.status === undefined || error.status === 503) throw error;
    sayNot(error);
    return;
  }
  try {
    show(found);
  } catch (error) {
    sayNot(error);
  }
}

let asking = null;
let timer = null;
async function look() {
  seen.cluster ??= await ask("cluster");
  showCluster(seen.cluster);
  const below = chosen.below === null ? "" : `?below=${chosen.below}`;
  // Each by itself: what cannot be shown of one thing keeps nobody from seeing the others.
  const asked = await Promise.allSettled([
    ask("bookies").then(showBookies),
    ask("replication").then(showHealing),
    ask("logs").then(showLogs),
    ask(`ledgers${below}`).then(showLedgers),
    showChosen("log", "logs/", showLog),
    showChosen("ledger", "ledgers/", showLedger),
  ]);
  const failed = asked.filter((each) => each.status === "rejected");
  if (failed.length) throw failed[0].reason;
}

async function refresh() {
  clearTimeout(timer);
  if (asking) await asking;
  clearTimeout(timer);
  asking = look().then(() => {
    at("state").textContent = `as of ${new Date().toLocaleTimeString("en-GB")}`;
    at("state").className = "";
  }, (error) => {
    // What is shown stays, with the time that it is of.
    const was = at("state").textContent.replace(/^no answer.*?; /, "");
    at("state").textContent = `no answer: ${error.message}; ${was}`;
    at("state").className = "bad";
    seen.cluster = null;
  });
  await asking;
  asking = null;
  clearTimeout(timer);
  timer = setTimeout(refresh, EVERY_MS);
}

at("find").addEventListener("submit", (event) => {
  event.preventDefault();
  chosen.ledger = at("ledger-id").value.trim() || null;
  refresh();
});
at("newest").addEventListener("click", () => { chosen.below = null; refresh(); });
at("older").addEventListener("click", () => { chosen.below = seen.nextBelow; refresh(); });
refresh();
