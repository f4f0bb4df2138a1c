"""What an entry holds: envelopes, record batches, plain values, and the footer behind them."""
