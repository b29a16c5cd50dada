"""What people start: train, evaluate and ask a run, probe it, pretrain, prebatch, backtest, advise,
and all of it in one go."""
