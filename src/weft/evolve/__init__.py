"""The search: propose a kernel, judge it, keep the best three, record what was learnt."""
