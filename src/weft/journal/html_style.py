"""The look of the HTML report."""

STYLE = """
:root{--ink:#1c2128;--quiet:#59626d;--page:#faf9f6;--card:#fff;--line:#e3dfd7;--plan:#c9c4b9;--spent:#0d6b68;
--over:#b23a16;--warn:#fdece5}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8eb;--quiet:#a2aab5;--page:#121418;--card:#191c21;--line:#2b3037;
--plan:#434a54;--spent:#62cdbf;--over:#ff9d78;--warn:#37211a}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:56rem;margin:0 auto;padding:1.25rem}
h1{margin:.5rem 0 0;font-size:1.9rem;letter-spacing:-.02em}
h2{margin:2rem 0 .5rem;font-size:1.25rem}h3{margin:1rem 0 .3rem;font-size:1rem}
p{margin:.3rem 0}.quiet{color:var(--quiet);font-size:.875rem}
.notice{margin:.6rem 0;padding:.6rem .8rem;border-left:4px solid var(--over);background:var(--warn);
overflow-wrap:anywhere}
.figures{display:flex;flex-wrap:wrap;gap:.6rem;margin:1rem 0}
.figures div{flex:1 1 8rem;padding:.6rem .8rem;background:var(--card);border:1px solid var(--line);
border-radius:.5rem}
.figures b{display:block;font-size:1.3rem;font-variant-numeric:tabular-nums}
.figures span{color:var(--quiet);font-size:.875rem}
.bar{display:grid;grid-template-columns:1fr 9rem;align-items:center;gap:.6rem;margin:.2rem 0;font-size:.875rem}
.bar i{display:block;height:.9rem;min-width:2px;border-radius:.2rem;background:var(--plan)}
.bar .spent{background:var(--spent)}.bar .over{background:var(--over)}
.wide{overflow-x:auto;margin:.6rem 0}
table{border-collapse:collapse;width:100%;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{padding:.3rem .6rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
th{color:var(--quiet);font-weight:500}th:first-child,td:first-child{text-align:left}
.over td:last-child{color:var(--over);font-weight:600}.sum td{font-weight:600}
.entry{margin:1rem 0;padding:.2rem .9rem .7rem;background:var(--card);border:1px solid var(--line);
border-radius:.5rem;border-left:4px solid var(--plan)}
.entry.good{border-left-color:var(--spent)}.entry.bad{border-left-color:var(--over)}
dl{display:grid;grid-template-columns:9rem 1fr;font-size:.9rem;gap:.2rem .9rem;margin:.4rem 0}
dt{color:var(--quiet)}dd{margin:0;overflow-wrap:anywhere}
code,pre{font:.85rem/1.45 ui-monospace,monospace}pre{overflow-x:auto;margin:.4rem 0}
summary{cursor:pointer;color:var(--quiet)}
@media(max-width:34rem){dl{grid-template-columns:1fr;gap:0}dd{margin-bottom:.4rem}.bar{grid-template-columns:1fr}}
"""
