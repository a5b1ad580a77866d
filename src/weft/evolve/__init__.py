"""The search: propose a kernel, judge it, keep the best three, write down what was learnt."""
