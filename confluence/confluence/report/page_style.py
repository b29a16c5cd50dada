"""How the page of a run looks: light, and dark where the reader's system is."""

STYLE = """
:root { color-scheme: light dark; --text: #1c2430; --soft: #5c6878; --line: #d9dee6; --paper: #fff;
  --back: #f4f6f9; --a: #1f5fa8; --b: #d9772b; --c: #2f8f5b; --d: #8a4fb0; --e: #b03a48; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e8ee; --soft: #9aa6b6; --line: #333c49;
  --paper: #1a2029; --back: #12161c; --a: #6cabf0; --b: #f0a05a; --c: #6cc795; --d: #c193e6;
  --e: #ec7d8a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--text);
  font: 15px/1.45 system-ui, "Segoe UI", Roboto, "Liberation Sans", sans-serif; }
header, main { max-width: 1120px; margin: 0 auto; padding: 0 20px; }
header { padding-top: 28px; }
h1 { font-size: 26px; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 0 0 12px; }
h3 { font-size: 15px; margin: 0; }
p { margin: 0 0 10px; color: var(--soft); overflow-wrap: anywhere; }
section { background: var(--paper); border: 1px solid var(--line); border-radius: 8px;
  padding: 18px 20px; margin: 18px 0; }
dl { margin: 0; } dd { margin: 0; } dt { color: var(--soft); }
.tiles { display: flex; flex-wrap: wrap; gap: 12px; margin-bottom: 18px; }
.tiles div { background: var(--paper); border: 1px solid var(--line); border-radius: 8px;
  padding: 10px 16px; min-width: 130px; }
.tiles dd { font-size: 21px; font-weight: 600; } .tiles dt { font-size: 13px; }
.grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(310px, 1fr)); gap: 18px; }
.beside { display: flex; flex-wrap: wrap; gap: 12px 40px; align-items: flex-start; }
.beside figure { flex: 1 1 420px; max-width: 560px; } .beside .facts { flex: 1 1 260px; }
details { margin: 10px 0; }
figure { margin: 0; } figcaption { font-size: 13px; margin-bottom: 2px; }
svg { width: 100%; height: auto; display: block; }
svg text { font-size: 11px; fill: var(--soft); }
.grid line, line.grid { stroke: var(--line); stroke-width: 1; }
polyline { fill: none; stroke-width: 1.8; stroke-linejoin: round; stroke: var(--e); }
circle { fill: var(--e); } rect.bar { fill: var(--a); }
.line-0 { stroke: var(--a); } .line-1 { stroke: var(--b); } .line-2 { stroke: var(--c); }
.line-3 { stroke: var(--d); } .dot-0 { fill: var(--a); } .dot-1 { fill: var(--b); }
.dot-2 { fill: var(--c); } .dot-3 { fill: var(--d); }
[class^="key-"]::before { content: "\\25AC\\00A0"; color: var(--e); }
[class^="key-"] { color: var(--soft); margin-left: 10px; }
.key-0::before { color: var(--a); } .key-1::before { color: var(--b); }
.key-2::before { color: var(--c); } .key-3::before { color: var(--d); }
.wide { overflow-x: auto; margin: 6px 0 12px; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 5px 14px 5px 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
th:first-child, td:first-child { text-align: left; min-width: 7em; }
th { color: var(--soft); font-weight: 500; font-size: 13px; vertical-align: bottom;
  white-space: nowrap; }
.scores tbody tr:first-child td { font-weight: 600; }
.verdict { color: var(--text); font-size: 18px; margin: 0; }
.verdict + .verdict { margin-top: 12px; }
.verdict small { display: block; color: var(--soft); font-size: 13px; }
.evaluation + .evaluation { margin-top: 22px; }
td small { display: block; color: var(--soft); font-weight: 400; white-space: nowrap; }
.facts div { display: flex; gap: 10px; } .facts dt { flex: 0 0 130px; }
.facts dd { overflow-wrap: anywhere; }
.settings { columns: 3 250px; column-gap: 32px; font-size: 14px; }
.settings div { display: flex; justify-content: space-between; gap: 10px; break-inside: avoid;
  border-bottom: 1px solid var(--line); padding: 2px 0; }
.settings dd { overflow-wrap: anywhere; text-align: right; }
.notes { margin: 8px 0 0; padding-left: 18px; color: var(--soft); font-size: 13px; }
pre { overflow-x: auto; background: var(--back); padding: 10px; border-radius: 6px; margin: 6px 0; }
a { color: var(--a); } summary { cursor: pointer; color: var(--soft); }
"""
