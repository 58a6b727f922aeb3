"""Numbers that vary: expressions and conditions in the place of sizes, ints and floats."""
