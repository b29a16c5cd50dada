"""Scores of answers: metrics, their intervals, baselines to compare with, and linear
regressions."""
