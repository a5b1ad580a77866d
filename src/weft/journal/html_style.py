"""The look of the HTML report."""

STYLE = """
:root{--ink:#1c1f23;--quiet:#667;--page:#fff;--card:#f5f6f8;--line:#d9dce1;--plan:#9aa7b8;--spent:#2f7d5b;--over:#b4412c;
--warn:#fdf0e6}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8eb;--quiet:#99a1ad;--page:#14171a;--card:#1d2126;--line:#343a42;
--plan:#5c6a7c;--spent:#4fae85;--over:#e0755f;--warn:#35231a}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
main{max-width:52rem;margin:0 auto;padding:1rem}
h1{margin:.5rem 0 0;font-size:1.6rem}h2{margin:2rem 0 .5rem;font-size:1.25rem}h3{margin:1rem 0 .3rem;font-size:1rem}
p{margin:.3rem 0}.quiet{color:var(--quiet);font-size:.875rem}
.notice{margin:.6rem 0;padding:.6rem .8rem;border-left:4px solid var(--over);background:var(--warn);
overflow-wrap:anywhere}
.figures{display:flex;flex-wrap:wrap;gap:.6rem;margin:1rem 0}
.figures div{flex:1 1 8rem;padding:.6rem .8rem;background:var(--card);border-radius:.5rem}
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
.entry{margin:1rem 0;padding:.2rem .9rem .7rem;background:var(--card);border-radius:.5rem;
border-left:4px solid var(--line)}
.entry.good{border-color:var(--spent)}.entry.bad{border-color:var(--over)}
dl{display:grid;grid-template-columns:minmax(6rem,max-content) 1fr;gap:.2rem .9rem;margin:.4rem 0}
dt{color:var(--quiet)}dd{margin:0;overflow-wrap:anywhere}
code,pre{font:.85rem/1.45 ui-monospace,monospace}pre{overflow-x:auto;margin:.4rem 0}
summary{cursor:pointer;color:var(--quiet)}
@media(max-width:34rem){dl{grid-template-columns:1fr;gap:0}dd{margin-bottom:.4rem}.bar{grid-template-columns:1fr}}
"""
