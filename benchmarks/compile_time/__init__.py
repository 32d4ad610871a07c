"""How long models take to compile: random graphs, each verified, none slower than its size allows."""
