// Drawings: what takes up how much of what, as SVG. Text is set as text, never as markup.

const SPACE = "http://www.w3.org/2000/svg";
const WIDTH = 1000;
const LABELS = 170;

function node(name, attributes, text) {
  const made = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function bar(kind, x, y, width, height, title) {
  const made = node("rect", { class: kind, x, y, width: Math.max(width, 1), height, rx: 1.5 });
  made.append(node("title", {}, title));
  return made;
}

function canvas(height, label) {
  return node("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": label });
}

/** A disk: how much of it is used. */
export function drawDisk(total, free, title) {
  const made = node("svg", { viewBox: "0 0 150 10", class: "disk", role: "img", "aria-label": title });
  const used = 150 * (total - free) / total;
  made.append(bar("track", 0, 0, 150, 10, title), bar(free / total < 0.1 ? "full" : "bar", 0, 0, used, 10, title));
  return made;
}

/** A ledger: a row for each place of the ensemble, a box for each fragment, as wide as it has entries. */
export function drawFragments(ledger) {
  const { fragments, last_entry: last } = ledger;
  const places = ledger.ensemble_size;
  const starts = fragments.map((each) => each.first_entry);
  // What is not closed has no end yet: its last fragment is drawn as wide as an average one.
  const known = Math.max((last ?? starts.at(-1)) + 1, 1);
  const end = last === null ? known + Math.max(known / fragments.length, 1) : known;
  const scale = (WIDTH - 4) / end;
  const made = canvas(places * 34 + 22, `fragments of ledger ${ledger.ledger_id}`);
  fragments.forEach((fragment, index) => {
    const from = starts[index];
    const to = starts[index + 1] ?? end;
    const isOpen = last === null && index === fragments.length - 1;
    fragment.ensemble.forEach((bookie, place) => {
      const isAway = fragment.away.includes(bookie);
      const kind = isAway ? "away" : isOpen ? "open" : index % 2 ? "bar-alt" : "bar";
      const ids = isOpen ? `entries ${from} and on` : `entries ${from} to ${to - 1}`;
      const width = (to - from) * scale - 1;
      made.append(bar(kind, from * scale, place * 34, width, 14, `${bookie}: ${ids}${isAway ? ", away" : ""}`));
      if (width > 8 * bookie.length * 0.85) {
        made.append(node("text", { x: from * scale + 3, y: place * 34 + 26, class: "quiet-text" }, bookie));
      }
    });
  });
  made.append(node("text", { x: 0, y: places * 34 + 14, class: "quiet-text" }, "entry 0"));
  const reach = last === null ? "still written" : last < 0 ? "empty" : `entry ${last}`;
  made.append(node("text", { x: WIDTH, y: places * 34 + 14, "text-anchor": "end", class: "quiet-text" }, reach));
  return made;
}

/** A log: its ranges over its rows, each as wide as it has rows, and where its consumers are. */
export function drawRanges(log) {
  const { ranges, consumers } = log;
  const first = ranges.length ? ranges[0].first_row : log.base_row;
  const end = Math.max(log.next_row, first + 1);
  const scale = (WIDTH - LABELS) / (end - first);
  const made = canvas(40 + 18 * consumers.length, `ranges of log ${log.log}`);
  ranges.forEach((range, index) => {
    const title = `ledger ${range.ledger_id}, entries ${range.first_entry} to ${range.last_entry}: `
      + `rows ${range.first_row} to ${range.first_row + range.rows - 1}`;
    const x = (range.first_row - first) * scale;
    made.append(bar(index % 2 ? "bar-alt" : "bar", x, 0, range.rows * scale - (range.rows * scale > 3 ? 1 : 0), 18, title));
  });
  if (log.open_ledger) made.append(bar("open", WIDTH - LABELS, 0, 10, 18, `ledger ${log.open_ledger.ledger_id} is open`));
  made.append(node("text", { x: 0, y: 32, class: "quiet-text" }, `row ${first}`));
  made.append(node("text", { x: WIDTH - LABELS, y: 32, "text-anchor": "end", class: "quiet-text" }, `row ${end - 1}`));
  consumers.forEach((each, index) => {
    const x = Math.min(Math.max(each.row - first, 0), end - first) * scale;
    const y = 40 + 18 * index;
    made.append(bar("track", 0, y, WIDTH - LABELS, 12, `${each.consumer} is at row ${each.row}`));
    made.append(bar(each.is_live ? "bar" : "full", 0, y, x, 12, `${each.consumer} is at row ${each.row}`));
    made.append(node("text", { x: WIDTH - LABELS + 12, y: y + 11 }, each.consumer));
  });
  return made;
}
