"""How good answers are: metrics, their intervals, the baselines beside them, and linear
regressions."""
