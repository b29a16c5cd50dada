"""What people start: train, evaluate and ask a run, probe it, pretrain, backtest,
and all of it in one go."""
