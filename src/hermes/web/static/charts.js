// Draws each table with `data-chart` as a chart above it. Without scripts the table says the same.
"use strict";

const MAX_HEIGHT = 220;
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const SERIES = ["--accent", "--warn"];
const say = (format) => (seconds) => new Intl.DateTimeFormat("en-GB", format).format(new Date(seconds * 1000));
const TIMES = {
  day: [say({ hour: "2-digit", minute: "2-digit" }), say({ weekday: "long", hour: "2-digit", minute: "2-digit" })],
  month: [say({ day: "numeric", month: "short" }), say({ day: "numeric", month: "long" })],
};
const told = (_, value) => (value === null ? "" : value.toLocaleString("en-GB"));

// The first column has Unix seconds in `data-at`; every other one has numbers in `data-value`, or nothing.
function read(table) {
  const rows = [...table.tBodies[0].rows].map((row) => [...row.cells]);
  const number = (cell, name) => (cell.dataset[name] ? Number(cell.dataset[name]) : null);
  return [
    rows.map((cells) => number(cells[0], "at")),
    ...rows[0].slice(1).map((_, column) => rows.map((cells) => number(cells[column + 1], "value"))),
  ];
}

function draw(table) {
  const place = document.getElementById(table.dataset.chart);
  const names = [...table.tHead.rows[0].cells].slice(1).map((cell) => cell.textContent);
  const axis = { stroke: color("--soft"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false } };
  const bars = uPlot.paths.bars({ size: [0.7, 40] });
  const isCount = "bars" in table.dataset;
  const [short, long] = TIMES[table.dataset.span];
  place.replaceChildren();
  const chart = new uPlot({
    width: place.clientWidth,
    height: Math.min(MAX_HEIGHT, place.clientWidth * 0.6),
    scales: { y: { range: (_, low, high) => [0, (high || 1) * 1.1] } },
    axes: [{ ...axis, size: 32, space: 60, values: (_, times) => times.map(short) }, { ...axis, size: 56 }],
    series: [
      { label: "When", value: (_, at) => (at === null ? "" : long(at)) },
      ...names.map((label, number) => ({
        label,
        value: told,
        stroke: color(SERIES[number]),
        width: 2,
        spanGaps: true,
        ...(isCount ? { paths: bars, fill: color(SERIES[number]), width: 0, points: { show: false } } : {}),
      })),
    ],
  }, read(table), place);
  return chart;
}

const tables = [...document.querySelectorAll("table[data-chart]")];
let charts = [];
const drawAll = () => { charts.forEach((chart) => chart.destroy()); charts = tables.map(draw); };

tables.forEach((table) => { table.closest("details").open = false; });
drawAll();
addEventListener("resize", drawAll);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
