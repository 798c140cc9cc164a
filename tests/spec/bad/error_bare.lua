-- error: head_dim must be even
error("head_dim must be even", 0) -- HERE
