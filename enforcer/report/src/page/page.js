"use strict";
// Sorts and filters the table of workloads. Text of the page is read as text and never made into markup.
//
// What is out of sight is styled and laid out when there is time (`lazy` in the style): nothing waits for it. But it must not stay
// so, because a browser keeps what it has not laid out from screen readers.
document.documentElement.classList.add("lazy");
document.addEventListener("DOMContentLoaded", () => {
  const idle = window.requestIdleCallback ?? ((work) => setTimeout(work, 30));
  const AT_ONCE = 40;
  let waiting = [];
  const layOut = () => {
    for (const element of waiting.splice(0, AT_ONCE)) element.classList.add("seen");
    if (waiting.length > 0) idle(layOut);
  };
  const layOutLater = (elements) => {
    if (waiting.length === 0) idle(layOut);
    for (const element of elements) element.classList.remove("seen");
    waiting = [...new Set([...elements, ...waiting])];
  };
  layOutLater(document.querySelectorAll(".tall, article, #workloads tbody tr"));

  const table = document.getElementById("workloads");
  if (!table) return;
  const controls = document.getElementById("controls");
  const filter = document.getElementById("filter");
  const verdict = document.getElementById("verdict");
  const shown = document.getElementById("shown");
  const heads = [...table.tHead.rows[0].cells];
  const groups = [...table.tBodies].map((body) => ({ body, rows: [...body.rows].slice(1) }));
  const rows = groups.flatMap((group) => group.rows);
  // Of each row, built at the first filtering.
  let words;
  const flat = document.createElement("tbody");
  flat.setAttribute("role", "rowgroup");
  const texts = new Intl.Collator("en", { numeric: true });
  let sorted = "by node";

  // What a cell is sorted by; undefined where nothing is known, which comes last in both directions.
  const key = (row, column, sorts) => {
    const cell = row.cells[column];
    if (sorts !== "number") return cell.textContent;
    return cell.dataset.n === undefined ? undefined : Number(cell.dataset.n);
  };
  const order = (a, b) => (typeof a === "number" ? a - b : texts.compare(a, b));

  const tell = (count) => {
    shown.textContent = count + " of " + rows.length + " workloads are shown, " + sorted;
  };

  // Outside of the document, where nothing is computed anew for each row that moves.
  const arrange = (move) => {
    flat.remove();
    for (const group of groups) group.body.remove();
    table.append(...move());
    layOutLater(rows);
    apply();
  };

  const sortBy = (head, column) => {
    const before = head.getAttribute("aria-sort");
    const down = before === "ascending" || (head.dataset.sorts === "number" && !before);
    for (const other of heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const keyed = rows.map((row, place) => [key(row, column, head.dataset.sorts), place, row]);
    keyed.sort((a, b) => {
      if (a[0] === undefined || b[0] === undefined) {
        return (a[0] === undefined) - (b[0] === undefined) || a[1] - b[1];
      }
      return (down ? order(b[0], a[0]) : order(a[0], b[0])) || a[1] - b[1];
    });
    sorted = "by " + head.textContent.toLowerCase() + (down ? ", descending" : ", ascending");
    arrange(() => {
      flat.replaceChildren(...keyed.map((one) => one[2]));
      return [flat];
    });
  };

  const regroup = () => {
    for (const head of heads) head.removeAttribute("aria-sort");
    sorted = "by node";
    arrange(() => groups.map((group) => {
      group.body.append(...group.rows);
      return group.body;
    }));
  };

  const apply = () => {
    const wanted = filter.value.trim().toLowerCase();
    words ??= new Map(rows.map((row) => [row, (row.cells[0].textContent + " " + row.cells[0].title).toLowerCase()]));
    const back = [];
    let count = 0;
    for (const row of rows) {
      const fits = (!verdict.value || row.dataset.verdict === verdict.value) && words.get(row).includes(wanted);
      if (fits && row.hidden) back.push(row);
      if (row.hidden === fits) row.hidden = !fits;
      if (fits) count += 1;
    }
    for (const group of groups) group.body.hidden = group.rows.every((row) => row.hidden);
    if (back.length > 0) layOutLater(back);
    tell(count);
  };

  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    button.addEventListener("click", () => sortBy(head, column));
    head.replaceChildren(button);
  });
  document.getElementById("regroup").addEventListener("click", regroup);
  filter.addEventListener("input", apply);
  verdict.addEventListener("change", apply);
  // A link from a finding leads to its row, also where the filter hides it.
  addEventListener("hashchange", () => {
    const row = document.getElementById(location.hash.slice(1));
    if (!row || !row.hidden) return;
    filter.value = "";
    verdict.value = "";
    apply();
    row.scrollIntoView();
  });
  controls.hidden = false;
  tell(rows.length);
});
