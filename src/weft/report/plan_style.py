"""The style sheet of the planner's page: light and dark, wide and narrow."""

STYLE = """
:root {
  color-scheme: light dark;
  --page: #f6f6f4; --card: #ffffff; --ink: #161615; --soft: #55544f; --rule: #e3e2dd; --base: #a9a8a1; --accent: #1f5fb4;
  --sample: #2a78d6; --fetch: #1baf7a; --exchange: #eda100; --compute: #008300; --sync: #4a3aa7; --other: #8b8a84;
  --on-sample: #fff; --on-fetch: #06130d; --on-exchange: #1a1200; --on-compute: #fff; --on-sync: #fff; --on-other: #0b0b0b;
  --c0: #2a78d6; --c1: #0e8a5f; --c2: #b07600; --c3: #e34948; --c4: #4a3aa7; --c5: #c94f82; --c6: #008300; --c7: #c4541c;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #121211; --card: #1c1c1a; --ink: #f4f3ef; --soft: #b9b8b0; --rule: #33322f; --base: #6b6a64; --accent: #7db0f2;
    --sample: #3987e5; --fetch: #199e70; --exchange: #c98500; --compute: #008300; --sync: #9085e9; --other: #7d7c76;
    --on-sample: #06101d; --on-fetch: #04120c; --on-exchange: #171000; --on-compute: #fff; --on-sync: #0d0a22;
    --on-other: #0b0b0b;
    --c0: #4f97ec; --c1: #2bb98a; --c2: #d99a1f; --c3: #ee7472; --c4: #a79df2; --c5: #e280ab; --c6: #4fb04f; --c7: #ec8149;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue",
  "DejaVu Sans", sans-serif; overflow-wrap: anywhere; }
main { max-width: 1080px; margin: 0 auto; padding: 40px 24px 56px; }
h1, h2, p, figure, dl, dd, ul { margin: 0; padding: 0; }
h1 { font-size: 26px; line-height: 1.25; letter-spacing: -.01em; text-wrap: balance; }
h2 { font-size: 19px; line-height: 1.3; margin: 44px 0 12px; }
.eyebrow, .note, figcaption, dt, footer, summary { color: var(--soft); font-size: 14px; }
figure, .scroll, header dl { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; }
figure { padding: 20px; }
figure + figure { margin-top: 16px; }
figcaption { margin-bottom: 12px; max-width: 72ch; }
.sweep figcaption { color: var(--ink); font-weight: 600; font-size: 15px; }

.choice { margin: 20px 0 14px; display: flex; flex-wrap: wrap; align-items: baseline; gap: 2px 14px; }
.choice b { font-size: 34px; line-height: 1.15; letter-spacing: -.02em; color: var(--accent); }
.choice span { color: var(--soft); }
header dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); overflow: hidden; }
h1 + dl { margin: 18px 0 14px; }
header dl div { padding: 14px 18px; box-shadow: 1px 1px 0 var(--rule); }
dt { white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
dd { font-size: 20px; font-weight: 600; font-variant-numeric: tabular-nums; line-height: 1.35; }
.reasons { margin: 20px 0 14px; padding-left: 20px; max-width: 76ch; }
.reasons li { margin: 5px 0; }
.reasons li::marker { color: var(--accent); }

.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 4px 18px; margin-bottom: 10px; font-size: 14px; }
.legend li { display: flex; align-items: center; gap: 7px; }
.swatch { width: 12px; height: 12px; border-radius: 3px; background: var(--stage); }
.swatch.mark { width: 3px; height: 16px; border-radius: 1px; background: var(--ink); }
.sample { --stage: var(--sample); --on: var(--on-sample); }
.fetch { --stage: var(--fetch); --on: var(--on-fetch); }
.exchange { --stage: var(--exchange); --on: var(--on-exchange); }
.compute { --stage: var(--compute); --on: var(--on-compute); }
.sync { --stage: var(--sync); --on: var(--on-sync); }
.other { --stage: var(--other); --on: var(--on-other); }

.row { display: grid; grid-template-columns: 200px minmax(0, 1fr) 172px; gap: 0 20px; padding: 10px 0;
  border-top: 1px solid var(--rule); }
.name b { font-size: 15px; }
.note { font-size: 13px; line-height: 1.4; }
.badge { margin-left: 8px; padding: 1px 8px; border-radius: 9px; font-size: 12px; font-weight: 600; color: var(--card);
  background: var(--accent); white-space: nowrap; }
.side { font-size: 13px; line-height: 1.45; color: var(--soft); padding-top: 17px; }
.side b { color: var(--ink); font-size: 15px; font-variant-numeric: tabular-nums; }
.tracks { background: repeating-linear-gradient(to right, var(--rule) 0 1px, transparent 1px var(--step)); }
.track { position: relative; display: flex; padding-top: 20px; height: 46px; }
.track.measured { height: 38px; }
.track.measured .piece { background-image: repeating-linear-gradient(135deg, transparent 0 5px,
  color-mix(in srgb, var(--card) 45%, transparent) 5px 7px); }
.track.measured .piece span { visibility: hidden; }
.piece { display: flex; flex-wrap: wrap; overflow: hidden; height: 100%; background-color: var(--stage); color: var(--on);
  font-size: 12px; line-height: 26px; box-shadow: inset -2px 0 0 var(--card); }
.piece::before { content: ""; width: 1px; height: 100%; } /* a name that does not fit beside this wraps out of sight */
.piece span { padding: 0 7px 0 5px; white-space: nowrap; }
.track .mark { position: absolute; top: 17px; bottom: -3px; width: 3px; margin-left: -1.5px; border-radius: 2px;
  background: var(--ink); box-shadow: 0 0 0 1.5px var(--card); }
.mark span { position: absolute; bottom: 100%; left: 50%; transform: translateX(-50%); white-space: nowrap; font-size: 13px;
  line-height: 17px; font-weight: 600; font-variant-numeric: tabular-nums; background: var(--card); padding: 0 3px; }
.mark.before span { left: auto; right: -3px; transform: none; }
.mark.after span { left: -3px; transform: none; }
.measured .mark span { font-weight: 400; }
.best .name b { color: var(--accent); }
.excluded .track { opacity: .45; }
.axis { padding: 0; }
.ticks { grid-column: 2; position: relative; height: 22px; font-size: 12px; color: var(--soft); }
.ticks span { white-space: nowrap; position: absolute; top: 3px; transform: translateX(-50%); }
.ticks span:first-child { transform: none; }

.chart { display: block; width: 100%; height: auto; overflow: visible; font-variant-numeric: tabular-nums; }
.chart.narrow { display: none; }
.chart text { fill: var(--soft); }
.rule { stroke: var(--rule); }
.base { stroke: var(--base); }
.c0 { --line: var(--c0); } .c1 { --line: var(--c1); } .c2 { --line: var(--c2); } .c3 { --line: var(--c3); }
.c4 { --line: var(--c4); } .c5 { --line: var(--c5); } .c6 { --line: var(--c6); } .c7 { --line: var(--c7); }
.line polyline { fill: none; stroke: var(--line); stroke-width: 1.5; stroke-linejoin: round; }
.line path { fill: var(--card); stroke: var(--line); stroke-width: 1.5; }
.line .leader { stroke: var(--line); opacity: .5; }
.wins polyline { stroke-width: 2.75; }
.wins path { fill: var(--line); stroke: var(--card); }
.wins .word { fill: var(--ink); font-weight: 600; }
.line:hover polyline { stroke-width: 3.5; }
.flag .word { fill: var(--ink); paint-order: stroke; stroke: var(--card); stroke-width: 4px; }
.pole { stroke: var(--ink); stroke-width: 1; }
.here .pole { stroke: var(--accent); stroke-width: 1.5; stroke-dasharray: 3 3; }
.chart .here .word { fill: var(--accent); font-weight: 600; }
details { margin-top: 12px; }
summary { cursor: pointer; }
details .scroll { margin-top: 10px; }

.scroll { overflow-x: auto; }
.scroll + .note { margin-top: 10px; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
th, td { padding: 7px 12px; text-align: right; white-space: nowrap; border-top: 1px solid var(--rule); }
thead th { color: var(--soft); font-weight: 600; border-top: 0; vertical-align: bottom; }
thead tr:first-child th[colspan] { text-align: left; padding-bottom: 0; }
th:first-child { position: sticky; left: 0; z-index: 1; background: var(--card); text-align: left; max-width: 190px;
  overflow: hidden; text-overflow: ellipsis; }
td.words { text-align: left; white-space: normal; min-width: 220px; }
tr.best > *, td.least { font-weight: 700; }
tr.measured > *, tr.excluded > * { color: var(--soft); }
tr.measured > th { font-weight: 400; padding-left: 24px; }
footer { margin-top: 28px; }

@media (max-width: 800px) {
  main { padding: 24px 14px 40px; }
  h1 { font-size: 22px; }
  figure { padding: 16px 12px; }
  header dl { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .row { grid-template-columns: minmax(0, 1fr) auto; gap: 2px 12px; }
  .name { grid-area: 1 / 1; } .side { grid-area: 1 / 2; padding: 0; text-align: right; max-width: 46vw; }
  .tracks { grid-area: 2 / 1 / 3 / 3; } .ticks { grid-area: 1 / 1 / 2 / 3; }
  .chart.wide { display: none; } .chart.narrow { display: block; max-width: 520px; }
  td.words { min-width: 180px; } th:first-child { max-width: 130px; }
}
@media print { :root { color-scheme: light; } figure, .row { break-inside: avoid; } }
"""
