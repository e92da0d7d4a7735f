"""The part that decides: pure functions over frozen values, without clients, clocks or I/O."""
