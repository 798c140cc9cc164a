-- error: head_dim must be even
error "head_dim must be even" -- HERE
